"""The shared library of a package: kernels, the thread team, and the C functions that run whole plans.

NAME *NAME_open(int32_t threads)                 an instance: its memory and its threads
int32_t NAME_FUNCTION(NAME *, arrays...)         one run of a plan
void *NAME_parameter(NAME *, int32_t number)     const char *NAME_message(int32_t number)     void NAME_close(NAME *)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from neoflow.codegen.cpu.compile import compiled_kernels, object_file
from neoflow.codegen.cpu.elf import link
from neoflow.codegen.cpu.kernel import Lowered
from neoflow.codegen.cpu.team import team_object
from neoflow.codegen.cpu.written import assembled, c_function, content, numbers, pointers, words
from neoflow.machine import available_cores
from neoflow.target import Target

_GROUP = 16
"""Kernels of one object file: few enough that all cores compile."""


@dataclass(frozen=True, eq=False)
class Runs:
    """A function of a package. program: where it is in an instance. arguments: how many arrays it takes. bindings: rows
    of a place in the instance, an argument, bytes that are added. status: where its status words are; first: for each
    of them what is added to it, to be the number of a message."""

    name: str
    program: int
    arguments: int
    bindings: np.ndarray
    status: int
    first: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Image:
    """The memory of an instance as `package.ll` makes it. nbytes: of which the first `cleared` are 0 but for `words`:
    rows of a place, a base, what is added. functions: symbols of the bases from `FIRST_FUNCTION` on. head: what a file
    of parameters begins with."""

    name: str
    threads: int
    nbytes: int
    cleared: int
    team: int
    words: np.ndarray
    functions: tuple[str, ...]
    constants: bytes
    head: bytes
    parameters: tuple[int, ...]
    runs: tuple[Runs, ...]
    messages: tuple[str, ...]


FIRST_FUNCTION = 3
"""The base that is the first function."""


def build_package(kernels: Sequence[Lowered], target: Target, image: Image) -> bytes:
    """The library, as the bytes of its file; its SONAME is that of the package."""
    groups: list[Sequence[Lowered]] = []
    for shared in (False, True):
        alike = [k for k in kernels if k.is_shared == shared]
        groups += [alike[n : n + _GROUP] for n in range(0, len(alike), _GROUP)]
    with ThreadPoolExecutor(available_cores(), "neoflow-build") as pool:
        compiled = list(pool.map(lambda group: object_file(compiled_kernels(group, target)), groups))
    return link([assembled(package_source(image)), team_object(), *compiled], f"libnf_{image.name}.so")


def package_source(image: Image) -> str:
    """LLVM IR of what a C program calls."""
    text = files("neoflow.codegen.cpu").joinpath("package.ll").read_text()
    values = {
        "INSTANCE_BYTES": image.nbytes,
        "CLEARED_BYTES": image.cleared,
        "WORD_COUNT": len(image.words),
        "TEAM_AT": image.team,
        "THREADS": image.threads,
        "PARAMETER_COUNT": len(image.parameters),
        "MESSAGE_COUNT": len(image.messages),
    }
    for word, value in values.items():
        text = text.replace(word, str(value))
    bases = ["null", "null", "@NAME_constants", *(f"@{f}" for f in image.functions)]
    known = ("nf_team_run", "nf_team_worker", "nf_team_end")
    lines = [f"declare void @{f}(ptr, i32, i32, i32)" for f in image.functions if f not in known]
    lines += [
        f"@head = internal constant {content(image.head)}",
        f"@NAME_constants = constant {content(image.constants)}, align 64",
        numbers("words", "i64", image.words.reshape(-1).tolist()),
        numbers("places", "i64", image.parameters),
        pointers("bases", bases),
        *(words(f"message_{n}", m) for n, m in enumerate(image.messages)),
        pointers("messages", [f"@message_{n}" for n in range(len(image.messages))]),
        *(line for n, run in enumerate(image.runs) for line in _function(n, run)),
    ]
    return (text + "\n".join(lines) + "\n").replace("NAME_", f"{image.name}_")


def _function(number: int, run: Runs) -> list[str]:
    """The data of a function, and the C function."""
    fields = (
        f"i64 {run.program}, i64 {run.arguments}, ptr @bindings_{number}, i64 {len(run.bindings)}, "
        f"i64 {run.status}, i64 {len(run.first)}, ptr @first_{number}"
    )
    return [
        numbers(f"bindings_{number}", "i64", run.bindings.reshape(-1).tolist()),
        numbers(f"first_{number}", "i32", run.first),
        f"@runs_{number} = internal constant {{ i64, i64, ptr, i64, i64, i64, ptr }} {{ {fields} }}",
        *c_function(run.name, run.arguments, f"runs_{number}"),
    ]
