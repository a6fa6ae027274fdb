"""The `gpu_tensor_core` template: what `gpu_contraction` is, of float16, bfloat16 or TF32, by tensor cores.

    for k in steps of block_k:
        shared left[m][k] or [k][m], right[n][k] or [k][n] = the operands, as narrow as they are;  barrier
        for kk in block_k / 16, or 8:
            fragments of left and right: from shared memory into registers, rounded there to TF32
            acc[fragments_m][fragments_n] += left fragment * right fragment

Products of such operands are exact in float32, in which they are added, so that only the order of additions is another
one. Operands are computed where they are loaded, and rounded where the program rounds them: nothing is stored in
between, no window of a convolution either.

Source: the three stages of NeoFlow section 5.2 (load, convert, multiply).
"""

from __future__ import annotations

from neoflow.architectures import architecture
from neoflow.expr import dtype as dt
from neoflow.graph import TF32
from neoflow.loops.gpu import operands
from neoflow.loops.gpu.family import Family
from neoflow.loops.gpu.fragments import TensorTile, tensor_tiles
from neoflow.loops.gpu.limits import room
from neoflow.loops.gpu.moves import knobs_of
from neoflow.loops.gpu.narrow import MEMORY, narrow_sides
from neoflow.loops.knob import Chosen
from neoflow.loops.problem import NestProblem
from neoflow.loops.tile import Sides, splits_of
from neoflow.target import Target
from neoflow.verdict import Verdict

AMPERE = 80
"""The capability from which on LLVM writes PTX 7.0."""


def narrow_splits(p: NestProblem, k: Chosen) -> tuple[int, ...]:
    """The ways to divide the factors after which both sides are narrow."""
    found = splits_of(p, k)
    key = ("narrow splits", k["fuse"])
    return p.memo.once(key, lambda: tuple(n for n, c in enumerate(found) if narrow_sides(c) is not None))


def types(p: NestProblem) -> set[str]:
    """What may be multiplied, by the ways to divide the factors."""
    found = (narrow_sides(c) for c in splits_of(p, {"fuse": p.all_fused}))
    return {n[0] for n in found if n is not None}


def fits(p: NestProblem) -> Verdict:
    if types(p) and not p.nest.sums:
        return Verdict(True, "a sum of products of narrow floats, or floats rounded to TF32, with two sides")
    reason = "it is no sum of products whose two sides are narrow floats, or rounded to TF32"
    return Verdict(False, f"tensor cores do not fit: {reason}")


def fits_target(p: NestProblem, target: Target) -> Verdict:
    """Whether its processors multiply that type."""
    a = architecture(target)
    if target.kind == "nvptx" and a.capability < AMPERE:
        return Verdict(False, f"PTX as LLVM 22 writes it for {a.name}, version 6.3, has none of their instructions")
    for dtype, is_there in (("bfloat16", a.has_bfloat16), (TF32, a.has_tf32)):
        if dtype in types(p) and not is_there:
            return Verdict(False, f"the tensor cores of {target.mcpu} have no {dtype}")
    return Verdict(True, "its tensor cores have the type")


def sides(p: NestProblem, k: Chosen) -> Sides:
    """The contraction that the knobs say, its sides narrow."""
    return narrow(p, k)[1]


def narrow(p: NestProblem, k: Chosen) -> tuple[str, Sides]:
    """The type that is multiplied, and the contraction that the knobs say, of sides of that type in memory."""
    whole = operands.sides(p, k)

    def make() -> tuple[str, Sides]:
        found = narrow_sides(whole.c)
        assert found is not None
        return found[0], Sides(whole.nest, found[1], whole.element)

    return p.memo.once(("narrow", *(k[name] for name in _SIDES)), make)


def element(p: NestProblem, k: Chosen) -> str:
    """The type of the operands in memory."""
    dtype = narrow(p, k)[0]
    return MEMORY.get(dtype, dtype)


_SIDES = ("fuse", "split", "side", "last_m", "last_n", "last_k")


def _tiles(p: NestProblem, target: Target, k: Chosen) -> tuple[TensorTile, ...]:
    return tensor_tiles(dt.itemsize(element(p, k)), operands.is_deep(sides(p, k).c), target.mcpu, room(target))


FAMILY: Family[TensorTile] = Family(
    "mma",
    ("block_k", "block_m", "block_n", "fragments_m", "fragments_n", "stages"),
    (
        "terms that a block loads at a time",
        "rows of a block",
        "columns of a block",
        "fragments of the left side that a warp holds",
        "fragments of the right side that a warp holds",
        "steps of K in shared memory: all but one are loaded while that is multiplied",
    ),
    _tiles,
    sides,
    element,
    lambda _: 2,
    is_in_lines=True,
)


KNOBS = knobs_of(FAMILY, narrow_splits)
