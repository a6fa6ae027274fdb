"""What a lowering for a GPU gives: launches one after the other, and the scratch between them.

The threads of a block are numbered along x alone, and so are the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.architectures import ACCESS_BYTES
from neoflow.codegen.gpu.words import words
from neoflow.codegen.tir import emit

Value = emit.Value


@dataclass(frozen=True)
class Grid:
    """`body(block, thread)` by every thread of every block. shared_bytes: dynamic shared memory of a block.

    reads_back: memory of the GPU from which threads read what others of their block have written, after a barrier.
    """

    blocks: int
    threads: int
    body: Callable[[Value, Value], list]
    shared_bytes: int = 0
    reads_back: tuple[tirx.Buffer, ...] = ()


@dataclass(frozen=True)
class Grids:
    """The launches of a kernel in order, and memory that they share."""

    grids: tuple[Grid, ...]
    scratch: tuple[tirx.Buffer, ...] = ()


def shared(size: int, element: str, name: str, alignment: int = ACCESS_BYTES) -> tirx.Buffer:
    """A buffer of the threads of a block."""
    return emit.buffer(size, element, name, alignment, "shared")


def dynamic(size: int, element: str, name: str, alignment: int = ACCESS_BYTES) -> tirx.Buffer:
    """The same of any size, which a launch asks for: one piece of memory a kernel, whatever its names.

    A source may have one name of only one type.
    """
    return emit.buffer(size, element, f"{name}_{element}", alignment, "shared.dyn")


def called(name: str, *args: Value) -> ts.Stmt:
    """A function of the kernel's language, for what it does."""
    return ts.Evaluate(tirx.call_extern("void", name, *args))


def barrier() -> ts.Stmt:
    """All threads of the block wait for each other, and see what each has stored before."""
    return words().barrier()


def warp_barrier() -> ts.Stmt:
    """The same for the threads of a warp."""
    return words().warp_barrier()


def statements(grid: Grid) -> ts.Stmt:
    """What a kernel's function does."""
    block, thread = tirx.Var("block", "int32"), tirx.Var("thread", "int32")
    body = emit.sequence(grid.body(block, thread))
    return _bound(block, "blockIdx.x", grid.blocks, _bound(thread, "threadIdx.x", grid.threads, body))


def _bound(variable: tirx.Var, tag: str, extent: int, body: ts.Stmt) -> ts.Stmt:
    """The variable is the index of this tag: IterVar type 1 is a thread index."""
    axis = tirx.IterVar(tvm.ir.Range(0, extent), variable, 1, tag)
    return ts.AttrStmt(axis, "thread_extent", emit.integer(extent), body)


def divided(x: Value, by: int) -> tuple[Value, Value]:
    """Quotient and remainder of what is not negative."""
    return tirx.truncdiv(x, emit.integer(by)), tirx.truncmod(x, emit.integer(by))
