"""LLVM IR of packages as text: their data, and the C functions that hand an array of pointers on."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import tvm

from neoflow.codegen.cpu.compile import object_file


def assembled(text: str) -> bytes:
    """The object file of LLVM IR."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "package.ll")
        path.write_text(text)
        return object_file(tvm.runtime.load_module(str(path)))


def content(data: bytes) -> str:
    """Bytes, as a value."""
    digits = "\\" + data.hex("\\") if data else ""
    return f'[{len(data)} x i8] c"{digits}"'


def words(name: str, text: str) -> str:
    """A string of C."""
    return f"@{name} = internal constant {content(text.encode() + bytes(1))}"


def numbers(name: str, kind: str, values: Sequence[int]) -> str:
    """An array of numbers of a type."""
    return f"@{name} = internal constant [{len(values)} x {kind}] [{', '.join(f'{kind} {v}' for v in values)}]"


def pointers(name: str, values: Sequence[str]) -> str:
    """An array of addresses."""
    return f"@{name} = internal constant [{len(values)} x ptr] [{', '.join(f'ptr {v}' for v in values)}]"


def c_function(name: str, count: int, described: str) -> list[str]:
    """The exported function of an instance and so many arrays: `run_function` of them all, as a constant describes."""
    lines = [
        f"define i32 @NAME_{name}({', '.join(['ptr %m', *(f'ptr %a{n}' for n in range(count))])}) {{",
        f"  %arguments = alloca [{max(count, 1)} x ptr]",
    ]
    for n in range(count):
        lines.append(f"  %p{n} = getelementptr ptr, ptr %arguments, i64 {n}")
        lines.append(f"  store ptr %a{n}, ptr %p{n}")
    lines.append(f"  %r = call i32 @run_function(ptr %m, ptr @{described}, ptr %arguments)")
    return [*lines, "  ret i32 %r", "}"]
