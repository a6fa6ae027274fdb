"""What a register tile reads beside its sums, and writes, fetched before it begins: it is there when the sums are."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.cpu.parts import Env
from neoflow.codegen.cpu.tiling import Panel, Panels, Rows
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr
from neoflow.loops.tile import places_beside

LINE_BYTES = 64


@dataclass(frozen=True)
class Place:
    """Memory of an element type and an address of it for a point of the outputs."""

    memory: tirx.Buffer
    address: Expr
    element: str
    is_written: bool


def places_of(frame: Frame, m: tuple[Axis, ...], n: tuple[Axis, ...]) -> list[Place]:
    """The outputs, where they are stored into the caches, and what they read at points that differ along M and N."""
    stored = [] if frame.is_streamed else list(zip(frame.nest.outputs, frame.outputs, strict=True))
    found = [Place(memory, address, value.dtype, True) for (_, address, value), memory in stored]
    values = tuple(value for _, _, value in frame.nest.outputs)
    reads = places_beside(values, m, n)
    return found + [Place(frame.inputs[r.slot], r.indices[0], r.dtype, False) for r in reads]


class Beside:
    """The lines of a tile in each of these places: along N, or along M where the tile is written turned."""

    def __init__(self, frame: Frame, panels: Panels, m: tuple[Axis, ...], is_turned: bool):
        self.frame, self.panels, self.is_turned = frame, panels, is_turned
        self.places = places_of(frame, m, panels.n)

    def fetch(self, env: Env, rows: Rows, panel: Panel) -> list:
        """Fetch the tile at `env`."""
        return self._along_m(env, rows, panel) if self.is_turned else self._along_n(env, rows, panel)

    def _along_n(self, env: Env, rows: Rows, panel: Panel) -> list:
        out: list = []
        step = self._step()
        ends = [self.panels.place(out, panel, emit.integer(n)) for n in _ends(panel.valid, step)]

        def row(at: Env, _: emit.Value) -> list:
            return [s for end in ends for s in self._fetched({**at, **end})]

        return out + rows.each(env, row)

    def _along_m(self, env: Env, rows: Rows, panel: Panel) -> list:
        line = rows.inner[-1].extent if rows.inner else rows.steps
        offsets, step = rows.offsets(), self._step()
        chosen = [offsets[begin + n] for begin in range(0, len(rows), line) for n in _ends(line, step)]

        def column(n: emit.Value) -> list:
            body: list = []
            place = self.panels.place(body, panel, n)
            for offset in chosen:
                at = {**env, **{a: env[a] + emit.integer(steps) for a, steps in offset.items()}}
                body += self._fetched({**at, **place})
            return body

        return emit.loop(panel.valid, column, "c")

    def _step(self) -> int:
        """Points of a line of memory, of the widest type."""
        return LINE_BYTES // max(dt.itemsize(p.element) for p in self.places)

    def _fetched(self, env: Env) -> list:
        out: list = []
        for place in self.places:
            ev = self.frame.evaluator(env)
            address = ev.index(place.address)
            out += [*ev.statements, emit.prefetch(place.memory, address, place.is_written)]
        return out


def _ends(count: int, step: int) -> list[int]:
    """Points of a stretch of which one is in each line of memory that it touches."""
    return sorted({*range(0, count, step), count - 1})
