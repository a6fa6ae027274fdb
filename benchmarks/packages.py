"""Packages of models: their sizes, and the time from the start of a process to its first result.

    python -m benchmarks.packages [MODEL ...]

A process of its own each time, in an environment that has what a package needs and no more: no TVM, no compiler. Beside
it stands what Python and NumPy alone take, which no package undercuts; both in turn, medians.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

import neoflow
from neoflow.report.packaged import build_package

NEEDED = ("numpy", "numpy.libs", "ml_dtypes", "safetensors")
"""Packages that one is run with, beside neoflow."""
RUNS = 15
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


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as there:
        folder = lean(Path(there))
        for name in names or ["capsnet"]:
            path = folder / f"{name}.nflib"
            print(build_package(name, path))
            program = _RUN.format(path=str(path))
            seconds(program, folder)
            pairs = [(seconds("import numpy", folder), seconds(program, folder)) for _ in range(RUNS)]
            alone, whole = (median(column) for column in zip(*pairs, strict=True))
            print(f"first result after {whole:.3f} s; Python and NumPy alone {alone:.3f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
