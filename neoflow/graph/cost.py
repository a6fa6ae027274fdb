"""About how long a compute takes as a kernel of its own: what rewrites that make one kernel of several are judged by.

    launch + max(bytes / bandwidth, operations / peak), or of a contraction, whose results are stored when all is added
    launch + max(bytes read / bandwidth, operations / peak) + bytes written / bandwidth
           + elements of its two sides / how fast they are packed + results / how fast tiles end

By what is stated of a machine (`roofs.STATED`) and not measured of this one, so that a graph is the same everywhere.
What is compared has the same operations, so that what packing, storing and memory take decides.
"""

from __future__ import annotations

import math

from neoflow.expr import dtype as dt
from neoflow.expr.count import count_definition
from neoflow.expr.ir import Reduce, Select
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition
from neoflow.graph import work
from neoflow.graph.facts import is_contraction
from neoflow.roofs import STATED

LOOPS = 4
"""So many times as long as in register tiles take operations in other loops."""
PACKED = 2.5e9
"""Elements of the sides of contractions a second. Fitted: by so much were 1x1 convolutions that share an image faster
as one, and their weight gradients (1.3 to 4.4), and convolutions of 9x9 (1.2)."""
STORED = 20e9
"""Results a second beside the multiply-adds and memory: a tile of 448 takes 160 cycles to be entered, cleared and
stored, see `costs.TILE_CYCLES` and `costs.REGISTER_CYCLES`."""
LANES = 16
"""Elements of a vector: a row that is shorter fills one nevertheless."""
NEST = 20 * LANES
"""Instructions on single elements that it costs to begin a nest of a row, and to end its sum: some 20 of vectors."""
SURE, LONGER = 0.1, 0.15
"""Part of the time that is to be saved: estimates that differ by less say nothing; and where one sum takes the place of
a chain, since longer sums have other schedules. In four recurrent models two sums each took the place of chains of 64
terms: where a sixth was to be saved a step was 1.04 and 1.06 times as fast, where it was a tenth 0.86 and 0.99."""


@remembered
def seconds(definition: Definition, is_link: bool = False) -> float:
    """Of a kernel that computes this alone; is_link: and adds it to what it reads at the same points."""
    read = sum(math.prod(s.shape) * dt.itemsize(s.dtype) for s in definition.slots)
    results = math.prod(definition.shape)
    written = results * dt.itemsize(definition.body.dtype) * (2 if is_link else 1)
    both, busy = sides(definition), count_definition(definition).flops / STATED.gflops / 1e9
    if both is None:
        return STATED.start + max(moved(read + written), LOOPS * busy)
    return STATED.start + max(moved(read), busy) + both / PACKED + moved(written) + results / STORED


@remembered
def sides(definition: Definition) -> int | None:
    """What it takes to compute both sides of a contraction once; None for what is none of two sides."""
    body = definition.body
    if not (is_contraction(definition) and isinstance(body, Reduce)):
        return None
    product = body.body.then if isinstance(body.body, Select) else body.body
    return work.sides(Reduce("sum", body.axes, product), definition.shape)


def moved(nbytes: int) -> float:
    """Seconds in which so many bytes are read and written."""
    return nbytes / STATED.level(nbytes).gb_s / 1e9


def added_within(shape: tuple[int, ...], rows: int) -> float:
    """Seconds that it takes to begin and end a sum within each row of what is at hand, `rows` dimensions of them, and
    of a kernel that adds these."""
    count = math.prod(shape[:rows])
    return STATED.start + moved(2 * dt.itemsize("float32") * count) + 2 * NEST * count / STATED.gflops / 1e9


def copied(nbytes: int) -> float:
    """Seconds of a kernel that copies, and reads and writes so many bytes for it; none where there are none."""
    return STATED.start + moved(nbytes) if nbytes else 0.0


def is_worth(before: float, after: float, least: float = SURE) -> bool:
    """Whether something takes surely less than before: so much of it."""
    return before - after >= least * before


def told(before: float, after: float) -> str:
    """The two in words."""
    return f"about {after * 1e6:.1f} us instead of {before * 1e6:.1f}"
