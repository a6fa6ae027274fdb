"""What a compute takes that reads and writes in given orders: in place, from copies of parameters beside, and from
operands that are packed once afterwards.
"""

from __future__ import annotations

import math

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Slot
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor
from neoflow.graph import Layout, is_contraction
from neoflow.graph.laid import laid
from neoflow.loops import costs
from neoflow.partition import Subgraph
from neoflow.partition.calls import put_together
from neoflow.rewriting.judging import swept
from neoflow.rewriting.layouts import CLEARLY, contracting, in_panels, layout_of
from neoflow.target import Target

Lies = tuple[Layout | None, ...]
"""Of each slot, how what is read there lies; None: as it is written."""
BYTES_A_CYCLE = 4.0
"""What a core moves of what is packed beside, read and written: 10 GB/s at 2.5 GHz."""


@remembered
def kernel_of(definition: Definition) -> Subgraph:
    """A compute of this definition as a kernel of its own."""
    inputs = tuple(Placeholder(s.shape, s.dtype, f"x{n}", None) for n, s in enumerate(definition.slots))
    t = Compute(definition, inputs, "y")
    return put_together(inputs, (t,), (t,), None, {}, "y").subgraph


@remembered
def cycles_of(definition: Definition, own: Layout | None, read: Lies, target: Target) -> float:
    """Estimated cycles of a contraction that reads and writes in these orders."""
    kernel = contracting(kernel_of(laid_definition(definition, own, read)), target)
    if kernel is None:
        return math.inf
    jumps = 0.0
    for slot, order in kernel.summed:
        if read[slot] is not None and slot != kernel.slot and list(order) != sorted(order):
            jumps += costs.LOST_LINE * nbytes_of(definition.slots[slot]) / costs.LINE_BYTES
    return kernel.cycles + jumps


def laid_definition(definition: Definition, own: Layout | None, read: Lies) -> Definition:
    """A definition that reads and writes in these orders."""
    inputs: list[Tensor] = [Placeholder(s.shape, s.dtype, f"x{n}", None) for n, s in enumerate(definition.slots)]
    t = Compute(definition, tuple(inputs), "y")
    lying = {i: x for i, x in zip((t, *inputs), (own, *read), strict=True) if x is not None}
    now: dict[Tensor, Tensor] = {
        i: i if i not in lying else Placeholder(lying[i].shape(i.shape), i.dtype, i.name, None) for i in inputs
    }
    return laid(t, lying, now).definition


def nbytes_of(slot: Slot) -> int:
    return math.prod(slot.shape) * dt.itemsize(slot.dtype)


def cycles_in(definition: Definition, own: Layout | None, read: tuple[Layout | None, ...], target: Target) -> float:
    if is_contraction(definition) and (found := cycles_of(definition, own, read, target)) < math.inf:
        return found
    return swept(kernel_of(laid_definition(definition, own, read)), target)


def taken(
    definition: Definition,
    own: Layout | None,
    read: Lies,
    copied: tuple[bool | None, ...],
    target: Target,
    lasts: bool = False,
) -> tuple[float, Lies]:
    """The cycles of a compute that reads and writes in these orders, and the copies of parameters that it reads then,
    by slot. copied: of each slot, None where it reads no parameter, whether the program changes it. lasts: whether what
    stays is packed once afterwards, which is asked of what lies as it is written alone: others read copies already."""
    copies: Lies = (None,) * len(read)
    if own is not None and definition.has_reduction:
        copies = tuple(
            None if is_changed is None or read[n] is not None else copy_along(definition, n, own)
            for n, is_changed in enumerate(copied)
        )
    lies = tuple(c or r for c, r in zip(copies, read, strict=True))
    cycles = cycles_in(definition, own, lies, target)
    if lasts and own is None and not any(read) and is_contraction(definition):
        stays = tuple(is_changed is False for is_changed in copied)
        if any(packed := packed_once(definition, stays, target)):
            cycles = min(cycles, cycles_in(definition, own, packed, target))
    for slot, copy, is_changed in zip(definition.slots, copies, copied, strict=True):
        if copy is not None and is_changed:
            cycles += 2 * math.prod(slot.shape) * dt.itemsize(slot.dtype) / BYTES_A_CYCLE
    return cycles, copies


def copy_along(definition: Definition, slot: int, own: Layout) -> Layout | None:
    """The order of what is read in a slot in which it lies along the lanes of what is written: of the one dimension
    that they have in common."""
    if own.width == 1:
        return None
    reads = [r for r in definition.reads if r.slot == slot]
    lane = own.dimension
    if len(reads) != 1 or not all(i.free <= {i} for i in reads[0].indices):
        return None
    at = [d for d, i in enumerate(reads[0].indices) if isinstance(i, Axis) and i.ident == lane]
    if len(at) != 1:
        return None
    rest = tuple(d for d in range(len(reads[0].indices)) if d != at[0])
    layout = Layout((), at[0], rest, own.width)
    return layout if layout.fits(definition.slots[slot].shape).ok else None


@remembered
def packed_once(definition: Definition, stays: tuple[bool, ...], target: Target) -> Lies:
    """The orders in which a contraction of what lies as it is written reads once `layouts` has packed what stays from
    call to call: None in each slot where it packs nothing. stays: of each slot."""
    nothing: Lies = (None,) * len(stays)
    kernel = contracting(kernel_of(definition), target)
    asked = None if kernel is None else in_panels(kernel, target)
    if kernel is None or asked is None or asked.slot is None or not stays[asked.slot]:
        return nothing
    slot, layout = definition.slots[asked.slot], layout_of(asked)
    if layout is None or not layout.fits(slot.shape).ok:
        return nothing
    packed = tuple(layout if n == asked.slot else None for n in range(len(stays)))
    most = 1.0 if asked is kernel or nbytes_of(slot) > target.l2_bytes else CLEARLY
    return packed if cycles_of(definition, None, packed, target) <= most * kernel.cycles else nothing
