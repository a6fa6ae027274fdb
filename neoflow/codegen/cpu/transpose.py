"""A square block turned in registers: vectors along one axis become vectors along another.

A read that strides along the lanes costs one load and one insertion an element.  Where it is contiguous along another
axis, a block of lanes x lanes is loaded whole and turned with log2(lanes) shuffles a vector instead.
"""

from __future__ import annotations

from tvm import tirx

from neoflow.codegen.tir import emit

Value = emit.Value


def turned_block(source: tirx.Buffer, base: Value, step: int, lanes: int, statements: list) -> list[Value]:
    """Vector i is source[base + i], source[base + i + step], ...: one for each i below `lanes`."""
    rows = [
        emit.bind(statements, emit.load(source, emit.ramp(base + emit.integer(n * step), 1, lanes)))
        for n in range(lanes)
    ]
    return turned(rows, statements)


def turned(rows: list[Value], statements: list) -> list[Value]:
    """As many vectors as they have lanes, turned: lane n of vector i is lane i of row n."""
    lanes, distance = len(rows), 1
    while distance < lanes:
        mixed = list(rows)
        for n in range(lanes):
            if n & distance == 0:
                a, b = rows[n], rows[n | distance]
                lower = [j if j & distance == 0 else lanes + j - distance for j in range(lanes)]
                upper = [j + distance if j & distance == 0 else lanes + j for j in range(lanes)]
                mixed[n] = emit.bind(statements, _shuffle(a, b, lower))
                mixed[n | distance] = emit.bind(statements, _shuffle(a, b, upper))
        rows, distance = mixed, 2 * distance
    return rows


def _shuffle(a: Value, b: Value, lanes: list[int]) -> Value:
    return tirx.Shuffle([a, b], [emit.integer(n) for n in lanes])
