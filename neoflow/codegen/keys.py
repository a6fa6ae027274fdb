"""What compiled kernels are found by: hashes of everything they are made from. Pure; loads no compiler.

    request  subgraph, schedule, target, and the source files and packages that lowering follows from
       |     known without lowering anything; any edit of those files makes a new one
    kernel   what was lowered, the processor, and what turns it into machine code (TVM, LLVM, the passes, the linker)
             known after lowering; an edit that changes no code of a subgraph and schedule compiles nothing again

The cache leads from a request to its kernel, and from a kernel to its code.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

FOLLOWED = (
    "text",
    "expr",
    "graph",
    "partition",
    "loops",
    "codegen",
    "kernel.py",
    "code.py",
    "plain.py",
    "target.py",
    "architectures.py",
    "dtype.py",
    "caller.py",
    "verdict.py",
)
"""Packages and files of neoflow that a kernel's text follows from."""
VERSIONS = ("apache-tvm", "apache-tvm-ffi", "python-flint", "islpy", "numpy")
"""Distributions that it follows from."""


def digest(*parts: str) -> str:
    """SHA-256 of parts, which do not run into each other."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode()
        found.update(f"{len(data)}:".encode())
        found.update(data)
    return found.hexdigest()


@cache
def compiler_digest() -> str:
    """What lowering follows from: every byte of the source files, and the versions of packages. Once a process."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = [os.path.join(root, name) for name in FOLLOWED if name.endswith(".py")]
    for name in FOLLOWED:
        for folder, _, names in os.walk(os.path.join(root, name)):
            files += [os.path.join(folder, n) for n in names if n.endswith((".py", ".ll"))]
    found = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        found.update(f"{path[len(root) :]} {len(data)}:".encode())
        found.update(data)
    return digest(found.hexdigest(), *(f"{name} {version(name)}" for name in VERSIONS))


def request_key(subgraph: str, schedule: str, target: str) -> str:
    """Of a kernel to be: the digest of its subgraph, its schedule as JSON, its target as text."""
    return digest("request", subgraph, schedule, target, compiler_digest())


def usual_key(subgraph: str, target: str) -> str:
    """Of the default schedule of a subgraph, by its digest, for a target as text: it follows from the same files."""
    return digest("usual", subgraph, target, compiler_digest())


def kernel_key(text: str, machine: str, toolchain: str) -> str:
    """Of lowered text, under a name that all kernels share; of the processor it is compiled for, and by what."""
    return digest("kernel", text, machine, toolchain)


class _WithoutText(ast.NodeTransformer):
    """Drops strings that stand alone: docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def program_digest(files: Iterable[Path]) -> str:
    """Of Python files as programs: comments, docstrings and layout do not count, nor the folders they lie in."""
    trees = ((p.name, _WithoutText().visit(ast.parse(p.read_text()))) for p in sorted(files))
    return digest(*(f"{name}\n{ast.dump(tree)}" for name, tree in trees))
