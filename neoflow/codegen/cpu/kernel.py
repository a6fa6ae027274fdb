"""From a subgraph and a schedule to TIR functions: one for each phase."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tvm import tirx
from tvm_ffi import structural_hash

from neoflow.code import Code, Entry, Workspace
from neoflow.codegen.cpu.entry import body_function, entry_source
from neoflow.codegen.cpu.templates import LOWERINGS
from neoflow.codegen.keys import digest
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.dialect import AVX512, CPU, speaking
from neoflow.codegen.tir.frame import Buffers
from neoflow.codegen.tir.phases import Phases
from neoflow.loops import Schedule, problem_of
from neoflow.partition.overwrite import is_shared
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target


@dataclass(frozen=True, eq=False)
class Lowered:
    """A kernel before compilation.

    code: how it will be called. bodies: a TIR function of pointers and a range of tasks for each entry, by name.
    entries: LLVM IR that calls them with an array of pointers. is_shared: whether an output may be the memory of an
    input that another output needs. source: a digest of the subgraph and the schedule it follows from, where it does.
    """

    name: str
    code: Code
    bodies: tuple[tuple[str, tirx.PrimFunc], ...]
    entries: str
    is_shared: bool
    source: str = ""

    def text(self) -> str:
        """TIR script."""
        return "\n".join(body.script() for _, body in self.bodies)

    def hashes(self) -> tuple[int, ...]:
        """Of each body, whatever its variables are called: 64 bits, in a twentieth of the time of its text."""
        return tuple(structural_hash(body) for _, body in self.bodies)

    def named(self, name: str) -> Lowered:
        """The same kernel under another name."""

        def renamed(symbol: str) -> str:
            return name + symbol.removeprefix(self.name)

        entries = tuple(e._replace(symbol=renamed(e.symbol)) for e in self.code.entries)
        bodies = tuple((renamed(n), f.with_attr("global_symbol", renamed(n))) for n, f in self.bodies)
        called = self.entries.replace(f"@{self.name}_", f"@{name}_")
        code = self.code._replace(entries=entries)
        return replace(self, name=name, code=code, bodies=bodies, entries=called)


def lower(subgraph: Subgraph, schedule: Schedule, target: Target, name: str) -> Lowered:
    """The kernel of `subgraph` by `schedule`, which is legal.

    Its functions' names begin with `name`. Inputs and outputs are dense, aligned to an element at least. An output may
    be the memory of an input, where `partition.overwrite` allows it.
    """
    inputs = {n: emit.buffer(math.prod(v.shape), v.dtype, f"in{n}") for n, v in enumerate(subgraph.inputs)}
    values = [subgraph.lying(o) for o in subgraph.outputs]
    outputs = tuple(emit.buffer(math.prod(v.shape), v.dtype, f"out{n}") for n, v in enumerate(values))
    faults = emit.Faults()
    with speaking(AVX512 if target.vector_bytes == 64 else CPU):
        phases = LOWERINGS[schedule.template](problem_of(subgraph), schedule, Buffers(target, inputs, outputs, faults))
        lowered = assemble(name, phases, (*inputs.values(), *outputs), is_shared(subgraph), faults)
    return replace(lowered, source=digest(subgraph.digest, schedule.to_json()))


def assemble(
    name: str, phases: Phases, arguments: tuple[tirx.Buffer, ...], shared: bool, faults: emit.Faults
) -> Lowered:
    """The functions of a kernel's phases."""
    bodies, entries = [], []
    written = [(p, emit.tasks(p.tasks, p.body)) for p in phases.phases]  # which also finds the faults
    status = (faults.status,) if faults.found else ()
    buffers = (*arguments, *(s.buffer for s in phases.scratch), *status)
    spaces = tuple(Workspace(emit.nbytes(s.buffer), s.is_shared) for s in phases.scratch)
    offsets = {len(arguments) + n: s.per_thread for n, s in enumerate(spaces) if not s.is_shared}
    found = []
    for n, (phase, statements) in enumerate(written):
        symbol = f"{name}_{n}"
        emit.integer(phase.tasks)
        body = f"{symbol}_body"
        bodies.append((body, body_function(body, buffers, statements, shared, phase.is_streamed)))
        entries.append(entry_source(symbol, body, len(buffers), offsets))
        found.append(Entry(symbol, phase.tasks, phase.is_parallel and phase.tasks > 1))
    return Lowered(name, Code(tuple(found), spaces, faults.found), tuple(bodies), "".join(entries), shared)
