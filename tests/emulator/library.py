"""The emulator as `libcuda.so.1`, for programs in C: see `libcuda.c`."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.emulator import build
from tests.emulator.machine import Program

SOURCE = Path(__file__).parent / "libcuda.c"


def cuda_library(folder: Path, modules: Sequence[str]) -> dict[str, str]:
    """Write the driver into a folder, for programs whose modules are these sources. Returns the environment in which
    programs find it."""
    folder.mkdir()
    for n, text in enumerate(modules):
        program = Program(text, checked=False)
        (folder / f"{n}.cu").write_text(text)
        (folder / f"{n}.so").symlink_to(program.path)
        lines = [f"{symbol} {len(signature.names)}\n" for symbol, signature in program.kernels.items()]
        (folder / f"{n}.txt").write_text("".join(lines))
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    command = ["cc", *flags, str(SOURCE), str(build.machine()), "-ldl", "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "NF_EMULATOR": str(folder), "NF_EMULATOR_ARCHITECTURE": "80"}


def calls(environment: Mapping[str, str]) -> list[list[str]]:
    """What was asked of the driver since this was last asked: a name and arguments each; memory by its place."""
    path = Path(environment["NF_EMULATOR"], "calls.txt")
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line.split() for line in lines]
