"""What ptxas says that kernels take of a processor: registers, shared memory, and what does not stay in registers."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from neoflow.codegen.gpu.compilers import FLAGS, machine_of
from neoflow.errors import CodegenError
from neoflow.target import Target

_ENTRY = re.compile(r"Compiling entry function '([\w$]+)' for 'sm_\w+'")
_USED = {
    "registers": re.compile(r"Used (\d+) registers"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
}


@dataclass(frozen=True)
class Resources:
    """registers: of a thread. stack, spill_stores, spill_loads: bytes of a thread. shared_bytes: of a block, as
    declared; what a launch asks for comes on top."""

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0

    @property
    def spills(self) -> bool:
        """Whether values go to memory and come back because registers are short."""
        return self.spill_stores > 0 or self.spill_loads > 0


def parse_resources(text: str) -> dict[str, Resources]:
    """Of each kernel, by its name, of what `ptxas -v` prints."""
    found: dict[str, Resources] = {}
    starts = list(_ENTRY.finditer(text))
    for n, start in enumerate(starts):
        part = text[start.end() : starts[n + 1].start() if n + 1 < len(starts) else len(text)]
        sizes = {name: pattern.search(part) for name, pattern in _USED.items()}
        found[start[1]] = Resources(**{name: int(m[1]) for name, m in sizes.items() if m is not None})
    return found


def resources(source: str, target: Target) -> dict[str, Resources]:
    """Of each kernel of a source: of CUDA C++, or for a target of kind "nvptx" of PTX.

    Raises `CodegenError` where it does not compile, or nvcc or ptxas, parts of CUDA toolkits, are not here.
    """
    command, suffix = _COMMANDS[target.kind]
    if shutil.which(command[0]) is None:
        raise CodegenError(f"{command[0]}, a part of CUDA toolkits, is not here: it says what kernels take")
    with tempfile.TemporaryDirectory(prefix="neoflow-") as folder:
        given, made = Path(folder, f"kernel.{suffix}"), Path(folder, "kernel.cubin")
        given.write_text(source)
        whole = [*command, f"-arch={machine_of(source, target)}", "-o", str(made), str(given)]
        done = subprocess.run(whole, capture_output=True, text=True)
    if done.returncode:
        raise CodegenError(f"{command[0]} does not compile a kernel for {target.mcpu}:\n{done.stderr[-2000:]}")
    return parse_resources(done.stdout + done.stderr)


_COMMANDS = {
    "cuda": (("nvcc", "-cubin", *FLAGS, "-Xptxas", "-v"), "cu"),
    "nvptx": (("ptxas", "-v"), "ptx"),
}
"""By kind of target: what compiles, and how its source is called."""
