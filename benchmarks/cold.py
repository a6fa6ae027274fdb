"""Seconds from nothing known to a compiled training step, and to the end of the first one, of every model.

    python -m benchmarks.cold [--models REGEX] [--write]

Each is a process of its own with an empty cache. Building the model and its gradients is counted, importing is not;
what is wanted is wanted of compiling; beside it the stages of the compilation that take most. `--write` puts the table
into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.models.cells import BATCHES
from benchmarks.results import called, write
from benchmarks.steps.contenders import ROOT
from neoflow.models import build_model
from neoflow.train.step import train_step

RECURRENT = re.compile(r".*(lstm|rnn|lltm).*")
WANTED, WANTED_OF_RECURRENT = 30.0, 10.0
"""Seconds."""
SHOWN = 3
"""Stages."""


@dataclass(frozen=True)
class Cold:
    """Of a model: seconds to a compiled step, to the end of the first one, of each stage of its compilation, and
    distinct kernels."""

    name: str
    batch: int
    compiled: float
    seconds: float
    stages: dict[str, float]
    kernels: int

    @property
    def wanted(self) -> float:
        """Seconds."""
        return WANTED_OF_RECURRENT if RECURRENT.match(self.name) else WANTED


def first_step(name: str, batch: int) -> Cold:
    """In this process."""
    begun = time.perf_counter()
    model = build_model(name, batch)
    step = train_step(model)
    compiled = time.perf_counter() - begun
    step(*model.example())
    took = time.perf_counter() - begun
    stages: dict[str, float] = {}
    for record in step.compiled.trace.records:
        stages[record.name] = stages.get(record.name, 0.0) + record.seconds
    return Cold(name, batch, compiled, took, stages, len(step.compiled.kernels))


def alone(name: str, batch: int) -> Cold:
    """In a process of its own that knows nothing."""
    command = [sys.executable, "-m", "benchmarks.cold", "--one", name, str(batch)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NEOFLOW_CACHE_DIR": folder}
        said = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Cold(**json.loads(said.splitlines()[-1]))


def line(cold: Cold) -> str:
    """A row."""
    most = sorted(cold.stages.items(), key=lambda stage: -stage[1])[:SHOWN]
    shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in most)
    found = "reached" if cold.compiled <= cold.wanted else "missed"
    head = f"| {cold.name} b{cold.batch} | {cold.compiled:.1f} | {cold.wanted:.0f} | {found} | {cold.seconds:.1f}"
    return f"{head} | {cold.kernels} | {shown} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="those in whose NAME/BATCH this regular expression is found")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asdict(first_step(options.one[0], int(options.one[1])))))
        return
    lines = [
        "| model | compiled after s | wanted | | first step ended after s | kernels | of these s most |",
        "|---|--:|--:|---|--:|--:|---|",
    ]
    print("\n".join(lines), flush=True)
    for name, batches in BATCHES.items():
        for batch in batches:
            if re.search(options.models, f"{name}/{batch}"):
                lines.append(line(alone(name, batch)))
                print(lines[-1], flush=True)
    if options.write:
        write("cold", "Seconds to the first training step, from an empty cache", called("cold"), lines)


if __name__ == "__main__":
    main()
