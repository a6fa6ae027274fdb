"""What a map reads across its lanes, or writes so, is turned in squares of shared memory.

    y[i, j] = f(x[j, i])        turn = "reads":    square[i, j] = x[j, i], neighbours along i;  barrier
                                                   y[i, j] = f(square[i, j]), neighbours along j
                                turn = "outputs":  square[i, j] = f(x[j, i]), neighbours along i;  barrier
                                                   y[i, j] = square[i, j], neighbours along j

Elements of a square take a word of 4 or 8 bytes. As many threads as shared memory serves at a time (`banks`: 32 of 4
bytes, 16 of 8) go over banks x lanes points, and a line is one element longer than a multiple of banks: so along the
lines as across them the elements touched at a time are lanes * t + c from the first one, t < banks / lanes and
c < lanes, in as many banks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops.gpu import blocks
from neoflow.loops.gpu.limits import STATIC_BYTES
from neoflow.loops.knob import INDEX, NUMBER, WORD, Chosen, Knob, Range, one
from neoflow.loops.map import written
from neoflow.loops.nest import Nest, input_reads, is_data_dependent, stride
from neoflow.loops.problem import TURNED, NestProblem, is_turnable, nbytes
from neoflow.target import Target

TURNS = ("no", "reads", "outputs")
SIDES = (32, 64)
USUAL_SIDE = 32
"""Lines of 128 bytes of float32 are whole in both directions, and eight blocks take 34 KiB."""
LEAST_SIDE = 16
"""Points of an axis from which the default turns along it: of shorter ones most of a square would be empty, and what a
warp reads across them stays in the first cache until its neighbours are read."""
BANK_BYTES = 128
"""What shared memory serves at a time."""


@dataclass(frozen=True)
class Square:
    """side x side elements, in accesses of `lanes`; word: bytes of the widest element of a kernel's squares.

    What holds for 16 threads of 8 bytes holds for 32 of 4: these are two neighbouring patches.
    """

    side: int
    lanes: int
    word: int

    @property
    def banks(self) -> int:
        """Threads that shared memory serves at a time, and the elements of a line that they go along."""
        return BANK_BYTES // self.word

    @property
    def pitch(self) -> int:
        """Elements from a line to the next one."""
        return self.side + 1

    @property
    def accesses(self) -> int:
        return self.side * self.side // self.lanes


def square(nest: Nest, k: Chosen) -> Square:
    """Of a block."""
    return Square(int(k["side"]), int(k["lanes"]), max(word_bytes(e.dtype) for e in turned(nest, k)))


def word_bytes(dtype: str) -> int:
    """Bytes that an element takes in a square."""
    return max(4, dt.itemsize(dtype))


def turned(nest: Nest, k: Chosen) -> tuple[Expr, ...]:
    """What lies in squares: reads, or what the outputs are."""
    if k["turn"] == "outputs":
        return tuple(dict.fromkeys(written(nest)))
    return turned_reads(nest, int(k["inner"])) if k["turn"] == "reads" else ()


def turned_reads(nest: Nest, inner: int) -> tuple[Read, ...]:
    """Reads that are contiguous along the axis at that position, stride along the last one and need no guard."""
    return tuple(r for r in _reads(nest) if is_turnable(r, nest.axes[-1], nest.axes[inner], _HELD))


_HELD = (*TURNED, "float16", "bfloat16")
"""Types that a register has as they are, or wider."""


def _reads(nest: Nest) -> list[Read]:
    return list(dict.fromkeys(r for e in written(nest) for r in input_reads(e)))


def tile_axes(nest: Nest, k: Chosen) -> tuple[Axis, ...]:
    """The axes that number the squares: those that are not turned, then the squares along the two that are."""
    inner, side = int(k["inner"]), int(k["side"])
    others = [a for n, a in enumerate(nest.axes[:-1]) if n != inner]
    both = (nest.axes[inner], nest.axes[-1])
    return (*others, *(Axis(-1 - n, math.ceil(a.extent / side), "square") for n, a in enumerate(both)))


# --- which axis, and what is turned


def _apart(nest: Nest, axis: Axis) -> list[Read]:
    """Reads at affine addresses that neighbours along the axis do not make together."""
    return [r for r in _reads(nest) if not is_data_dependent(r) and stride(r.indices[0], axis) not in (0, 1)]


def _positions(nest: Nest, turn: str) -> list[int]:
    """Of the axes before the last along which a read is contiguous that strides along the last one, and its squares
    have room."""
    if not nest.axes:
        return []
    apart = _apart(nest, nest.axes[-1])
    along = [n for n, a in enumerate(nest.axes[:-1]) if any(stride(r.indices[0], a) == 1 for r in apart)]
    return [n for n in along if 0 < _nbytes(nest, {"turn": turn, "inner": n}, SIDES[0]) <= STATIC_BYTES]


def _nbytes(nest: Nest, k: Chosen, side: int) -> int:
    return sum(side * Square(side, 1, 4).pitch * word_bytes(e.dtype) for e in turned(nest, k))


def _turn(p: NestProblem, _: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    found = p.memo.once(("turns", k["fuse"]), lambda: tuple(t for t in TURNS if t == "no" or _positions(nest, t)))
    return Range(found, "a read that strides along the last axis has to be contiguous along another, and unguarded")


def _usual(p: NestProblem, k: Chosen) -> tuple[str, int]:
    """What is turned along which axis: what leaves the fewest bytes read apart, then the fewest squares."""
    nest = p.fused(k)

    def cost(choice: tuple[str, int]) -> tuple[int, int]:
        turn, n = choice
        done = set(turned(nest, {"turn": turn, "inner": n}))
        left = _apart(nest, nest.axes[n if turn == "outputs" else -1])
        return nbytes(r for r in left if r not in done), len(done)

    def make() -> tuple[str, int]:
        if not nest.axes or nest.axes[-1].extent < LEAST_SIDE:
            return "no", -1
        found = [(t, n) for t in TURNS[1:] for n in _positions(nest, t) if nest.axes[n].extent >= LEAST_SIDE]
        return min([("no", -1), *found], key=cost)

    return p.memo.once(("usual turn", k["fuse"]), make)


def _inner(p: NestProblem, _: Target, k: Chosen) -> Range:
    if k["turn"] == "no":
        return one(-1, "nothing is turned")
    return Range(
        _positions(p.fused(k), str(k["turn"])), "the place of an axis along which what is turned is contiguous"
    )


def _usual_inner(p: NestProblem, target: Target, k: Chosen) -> int:
    turn, inner = _usual(p, k)
    return inner if turn == k["turn"] else max((int(n) for n in _inner(p, target, k).values), default=-1)


# --- squares


def turned_lanes(p: NestProblem, k: Chosen) -> Range:
    """Points of an access: whole ones along both axes of a square."""
    nest = p.fused(k)
    computed, other = nest.axes[-1], nest.axes[int(k["inner"])]
    if k["turn"] == "outputs":
        computed, other = other, computed
    found = blocks.whole_lanes(computed, nest.expressions, False)
    fitting = tuple(n for n in found.values if other.extent % int(n) == 0)
    return Range(fitting, f"{found.reason}; the other axis of the squares has {other.extent}")


def _side(p: NestProblem, _: Target, k: Chosen) -> Range:
    if k["turn"] == "no":
        return one(1, "nothing is turned")
    nest = p.fused(k)
    fitting = tuple(n for n in SIDES if _nbytes(nest, k, n) <= STATIC_BYTES)
    return Range(
        fitting, f"the squares of a block, {len(turned(nest, k))}, lie in {STATIC_BYTES} bytes of shared memory"
    )


def _usual_side(p: NestProblem, target: Target, k: Chosen) -> int:
    return max(int(n) for n in _side(p, target, k).values if int(n) <= USUAL_SIDE)


TURN: tuple[Knob[NestProblem], ...] = (
    Knob("turn", WORD, "what is turned in shared memory", _turn, lambda p, _, k: _usual(p, k)[0], TURNS),
    Knob("inner", INDEX, "the axis along which it is contiguous, or -1", _inner, _usual_inner),
)
SIDE: Knob[NestProblem] = Knob("side", NUMBER, "points of a square's side", _side, _usual_side)


def shared_bytes(p: NestProblem, k: Chosen) -> int:
    """Of a block."""
    return _nbytes(p.fused(k), k, int(k["side"]))
