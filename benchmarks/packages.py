"""Packages of models: their sizes, and the time from the start of a process to its first result.

    python -m benchmarks.packages [MODEL ...] [--runs 15] [--write]

A process of its own each time, in an environment that has what a package needs and no more: no TVM, no compiler. Beside
it stands what Python and NumPy alone take, which no package undercuts; both in turn, medians. `--write` puts the table
into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

import neoflow
from benchmarks.results import called, write
from neoflow.report.packaged import build_package

NEEDED = ("numpy", "numpy.libs", "ml_dtypes", "safetensors")
"""Packages that one is run with, beside neoflow."""
MODELS = ("capsnet", "mi_lstm_mnist", "shufflenet", "resnet18")
WANTED = 0.15
"""Seconds."""
SHOWN, KIB = 3, 1024
_RUN = """
import numpy as np
import neoflow as nf
infer = nf.load({path!r}).infer
infer(np.zeros(infer.inputs[0].shape, infer.inputs[0].dtype))
"""
_SAY = "import os; os.write(1, b'.')"
"""What a program ends with: the end of the process that follows is not waited for."""


def lean(folder: Path) -> Path:
    """A folder to import from, with what is needed alone."""
    site = Path(np.__file__).parents[1]
    for source in (*(site / name for name in NEEDED), Path(neoflow.__file__).parent):
        folder.joinpath(source.name).symlink_to(source)
    return folder


def seconds(program: str, folder: Path) -> float:
    """From the start of a process until it has run a program."""
    environment = {"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", f"{program}\n{_SAY}"]
    started = time.perf_counter()
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE) as process:
        said = process.stdout.read(1) if process.stdout is not None else b""
        taken = time.perf_counter() - started
    if process.returncode or said != b".":
        raise RuntimeError(f"the process of a package has ended with {process.returncode}")
    return taken


def row(name: str, folder: Path, runs: int) -> str:
    """A model's package for one sample: its size, its parts, and seconds to its first result."""
    path = folder / f"{name}.nflib"
    build_package(name, path, 1)
    sizes = {f.name: f.stat().st_size for f in path.rglob("*") if f.is_file()}
    parts = sorted(sizes.items(), key=lambda part: -part[1])[:SHOWN]
    program = _RUN.format(path=str(path))
    seconds(program, folder)
    pairs = [(seconds("import numpy", folder), seconds(program, folder)) for _ in range(runs)]
    alone, whole = (median(column) for column in zip(*pairs, strict=True))
    largest = ", ".join(f"{part} {size / KIB:.0f}" for part, size in parts)
    found = "reached" if whole <= WANTED else "missed"
    return (
        f"| {name} b1 | {sum(sizes.values()) / KIB:.0f} | {largest} | {whole:.3f} | {WANTED} | {found} | {alone:.3f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    lines = [
        "| model | KiB | its largest files | first result after, s | wanted | | Python and NumPy alone, s |",
        "|---|--:|---|--:|--:|---|--:|",
    ]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as there:
        folder = lean(Path(there))
        for name in options.models:
            lines.append(row(name, folder, options.runs))
            print(lines[-1], flush=True)
    if options.write:
        title = "Packages: sizes, and seconds from the start of a process to the first result"
        write("packages", title, called("packages"), lines)


if __name__ == "__main__":
    main()
