"""From a subgraph and a schedule to TIR functions for a GPU: one for each launch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.tirx import stmt as ts

from neoflow.architectures import ACCESS_BYTES
from neoflow.code import Code, Entry, Workspace
from neoflow.codegen.gpu.grid import Grids, statements
from neoflow.codegen.gpu.templates import LOWERINGS
from neoflow.codegen.gpu.words import DIALECTS
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.dialect import speaking
from neoflow.codegen.tir.frame import Buffers
from neoflow.loops import Schedule, problem_of
from neoflow.partition.overwrite import is_shared
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target


@dataclass(frozen=True, eq=False)
class Lowered:
    """A kernel before compilation.

    code: how it will be launched. functions: a TIR function of pointers for each entry, by name. is_shared: whether an
    output may be the memory of an input that another output needs.
    """

    name: str
    code: Code
    functions: tuple[tuple[str, tirx.PrimFunc], ...]
    is_shared: bool

    def text(self) -> str:
        """TIR script."""
        return "\n".join(function.script() for _, function in self.functions)

    def named(self, name: str) -> Lowered:
        """The same kernel under another name."""

        def renamed(symbol: str) -> str:
            return name + symbol.removeprefix(self.name)

        entries = tuple(e._replace(symbol=renamed(e.symbol)) for e in self.code.entries)
        functions = tuple((renamed(n), f.with_attr("global_symbol", renamed(n))) for n, f in self.functions)
        return Lowered(name, self.code._replace(entries=entries), functions, self.is_shared)


def lower(subgraph: Subgraph, schedule: Schedule, target: Target, name: str) -> Lowered:
    """The kernel of `subgraph` by `schedule`, which is legal.

    Its functions' names begin with `name`. Inputs and outputs are dense and begin at multiples of 16 bytes. An output
    may be the memory of an input, where `partition.overwrite` allows it.
    """
    inputs = {n: emit.buffer(math.prod(v.shape), v.dtype, f"in{n}") for n, v in enumerate(subgraph.inputs)}
    values = [subgraph.lying(o) for o in subgraph.outputs]
    outputs = tuple(emit.buffer(math.prod(v.shape), v.dtype, f"out{n}") for n, v in enumerate(values))
    faults = emit.Faults()
    with speaking(DIALECTS[target.kind]):
        grids = LOWERINGS[schedule.template](problem_of(subgraph), schedule, Buffers(target, inputs, outputs, faults))
        return assemble(name, grids, (*inputs.values(), *outputs), is_shared(subgraph), faults)


def assemble(name: str, grids: Grids, arguments: tuple[tirx.Buffer, ...], shared: bool, faults: emit.Faults) -> Lowered:
    """The functions of a kernel's launches."""
    written = [statements(g) for g in grids.grids]  # which also finds the faults
    status = (faults.status,) if faults.found else ()
    buffers = (*arguments, *grids.scratch, *status)
    functions, entries = [], []
    for n, (grid, body) in enumerate(zip(grids.grids, written, strict=True)):
        symbol = f"{name}_{n}"
        function = _function(symbol, buffers, body, shared)
        changing = [m for m, b in enumerate(buffers) if any(b is read for read in grid.reads_back)]
        functions.append((symbol, function.with_attr(CHANGING, changing) if changing else function))
        entries.append(Entry(symbol, grid.blocks, True, grid.threads, grid.shared_bytes))
    spaces = tuple(Workspace(emit.nbytes(b), is_shared=True) for b in grids.scratch)
    return Lowered(name, Code(tuple(entries), spaces, faults.found), tuple(functions), shared)


def _function(name: str, buffers: tuple[tirx.Buffer, ...], body: ts.Stmt, shared: bool) -> tirx.PrimFunc:
    """A kernel of pointers; `shared`: two of them may be the same memory."""
    pointers = [tirx.Var(b.name, PointerType(PrimType(str(b.ty.dtype)), "global")) for b in buffers]
    views = [ts.DeclBuffer(b, data=p) for b, p in zip(buffers, pointers, strict=True)]
    whole = emit.sequence([*views, body])
    for pointer in pointers:  # LLVM's code splits vectors whose address may be any
        whole = ts.AttrStmt(pointer, "storage_alignment", emit.integer(ACCESS_BYTES), whole)
    function = tirx.PrimFunc(pointers, whole).with_attr("global_symbol", name)
    function = function.with_attr("tirx.noalias", not shared).with_attr("calling_conv", _KERNEL)
    return function.with_attr("tirx.is_global_func", True)


CHANGING = "neoflow.changing"
"""Of a function: which of its pointers lead to memory that other threads change while it runs. Where a pointer alone
leads to its memory nothing can do so, says a compiler, and reads ahead of a barrier what is written before it."""
_KERNEL = 2
"""TVM's calling convention of what a host launches."""
