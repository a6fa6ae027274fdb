"""Addresses of operands of a contraction that are read in place: linear reads, along K and along rows of a tile."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from neoflow.codegen.cpu.parts import Env
from neoflow.codegen.cpu.tiling import Rows
from neoflow.codegen.tir import emit
from neoflow.expr import affine
from neoflow.expr.ir import Axis, Read

Value = emit.Value


def moves_of(side: Read, rows: Rows) -> list[int]:
    """How far each row of a tile is from its first."""
    terms, _ = affine.linear(side.indices[0])
    return [sum(terms.get(a, 0) * n for a, n in offset.items()) for offset in rows.offsets()]


def stretches(moves: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first row, its place, rows) of each stretch of rows that are neighbours in memory."""
    found: list[tuple[int, int, int]] = []
    for row, move in enumerate(moves):
        if found and move == found[-1][1] + found[-1][2]:
            first, place, count = found.pop()
            found.append((first, place, count + 1))
        else:
            found.append((row, move, 1))
    return found


def lines_of(moves: Sequence[int], line: int) -> list[int]:
    """Of these places as few as are in every line that they touch, wherever lines begin."""
    found: list[int] = []
    *others, last = sorted(moves)
    for move in others:
        if not found or move >= found[-1] + line:
            found.append(move)
    return [*found, last]


def place_of(statements: list, source: tirx.Buffer, side: Read, address: Value) -> tuple[tirx.Buffer, Value]:
    """Where an address of a linear read is: a buffer and an index.

    LLVM takes sums with negative steps for ones that may wrap around, and adds anew for each load: they are added once.
    """
    if all(step >= 0 for step in affine.over_axes(affine.linear(side.indices[0])).values()):
        return source, address
    return emit.view(statements, source, address), emit.integer(0)


def base_of(statements: list, read: Read, env: Env, k_axes: Sequence[Axis]) -> Value:
    """The address of a linear read where all of K is 0."""
    form = affine.linear(read.indices[0])
    base = emit.integer(form[1])
    for a, step in affine.over_axes(form).items():
        if all(a is not k for k in k_axes):
            base = base + env[a] * emit.integer(step)
    return emit.bind(statements, base, "base")


def along(read: Read, base: Value, env: Env, k_axes: Sequence[Axis]) -> Value:
    """The address at a point of K, from that where all of it is 0."""
    terms, _ = affine.linear(read.indices[0])
    for a in k_axes:
        if a in terms:
            base = base + env[a] * emit.integer(terms[a])
    return base
