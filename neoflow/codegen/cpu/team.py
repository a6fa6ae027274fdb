"""The thread team that runs compiled programs, as a library: `team.ll`, compiled for any x86-64 processor."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tvm import tirx

from neoflow.codegen.cpu.compile import compiled, object_file, toolchain
from neoflow.codegen.cpu.elf import link
from neoflow.codegen.cpu.entry import c_function
from neoflow.codegen.keys import digest, program_digest

SPIN_CYCLES = 150_000
"""How long a thread spins: about 50 us, ten times what it takes to be woken up on a core that is awake, and little
enough that a neighbour's threads do not miss it."""
YIELD_CYCLES = 3_000_000
"""How long it goes on between two steps, with a yield between two looks: about 1 ms. A core that nobody wants goes to
sleep itself, a virtual one most of all, and takes hundreds of microseconds to come back, as long as a small step; what
runs between two steps, in Python say, takes less than this."""
ECHO_CYCLES = 30_000_000
"""How long a thread waits for another's answer: about 10 ms, after which that is on no core."""

FUNCTIONS = {
    "run": ("handle", "handle", "int32"),
    "worker": ("handle",),
    "copy": ("handle", "int32", "int32", "int32"),
    "loop": ("handle", "int32", "int32", "int32"),
    "end": ("handle",),
    "echo": ("handle", "int64", "int64"),
}
"""What the library exports, each as `nf_team_NAME`, with the types of its parameters."""


def team_source() -> str:
    """LLVM IR of the team."""
    text = files("neoflow.codegen.cpu").joinpath("team.ll").read_text()
    for word, cycles in (("SPIN", SPIN_CYCLES), ("YIELD", YIELD_CYCLES), ("ECHO", ECHO_CYCLES)):
        text = text.replace(f"{word}_CYCLES", str(cycles))
    return text


def team_key() -> str:
    """What the library of the team is found by."""
    return digest("team", team_source(), program_digest([Path(__file__)]), toolchain())


def team_object() -> bytes:
    """The machine code of the team, to be linked."""
    functions: dict[str, tirx.PrimFunc] = {}
    for name, types in FUNCTIONS.items():
        parameters = [tirx.Var(f"p{n}", t) for n, t in enumerate(types)]
        functions[f"nf_team_{name}"] = c_function(parameters, f"team_{name}", None if functions else team_source())
    return object_file(compiled(functions, "x86-64"))


def build_team() -> bytes:
    """The library of the team, as the bytes of its file."""
    return link([team_object()], "libneoflow-team.so")
