"""Training steps of every model beside four peers, each contender in a process of its own, in turn.

    python -m benchmarks.steps [--models capsnet/16,bert/1] [--seconds 60] [--before PATH] [--json PATH] [--write]

A step is forward, gradients and SGD, from the same parameters and inputs; loss and gradients are compared first. The
contenders: neoflow of this checkout, with `--before` also of another one (a git worktree); PyTorch as installed;
PyTorch in its expert setting (MKL's AVX-512 also on AMD, large buffers kept mapped with huge pages); torch.compile in
that setting; JAX. Only one of them runs at a time, the others blocked on their pipes and seen to be quiet: a block of
steps each, in turn, for many rounds. Times are medians over blocks, ratios medians over rounds. The share of the floor
is the sum over neoflow's kernels of the longer of their operations at the measured peak and their bytes at the measured
bandwidth of the memory that holds them, over the step's time. `--write` puts both tables into RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import write
from benchmarks.steps.compare import Comparison, compare, measure_machine
from benchmarks.steps.contenders import OURS, PEERS, contenders
from neoflow.machine import processor
from neoflow.roofs import Roofs

MODELS = (
    "capsnet/1",
    "capsnet/16",
    "mi_lstm_mnist/64",
    "mi_lstm_ptb/64",
    "ptb_lstm/20",
    "bert_layer/1",
    "bert_layer/8",
    "bert/1",
    "resnet18/1",
    "resnet18/16",
    "resnet50/1",
    "shufflenet/1",
    "shufflenet/16",
)
"""Models and batches."""
NAMES = [p.name for p in PEERS]


def shown(value: float | None, text: str = "{:.2f}") -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else text.format(value)


def step_table(found: Sequence[Comparison]) -> list[str]:
    """Milliseconds of a step, ratios to the best of the peers, shares of the floor."""
    others = [OURS.name, "before", *NAMES]
    lines = [
        "| model | " + " | ".join(f"{n} ms" for n in others) + " | best peer | neoflow / best | before / best | "
        "neoflow / before | share of floor | before |",
        "|---|" + "--:|" * len(others) + "---|--:|--:|--:|--:|--:|",
    ]
    for c in found:
        best = c.best(NAMES)
        times = [shown(s if s is None else 1e3 * s) for s in map(c.seconds, others)]
        ratios = [c.ratio(n, other) for n, other in ((OURS.name, best), ("before", best), (OURS.name, "before"))]
        shares = [shown(c.share(n), "{:.0%}") for n in (OURS.name, "before")]
        cells = [f"{c.model} b{c.batch}", *times, best or "-", *map(shown, ratios), *shares]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def compile_table(found: Sequence[Comparison]) -> list[str]:
    """Seconds to the end of the first step, with nothing cached and with all."""
    kept = [c.name for c in contenders(Path()) if c.is_cached]
    names = [*[n for n in (OURS.name, "before") if any(n in c.first for c in found)], *NAMES]
    heads = [h for n in names for h in ([f"{n} s", "cached"] if n in kept else [f"{n} s"])]
    lines = ["| model | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for c in found:
        cells = [v for n in names for v in ([c.first.get(n), c.again.get(n)] if n in kept else [c.first.get(n)])]
        lines.append(f"| {c.model} b{c.batch} | " + " | ".join(map(shown, cells)) + " |")
    return lines


def notes(found: Sequence[Comparison]) -> list[str]:
    """Who was missing, and why."""
    return [f"- {c.model} b{c.batch}: no {name}: {why}." for c in found for name, why in c.missing.items()]


def publish(found: Sequence[Comparison], roofs: Roofs, command: str) -> None:
    """Replace both sections in RESULTS.md."""
    versions = {name: v for c in found for name, v in c.versions.items()}
    peers = ", ".join(f"{n} {versions[n]}" for n in ("PyTorch", "JAX") if n in versions)
    levels = ", ".join(f"{level.gb_s:.0f} GB/s in {level.name}" for level in roofs.levels)
    busy = max(c.foreign for c in found)
    how = (
        f"{processor()}, {peers}; {roofs.gflops:.0f} GFLOP/s, {levels}; other work took at most {busy:.1%} of the "
        f"machine; `{command}`"
    )
    missing = notes(found)
    write("steps", "Training steps beside four peers", how, [*step_table(found), *([""] if missing else []), *missing])
    title = "Seconds to the end of the first step: building, differentiating, compiling, running"
    write("compile", title, how, compile_table(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names and batches; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of blocks, for each model")
    parser.add_argument("--block", type=float, default=0.3, help="seconds of one")
    parser.add_argument("--before", type=Path, help="another checkout of neoflow")
    parser.add_argument("--only", default="", help="these contenders")
    parser.add_argument("--json", type=Path, help="write everything measured here, after each model")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    only = [n for n in options.only.split(",") if n]
    unknown = set(only) - {c.name for c in contenders(Path())}
    if unknown:
        parser.error(f"there is no contender {', '.join(sorted(unknown))}")
    roofs, found = measure_machine(), []
    for key in options.models.split(","):
        model, _, batch = key.partition("/")
        if not batch.isdecimal():
            parser.error(f"a model is NAME/BATCH, not {key!r}")
        found.append(compare(model, int(batch), roofs, options.before, options.seconds, options.block, only, say))
        say(f"{key} measured, other work took {found[-1].foreign:.1%} of the machine")
        print("\n".join(step_table(found[-1:])[0 if len(found) == 1 else 2 :]), flush=True)
        if options.json:
            options.json.write_text(json.dumps([c.to_json() for c in found], indent=1) + "\n")
    print("\n".join(["", *compile_table(found), "", *notes(found)]))
    if options.write:
        publish(found, roofs, " ".join(["python -m benchmarks.steps", *sys.argv[1:]]))


def say(line: str) -> None:
    """What goes on, beside the tables."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
