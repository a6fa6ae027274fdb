"""Loops that add to accumulators, at most `BLOCK` terms to one before it is added to another.

    for i in 2^20:             for block in 2^11:
        acc += term[i]    ->       own = 0
                                   for i in 2^9: own += term[512 block + i]
                                   acc += own

and the loop over blocks in blocks in turn: no number takes more than `BLOCK` roundings a level, of which there are
log(n) / log(BLOCK). The innermost loop is the one there was; a sum of `BLOCK` terms or fewer has its loops unchanged.

Source: Higham, The Accuracy of Floating Point Summation, 1993, section 3 (blocked sums).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.expr.functions import BLOCK

Value = emit.Value
Leaf = Callable[[emit.Registers, list[Value]], list]
"""Takes the accumulators to add to and where each loop is."""


@dataclass(frozen=True)
class Loop:
    """`length` steps, `most` at most when that is not known now."""

    length: int | Value
    most: int

    @classmethod
    def of(cls, extents: Sequence[int]) -> list[Loop]:
        return [cls(n, n) for n in extents]


def in_blocks(
    loops: Sequence[Loop],
    acc: emit.Registers,
    leaf: Leaf,
    unroll: int = 1,
    terms: int = 1,
    before: Callable[[], list] = list,
    after: Callable[[emit.Registers], list] = lambda _: [],
) -> list:
    """`leaf` under the loops, the first one outermost, adding to `acc`.

    unroll: steps of the innermost loop that are written out. terms: how many the leaf adds to an accumulator. before:
    what is done before the accumulators of a block are cleared; after: before they are read.
    """
    limit = max(1, BLOCK // terms)
    if math.prod(loop.most for loop in loops) <= limit:
        return [*under(loops, lambda at: leaf(acc, at), unroll), *after(acc)]
    place, points = len(loops) - 1, 1
    while points * loops[place].most <= limit:
        points *= loops[place].most
        place -= 1
    cut, step = loops[place], _step(loops[place], limit // points)

    def block(total: emit.Registers, at: list[Value]) -> list:
        first = at[-1] * emit.integer(step)
        own = emit.Registers(acc.count, acc.element, acc.lanes)
        inner = [_part(cut, step, first), *loops[place + 1 :]]

        def inside(to: emit.Registers, within: list[Value]) -> list:
            return leaf(to, [*at[:-1], first + within[0], *within[1:]])

        body = under(inner, lambda within: inside(own, within), unroll)
        return [
            *before(),
            *cleared(own),
            *body,
            *after(own),
            *(total.put(n, total.get(n) + own.get(n)) for n in range(own.count)),
        ]

    blocks = Loop(_ceil(cut.length, step), math.ceil(cut.most / step))
    return in_blocks([*loops[:place], blocks], acc, block, before=before)


def merged(steps: int) -> int:
    """How many terms `steps` of a loop come to at its accumulators: blocks, where there are many."""
    while steps > BLOCK:
        steps = math.ceil(steps / BLOCK)
    return steps


def cleared(acc: emit.Registers) -> list:
    """Accumulators of 0."""
    return [*acc.allocate(), *(acc.put(n, emit.splat(0.0, acc.element)) for n in range(acc.count))]


def _step(loop: Loop, most: int) -> int:
    """Steps of a block: blocks of one length if one not much shorter than the longest divides the loop."""
    if not isinstance(loop.length, int):
        return most
    blocks = math.ceil(loop.most / most)
    even = next((n for n in range(blocks, 2 * blocks) if loop.most % n == 0), blocks)
    return math.ceil(loop.most / even)


def _part(loop: Loop, step: int, first: Value) -> Loop:
    """The steps of a block that begins at `first`."""
    if isinstance(loop.length, int) and loop.length % step == 0:
        return Loop(step, step)
    length = emit.integer(loop.length) if isinstance(loop.length, int) else loop.length
    return Loop(tirx.Min(emit.integer(step), length - first), step)


def _ceil(length: int | Value, step: int) -> int | Value:
    if isinstance(length, int):
        return math.ceil(length / step)
    return tirx.truncdiv(length + emit.integer(step - 1), emit.integer(step))


def under(loops: Sequence[Loop], body: Callable[[list[Value]], list], unroll: int = 1) -> list:
    """`body` of where each loop is, under the loops; `unroll` steps of the innermost one are written out, or all of it
    where it is not longer.

        for i in 9: body(i)    ->    for i in 4: body(2 i); body(2 i + 1)
                                     body(8)
    """
    if not loops:
        return body([])
    first, *rest = loops
    if not rest and isinstance(first.length, int):
        turns, left = divmod(first.length, unroll)
        if turns <= 1:
            return _written_out(body, emit.integer(0), first.length)
        done = emit.integer(turns * unroll)
        inside = emit.loop(turns, lambda i: _written_out(body, i * emit.integer(unroll), unroll), "k")
        return [*inside, *_written_out(body, done, left)]
    return emit.loop(first.length, lambda i: under(rest, lambda at: body([i, *at]), unroll), "k")


def _written_out(body: Callable[[list[Value]], list], first: Value, steps: int) -> list:
    return [s for n in range(steps) for s in body([first + emit.integer(n)])]
