"""`neoflow compare`: two reports side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    first: Annotated[Path, typer.Argument(help="A report of `neoflow train`.")],
    second: Annotated[Path, typer.Argument(help="Another.")],
    output: Annotated[Path, typer.Option(help="Write the page here.")] = Path("neoflow-compare.html"),
) -> None:
    """Lay two runs side by side: their summaries, their curves, the time of every kernel."""
    from neoflow.errors import ConfigError
    from neoflow.report.beside import render_pair
    from neoflow.report.html import write_page
    from neoflow.report.record import read_run

    text = render_pair(read_run(first), read_run(second))
    try:
        write_page(output, text)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error}") from None
    print(output)
