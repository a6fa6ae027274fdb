"""What a kernel costs, in seconds: the one estimate that rewrites, fusion, recomputing and searches compare by.

    max(bytes / P_d, instructions / P_c) + L, or of a contraction, whose results are stored when all is added
    max(bytes read / P_d, instructions / P_c) + bytes written / P_d + beside / P_c + L

    bytes         what a kernel reads of each tensor, once, and each output, once; at P_d of the level that holds it all
    instructions  on single elements, those of what is recomputed as often as it is
    beside        instructions that no product hides: elements of the two sides are packed, tiles of results end
    L             from the end of one kernel to the begin of the next

`cost` is that of a compute as a kernel of its own; `partition.cost_of` is of several as one. Rewrites compare by what
is stated of a machine (`roofs.STATED`) and not measured of this one, so that a graph is the same everywhere.
Source: NeoFlow, section 5.1 (R = dT/P_d + dC/P_c + dK L).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Read, Reduce, Select, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition
from neoflow.graph import work
from neoflow.graph.facts import is_contraction, points
from neoflow.roofs import STATED, Roofs

PACKED = 47
"""Instructions that it costs to pack an element of a contraction's sides. Fitted (2.5e9 elements a second of two cores
of Zen 4): by so much were 1x1 convolutions that share an image faster as one, and their weight gradients (1.3 to 4.4),
and convolutions of 9x9 (1.2)."""
STORED = 6
"""Those of a result beside its multiply-adds and memory: a tile of 448 takes 160 cycles to be entered, cleared and
stored, see `costs.TILE_CYCLES` and `costs.REGISTER_CYCLES`."""
RIDES = 6
"""Those of an element that is added up while a tile of it is written: on one thread of a busy Zen 4 0.03 to 0.25 ns, of
which 0.1 are these. So what a third-level cache holds is read again, which takes two cores 0.04, and what comes from
memory, 0.1, is not."""
LANES = 16
"""Elements of a vector: a row that is shorter fills one nevertheless."""
NEST = 20 * LANES
"""Instructions on single elements that it costs to begin a nest of a row, and to end its sum: some 20 of vectors."""
LOOP = 5 * LANES
"""Those that it costs to begin a nest of a row that ends without a sum."""
SURE, LONGER = 0.1, 0.15
"""Part of the time that is to be saved: estimates that differ by less say nothing; and where one sum takes the place of
a chain, since longer sums have other schedules. In four recurrent models two sums each took the place of chains of 64
terms: where a sixth was to be saved a step was 1.04 and 1.06 times as fast, where it was a tenth 0.86 and 0.99."""


@dataclass(frozen=True)
class Cost:
    """Of a kernel: bytes that it moves, instructions on single elements, and bytes of what it keeps to itself, row by
    row, with what one row of that takes. late: of the bytes, those that move when all is computed. beside: instructions
    that neither memory nor products hide."""

    nbytes: float
    instructions: float
    near: float = 0.0
    row_bytes: float = 0.0
    late: float = 0.0
    beside: float = 0.0

    def seconds(self, roofs: Roofs) -> float:
        """What it is thought to take."""
        return roofs.kernel_seconds(
            self.instructions, self.nbytes, self.near, self.row_bytes, late=self.late, beside=self.beside
        )

    def spent(self, roofs: Roofs, among: float = 0.0) -> float:
        """Seconds of memory, of arithmetic and of L, one after the other; among: bytes beside which its own move."""
        far = self.nbytes / roofs.level(int(max(among, self.nbytes))).gb_s
        near = self.near / roofs.level(int(self.row_bytes)).gb_s
        return (far + near + 2 * (self.instructions + self.beside) / roofs.gflops) / 1e9 + roofs.start


def cost(definition: Definition, is_link: bool = False) -> Cost:
    """Of a kernel that computes this alone; is_link: and adds it to what it reads at the same points."""
    written = math.prod(definition.shape) * dt.itemsize(definition.body.dtype) * (2 if is_link else 1)
    own = Cost(sum(read_bytes(definition)) + written, work.work_of(definition))
    return with_products(own, definition, written)


def with_products(found: Cost, definition: Definition, written: float) -> Cost:
    """The cost of a kernel with what a contraction of two sides in it takes beside its products; written: bytes of its
    result that are moved when all products are added."""
    both = sides(definition)
    if both is None:
        return found
    return replace(found, late=written, beside=found.beside + PACKED * both + STORED * math.prod(definition.shape))


@remembered
def seconds(definition: Definition, is_link: bool = False) -> float:
    """`cost`, by what is stated of a machine."""
    return cost(definition, is_link).seconds(STATED)


@remembered
def read_bytes(definition: Definition) -> tuple[int, ...]:
    """Of each slot, the bytes that are read at least once, at most."""
    found = {s.position: 0 for s in definition.slots}
    slots = {s.position: s for s in definition.slots}
    for read in definition.reads:
        slot, reached = slots[read.slot], 1
        for index, extent in zip(read.indices, slot.shape, strict=True):
            is_data = any(isinstance(n, Read) for n in postorder(index))
            low, high = (0, extent - 1) if is_data else affine.bounds(index)
            reached *= max(1, min(extent - 1, high) - max(0, low) + 1)
        found[read.slot] += min(reached, points(definition)) * dt.itemsize(slot.dtype)
    return tuple(min(found[n], math.prod(s.shape) * dt.itemsize(s.dtype)) for n, s in slots.items())


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
    """Seconds that it takes to begin and end a sum within each row of what is at hand, `rows` dimensions of them, to
    go through that row by row, and of a kernel that adds these."""
    count = math.prod(shape[:rows])
    return STATED.start + moved(2 * dt.itemsize("float32") * count) + 2 * (NEST + LOOP) * count / STATED.gflops / 1e9


def copied(nbytes: int) -> float:
    """Seconds of a kernel that copies, and reads and writes so many bytes for it; none where there are none."""
    return STATED.start + moved(nbytes) if nbytes else 0.0


def is_worth(before: float, after: float, least: float = SURE) -> bool:
    """Whether something takes surely less than before: so much of it."""
    return before - after >= least * before


def told(before: float, after: float) -> str:
    """The two in words."""
    return f"about {after * 1e6:.1f} us instead of {before * 1e6:.1f}"
