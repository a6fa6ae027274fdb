"""What the templates for GPUs share: blocks of threads, vectors of an access, how many blocks fill the device."""

from __future__ import annotations

from neoflow.architectures import ACCESS_BYTES, THREADS_A_BLOCK, WARP, architecture
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, postorder
from neoflow.loops.knob import Range, one
from neoflow.loops.nest import is_index
from neoflow.loops.problem import one_lane
from neoflow.target import Target

EXCHANGED_BYTES = 8 * WARP
"""What the warps of a team give each other of one piece of a reduction, at most."""
USUAL_THREADS = 256
"""Threads of a block without a search: eight warps hide each other's latency, and four such blocks fill sm_75."""
WAVES = 4
"""How often each processor's threads are replaced, at least, before a thread does more than one piece: the last ones
to finish are late by less."""


def threads() -> Range:
    """Threads of a block: whole warps, in powers of two."""
    powers = tuple(1 << n for n in range(WARP.bit_length() - 1, THREADS_A_BLOCK.bit_length()))
    return Range(powers, f"powers of two from a warp to the {THREADS_A_BLOCK} that a block may have")


def powers(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `most`."""
    return tuple(1 << n for n in range(max(1, most).bit_length()))


def floor_power(n: int | float) -> int:
    """The largest power of two that is not above n; 1 for less than that."""
    return 1 << (max(1, int(n)).bit_length() - 1)


def ceil_power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (max(1, n) - 1).bit_length()


def whole_lanes(axis: Axis | None, expressions: tuple[Expr, ...], anchor_varies: bool) -> Range:
    """How many points of the axis may be an access, none of which is cut at the end of the axis."""
    if axis is None:
        return one(1, "there is no axis for the lanes")
    reason = one_lane(expressions, axis, anchor_varies)
    if reason is not None:
        return one(1, reason)
    values = tuple(n for n in powers(access_lanes(expressions)) if axis.extent % n == 0)
    return Range(values, f"powers of two that divide {axis.extent}, up to {ACCESS_BYTES} bytes of the widest type")


def access_lanes(expressions: tuple[Expr, ...]) -> int:
    """Elements of the widest type among these that an access takes; 1 with a type that is not accessed in vectors."""
    dtypes = {n.dtype for e in expressions for n in postorder(e) if not is_index(n)} - {"bool"}
    stored = {e.dtype for e in expressions}
    if not dtypes <= set(_IN_VECTORS) or "bool" in stored or not dtypes:
        return 1
    return min(ACCESS_BYTES // max(4, dt.itemsize(d)) for d in dtypes)


_IN_VECTORS = ("float32", "float64", "int32", "float16", "bfloat16")


def waves(target: Target) -> int:
    """Threads that fill the device `WAVES` times."""
    found = architecture(target)
    return WAVES * found.processors * found.threads
