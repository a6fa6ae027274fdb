"""Vectors of elements that lie apart, or several times the same: whole loads or stores, and one shuffle for each.

    a[2 i], i in [0, 16)         two loads of 16 neighbours, of which every second one is kept
    a[15 - i]                    one load, turned around
    a[(i + 1) // 2]              9 neighbours in two loads of 8, each kept twice
    a[2 i], a[2 i + 1] = b, c    two stores of 16 neighbours, each of two halves in turns

An address a lane costs a load and an insertion a lane instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.codegen.tir import emit
from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Const, Expr

Value = emit.Value

FARTHEST = 4
"""Elements from lane to lane up to which loading all of them costs less than an address a lane."""
FEWEST = 4
"""Lanes from which a shuffle pays."""


def is_near(address: Value) -> bool:
    """Whether the address is one of lanes a few elements apart, in either direction."""
    if not isinstance(address, tirx.Ramp) or emit.lanes_of(address) < FEWEST:
        return False
    step = int(address.stride.value)
    return step not in (0, 1) and abs(step) <= FARTHEST


@dataclass(frozen=True)
class Within:
    """What of a vector is there: the first lanes, all of them inside of memory; or lanes of which any may be outside.

    lanes: how many there are. size: elements of the memory that no load may leave, where that is to be looked at.
    """

    lanes: int
    size: int | None = None


def near_load(statements: list, source: tirx.Buffer, address: Value, within: Within) -> Value:
    """The lanes of an address that `is_near`; those that are not there have values of others."""
    step, lanes, there = int(address.stride.value), emit.lanes_of(address), within.lanes
    first = address.base if step > 0 else address.base + emit.integer(step * (there - 1))
    kept = [abs(step) * n for n in range(there)]
    kept = kept if step > 0 else kept[::-1]
    return _kept(statements, source, first, [*kept, *[kept[-1]] * (lanes - there)], within.size)


def repeated(address: Expr, axis: Axis, lanes: int, begins: int = 0) -> tuple[Expr, int, int] | None:
    """(the rest of it, divisor, phase) of an address with the term (axis + phase) // divisor; None for any other.

    A vector starts at a multiple of `begins`, or of its lanes where that is 0: the lane n has the element
    (n + phase) // divisor behind the rest.
    """
    terms, constant = affine.linear(address)
    with_axis = [atom for atom in terms if axis in atom.free]
    if len(with_axis) != 1 or lanes < FEWEST:
        return None
    [atom] = with_axis
    if not isinstance(atom, Apply) or atom.fn != "floordiv" or terms[atom] != 1:
        return None
    inside, divisor = atom.args
    if not isinstance(divisor, Const) or int(divisor.value) < 2 or lanes % int(divisor.value):
        return None
    by = int(divisor.value)
    if begins % by:
        return None
    parts, offset = affine.linear(inside)
    if set(parts) != {axis} or parts[axis] != 1:
        return None
    whole, phase = divmod(offset, by)
    rest = affine.from_linear(({a: c for a, c in terms.items() if a is not atom}, constant + whole))
    return affine.simplify(rest), by, phase


def repeated_load(
    statements: list,
    source: tirx.Buffer,
    first: Value,
    lanes: int,
    divisor: int,
    phase: int,
    within: Within,
) -> Value:
    """Lane n has source[first + (n + phase) // divisor]; those that are not there have values of others."""
    kept = [(min(n, within.lanes - 1) + phase) // divisor for n in range(lanes)]
    return _kept(statements, source, first, kept, within.size)


def _kept(statements: list, source: tirx.Buffer, first: Value, kept: Sequence[int], size: int | None) -> Value:
    """source[first + kept[n]] in lane n, 0 where that is behind or before a size that is given.

    Pieces of one width, a power of two, that begin and end with what is kept: none leaves what lies between.
    """
    least = min(kept)
    first = emit.bind(statements, first + emit.integer(least) if least else first, "first")
    kept = [place - least for place in kept]
    span, width = max(kept) + 1, 1
    while 2 * width <= min(span, len(kept)):
        width *= 2
    starts = [*range(0, span - width, width), span - width]
    indices = [emit.ramp(first + emit.integer(start), 1, width) for start in starts]
    pieces = emit.Registers(len(starts), str(source.ty.dtype), width, "piece")
    statements += pieces.allocate()
    whole = [pieces.put(n, emit.load(source, index)) for n, index in enumerate(indices)]
    if size is None:
        statements += whole
    else:  # at the first and last elements alone: all others pay for a comparison of two numbers
        edge: list = []
        for n, (start, index) in enumerate(zip(starts, indices, strict=True)):
            place = emit.narrow(emit.ramp(emit.integer(0), 1, width))
            before, behind = (emit.narrow(emit.integer(n) - first) for n in (-start, size - start))
            inside = tirx.And(place >= emit.widen(before, width), place < emit.widen(behind, width))
            edge.append(pieces.put(n, emit.masked_load(edge, source, index, inside)))
        all_inside = tirx.And(first >= emit.integer(0), first <= emit.integer(size - span))
        statements += emit.when(emit.expected(all_inside), whole, edge)
    lanes = []
    for place in kept:
        piece = min(place // width, len(starts) - 1)
        lanes.append(emit.integer(piece * width + place - starts[piece]))
    doubled = [pieces.get(n) for n in range(len(starts))] * -(
        -len(lanes) // (width * len(starts))
    )  # TVM: no more lanes than the pieces have
    return tirx.Shuffle(doubled, lanes)


def interleaved_stores(
    statements: list,
    target: tirx.Buffer,
    address: Value,
    values: Sequence[Value],
    mask: Value | None,
    store: Callable[[tirx.Buffer, Value, Value], ts.Stmt] = emit.store,
) -> list:
    """Stores of vectors the lanes of which lie in turns: vector n has target[address + n], and the address goes over
    the others from lane to lane. mask: the lanes that are there, the first ones. store: of whole vectors."""
    lanes, apart = emit.lanes_of(values[0]), len(values)
    there = lanes if mask is None else emit.first_lanes(mask)
    assert there is not None and isinstance(address, tirx.Ramp) and int(address.stride.value) == apart
    out: list = []
    for first in range(0, there * apart, lanes):
        places = range(first, first + lanes)
        order = [emit.integer(place % apart * lanes + place // apart) for place in places]
        piece = emit.bind(statements, tirx.Shuffle(list(values), order))
        index, left = emit.ramp(address.base + emit.integer(first), 1, lanes), there * apart - first
        if left >= lanes:
            out.append(store(target, index, piece))
        else:
            out.append(emit.masked_store(target, index, piece, emit.leading(left, lanes)))
    return out
