"""What ptxas says of kernels: registers of a thread, shared memory of a block, what does not stay in registers."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from neoflow.codegen.gpu.compilers import FLAGS
from neoflow.target import Target

_ENTRY = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers(.*?)\n",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """registers: of a thread. shared_bytes: static, of a block. spills: bytes stored. stack: bytes of a thread."""

    registers: int
    shared_bytes: int
    spills: int
    stack: int


def resources(source: str, target: Target) -> dict[str, Resources]:
    """Of each kernel of CUDA C++."""
    with tempfile.TemporaryDirectory(prefix="neoflow-") as folder:
        given = Path(folder, "kernel.cu")
        given.write_text(source)
        command = ["nvcc", "-cubin", f"-arch={target.mcpu}", *FLAGS, "-Xptxas", "-v", "-o", "/dev/null", str(given)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for name, stack, stores, _, registers, rest in _ENTRY.findall(done.stderr):
        shared = _SHARED.search(rest)
        found[name] = Resources(int(registers), int(shared[1]) if shared else 0, int(stores), int(stack))
    return found
