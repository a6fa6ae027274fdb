"""`neoflow cache`: what is kept of compiled kernels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from neoflow.commands.options import AsJson, print_json


@dataclass(frozen=True)
class Kept:
    """A kernel cache: its folder, its modules, their bytes and the limit, the kernels in them, and those judged."""

    folder: str
    modules: int
    nbytes: int
    limit_bytes: int
    kernels: int
    certificates: int

    def __str__(self) -> str:
        mib = 1 << 20
        return (
            f"{self.folder}: {self.kernels} kernels in {self.modules} modules, {self.nbytes / mib:.1f} of at most "
            f"{self.limit_bytes / mib:.0f} MiB; {self.certificates} compared with NumPy"
        )


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all: it is compiled anew when needed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is kept of compiled kernels, and where; or remove it."""
    from neoflow import config
    from neoflow.runtime.cache import KernelCache

    settings = config.load()
    found = KernelCache(settings.cache_dir, settings.cache_bytes)
    if clear:
        found.clear()
    files = found.files()
    nbytes, counts = sum(file.nbytes for file in files["module"]), {kind: len(files[kind]) for kind in files}
    kept = Kept(str(found.root), counts["module"], nbytes, found.limit_bytes, counts["kernel"], counts["certificate"])
    if as_json:
        print_json(asdict(kept))
    else:
        print(kept)
