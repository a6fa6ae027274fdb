"""The launch of the `gpu_rows` template; see `loops.gpu.rows`."""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import tirx

from neoflow.architectures import WARP
from neoflow.codegen.gpu.grid import Grid, Grids, barrier, dynamic, shared, warp_barrier
from neoflow.codegen.gpu.teams import Team
from neoflow.codegen.gpu.terms import Terms
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.frame import Buffers, Frame, points
from neoflow.codegen.tir.reducers import Reducer
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read, Reduce, Slot, postorder, rewrite
from neoflow.loops import costs
from neoflow.loops.gpu.rows import dynamic_bytes, fused, local, members, nest_lanes, offsets, steps, stride
from neoflow.loops.nest import Nest, is_data_dependent
from neoflow.loops.row_nests import RowNest
from neoflow.loops.rows import RowProblem, nests
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_rows(problem: RowProblem, schedule: Schedule, buffers: Buffers) -> Grids:
    """One launch."""
    return _Lowering(problem, schedule, buffers).grids()


class _Lowering:
    def __init__(self, problem: RowProblem, schedule: Schedule, buffers: Buffers):
        self.problem, self.schedule, self.given = problem, schedule, buffers
        self.threads, self.size = int(schedule["threads"]), int(schedule["team"])
        self.rows = costs.points(problem.axes)
        self.in_shared = schedule["place"] == "shared"
        self.teams = self.threads // self.size
        self.copy = Axis(-1, self.teams if self.in_shared else self.rows, "copy")
        self.dynamic_bytes = dynamic_bytes(problem, schedule)
        self.between = {n.number: n for n in local(problem, schedule)}
        starts = zip(self.between.values(), offsets(problem, schedule), strict=False)
        self.first = {n.number: at // dt.itemsize(n.dtype) if self.dynamic_bytes else 0 for n, at in starts}
        """where a nest's rows begin: all that a launch asks for is one piece of memory, under a name for each"""
        self.local = {n.number: self._buffer(n) for n in self.between.values()}

    def _buffer(self, nest: RowNest) -> tirx.Buffer:
        size, name = self._size(nest), f"row{nest.number}"
        if self.in_shared:
            return (dynamic if self.dynamic_bytes else shared)(size, nest.dtype, name)
        return emit.buffer(size, nest.dtype, name, 64)

    def _size(self, nest: RowNest) -> int:
        """Elements up to the end of a nest's rows."""
        return self.first[nest.number] + self.copy.extent * stride(nest)

    def grids(self) -> Grids:
        outputs = dict(zip(self.problem.outputs, self.given.outputs, strict=True))
        everything = {**self.given.inputs, **outputs, **self.local}
        wait = barrier if self.size > WARP else warp_barrier

        def body(block: Value, thread: Value) -> list:
            out: list = [emit.on_stack(b) for b in self.local.values()] if self.in_shared else []
            team = Team(thread, self.threads, self.size)
            row = emit.bind(out, block * emit.integer(self.teams) + team.place, "row")
            active = True if self.rows % self.teams == 0 else row < emit.integer(self.rows)
            env = dict(
                zip(self.problem.axes, emit.digits(out, row, [a.extent for a in self.problem.axes]), strict=True)
            )
            env[self.copy] = team.place if self.in_shared else row
            own = self._first_of_row(out, env)
            unsettled = frozenset(self.problem.outputs if self.rows > 1 else ())
            for n, nest in enumerate(nests(self.problem, self.schedule)):
                inside = Buffers(self.given.target, everything, (everything[nest.number],), self.given.faults)
                frame = inside.frame(self._placed(fused(nest), nest), env, own)
                starts = {number: own[number] for number in self.between}
                frame = replace(frame, starts=starts, unsettled=unsettled)
                out += [wait()] if n and self.size > 1 else []
                out += (
                    self._map(frame, team, active)
                    if frame.nest.reduction is None
                    else self._reduce(frame, active, thread)
                )
            return out

        scratch = () if self.in_shared else tuple(self.local.values())
        blocks = math.ceil(self.rows / self.teams)
        read_back = self._read_back(everything)
        return Grids((Grid(blocks, self.threads, body, self.dynamic_bytes, read_back),), scratch)

    def _read_back(self, everything: dict[int, tirx.Buffer]) -> tuple[tirx.Buffer, ...]:
        """Where a member reads from the GPU's memory what another one has written."""
        if self.size == 1:
            return ()
        written = dict.fromkeys((*self.problem.outputs, *(() if self.in_shared else self.between)))
        stored = (fused(n) for n in nests(self.problem, self.schedule))
        nodes = (node for nest in stored for e in nest.expressions for node in postorder(e))
        read = {node.slot for node in nodes if isinstance(node, Read)}
        return tuple(everything[n] for n in written if n in read)

    def _first_of_row(self, out: list, env: dict[Axis, Value]) -> dict[int, Value]:
        """Where a team's row begins in what rows write, and in what may lie in the same place: nobody else writes what
        is read there in vain."""
        copy = env[self.copy]
        found = {n: copy * emit.integer(stride(b)) + emit.integer(self.first[n]) for n, b in self.between.items()}
        inside = Evaluator({}, env)
        for number, buffer in zip(self.problem.outputs, self.given.outputs, strict=True):
            first = inside.index(self.problem.first_of_row(number))
            alike = [n for n, b in self.given.inputs.items() if int(b.ty.shape[0]) == int(buffer.ty.shape[0])]
            found |= {n: first for n in (number, *alike) if n not in found}
        return {n: emit.bind(out, value, "own") for n, value in found.items()}

    def _placed(self, nest: Nest, of: RowNest) -> Nest:
        """The nest with the buffers of the row's own team, or row."""

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Read) or not node.indices or node.slot not in self.between:
                return None
            if is_data_dependent(node):
                return None
            source = self.between[node.slot]
            written = self._size(source) - stride(source) + source.size  # a read that may leave it is guarded
            slot = Slot(node.slot, (written,), node.dtype)
            return Read(slot, (self._address(node.indices[0], source),))

        [(number, address, value)] = nest.outputs
        address = address if of.is_output else self._address(address, of)
        reduction = nest.reduction
        if reduction is not None:
            reduction = Reduce(reduction.op, reduction.axes, rewrite(reduction.body, rule))
        return replace(nest, reduction=reduction, outputs=((number, address, rewrite(value, rule)),))

    def _address(self, address: Expr, source: RowNest) -> Expr:
        terms, constant = affine.linear(address)
        rows: dict[Expr, int] = {self.copy: stride(source)} if self.copy.extent > 1 else {}
        return affine.simplify(affine.from_linear(({**rows, **terms}, constant + self.first[source.number])))

    def _map(self, frame: Frame, team: Team, active: Value | bool) -> list:
        """Every vector of points by a member."""
        axes, lanes = list(frame.nest.axes), nest_lanes(frame.nest, self.schedule)
        if not axes:
            return emit.when(active, team.each(1, lambda _: frame.write({})))
        column = Axis(-2, axes[-1].extent // lanes, "column")

        def vector(env: dict[Axis, Value]) -> list:
            here = {**env, axes[-1]: env[column] * emit.integer(lanes)}
            return frame.write(here, axes[-1] if lanes > 1 else None, lanes)

        total = steps(frame.nest, self.schedule)
        return emit.when(active, team.each(total, lambda n: points([*axes[:-1], column], n, vector)))

    def _reduce(self, frame: Frame, active: Value | bool, thread: Value) -> list:
        """Every output by some members."""
        nest, reduction = frame.nest, frame.nest.reduction
        assert reduction is not None
        lanes, axes = nest_lanes(nest, self.schedule), list(reduction.axes)
        if axes:
            axes[-1] = Axis(-2, axes[-1].extent // lanes, "vector")
        terms = Terms(frame, Reducer(reduction), tuple(axes), lanes, along_output=False)
        part = Team(thread, self.threads, members(nest, self.schedule))
        groups, outputs = self.size // part.size, costs.points(nest.axes)

        def one(r: Value) -> list:
            out: list = []
            n = r * emit.integer(groups) + tirx.truncmod(part.place, emit.integer(groups))
            n = emit.bind(out, n, "output")
            there = _both(active, True if outputs % groups == 0 else n < emit.integer(outputs))
            env = dict(zip(nest.axes, emit.digits(out, n, [a.extent for a in nest.axes]), strict=True))
            state = terms.state(1)
            total = steps(nest, self.schedule)
            if part.size == 1:
                taken = terms.nested(env, state)
            else:
                taken = terms.shared(part, emit.integer(0), total, None, state, terms.taker(env), 1)
            out += [*state.allocate(), *emit.when(there, taken)]
            out += terms.one(state)

            def finish(values: list[list[Value]]) -> list:
                return frame.write(env, result=terms.reducer.result(values[0]))

            return out + part.merged(terms.reducer, state, 1, finish, there)

        return emit.loop(math.ceil(outputs / groups), one, "round")


def _both(a: Value | bool, b: Value | bool) -> Value | bool:
    if a is True or b is True:
        return b if a is True else a
    return tirx.And(a, b)
