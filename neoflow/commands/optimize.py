"""`neoflow optimize`: a faster equal graph of a model, by rules that are proved."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neoflow.commands.options import AsJson, Mode, ModelName, TargetName, print_json

if TYPE_CHECKING:
    from neoflow.superopt import Optimized


def optimize(
    model: ModelName,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a step. Default: the model's.")] = None,
    mode: Annotated[Mode, typer.Option(help="A training step (SGD), or inference.")] = Mode.train,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to search.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the order in which rules are tried.")] = 0,
    rules: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE", help="Proved rules besides those that come with neoflow.")
    ] = None,
    target: TargetName = "cpu",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write every step with a picture of its rule.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search for a faster graph of a model, and print what was done to it and what that gains, estimated and
    measured."""
    from neoflow.report.derivation import derivation_page
    from neoflow.report.html import write_page
    from neoflow.report.optimized import optimized

    parts = optimized(model, batch, mode.value, seconds, seed, rules, target)
    if html is not None:
        write_page(html, derivation_page(f"{model}, {mode.value}", parts))
    if as_json:
        print_json({"model": model, "mode": mode.value, "parts": [_entry(part) for part in parts]})
        return
    for part in parts:
        print(part.summary)
        print(f"before: {part.before}\nafter:  {part.after}")
        for step in part.steps:
            print(f"{step}\n   {step.rewrite.drawing}")


def _entry(part: Optimized) -> dict[str, Any]:
    costs = {"before": asdict(part.before), "after": asdict(part.after)}
    counts = {"graphs": part.graphs, "pieces": part.pieces, "stopped": part.stopped}
    steps = [{"rule": s.rewrite.name, "at": s.name, "drawing": s.rewrite.drawing} for s in part.steps]
    return {**costs, **counts, "measured": part.measured, "steps": steps}
