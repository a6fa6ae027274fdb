"""What speaks against computing a tensor again where it is read, in place of storing it: by the traits of what it is
and of who reads it, and by how often its work would be repeated. `choose` asks them in the order of the table."""

from __future__ import annotations

from collections.abc import Callable

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Read
from neoflow.expr.tensor import Compute, Parameter, Tensor
from neoflow.expr.traits import flops, form_axes
from neoflow.graph import (
    block_axis,
    contiguous_offset,
    in_blocks,
    is_contraction,
    is_move,
    pieces,
    points,
    reads_at_own_point,
)
from neoflow.graph.cost import sides
from neoflow.partition.copies import instructions
from neoflow.partition.facts import goes_along_all, is_view, looked_up_axes, moves_across, reads_across, reduces
from neoflow.partition.graph_facts import Facts
from neoflow.partition.storage import Storing

COSTLY = 10
"""Operations an element from which recomputing costs more than memory: one transcendental function (`flops`)."""

REPEATS, COSTLY_REPEATS = 8, 1.5
"""How often a reader may read, and so recompute, each element: a few operations hide behind the loads, as often as
there are lanes in a vector; what is costly is computed once, and a half more for the overlap of windows."""

WINDOW_REPEATS = 9
"""The same of what is moved into windows that share no side: three by three points. Padding is then a condition of a
load, decided before; depthwise convolutions and both gradients took 0.4 to 0.8 of the time of a kernel that pads and
one that sums (one thread, Zen 4), as half of what these move is the padded copy."""

TRAFFIC = 1.5
"""So many times its own bytes a compute may read and still be recomputed by several readers: to store it is a write and
as many reads."""

MAX_NODES = 24
"""Definitions in a kernel, apart from moves. A bound of the time to compile, no judgement of speed: the kernels of 14
models are the same without it, and of a chain of 200 steps it makes two that take 11.5 s to compile."""

MAX_INSTRUCTIONS = 256
"""Instructions in a kernel, every copy of what is recomputed counted through the whole chain of readers, apart from
moves. Kernels of 60, 180 and 310 took 0.06, 0.14 and 0.25 s to compile, one each; with reads under many conditions 230
took 0.5 s and 1,390 took 11 s (two busy cores, so rough). In six models of `models/` inlining makes none beyond 96."""

MAX_COPIES = 8
"""Copies of a compute in all kernels together: so the work of all kernels is a small multiple of the program's, and
grows with it. The most that six models of `models/` have, so that their kernels stay; chosen, not measured by time."""

FORMS = 8
"""Instructions from which expressions that a condition chooses from are better written out than all computed."""
WRITTEN_OUT = "its points have expressions of their own, which are written out where it is stored"

TURNED_BYTES = 1 << 14
"""Bytes from which what lies across memory is turned by a kernel of its own, rather than read so where it cannot be
turned: below, the kernel costs as much as it saves."""

PICKED_BYTES, PICKED_SHARE = 1 << 20, 64
"""Bytes from which it is worth a call to let go of what only single elements are read of yet, and how many it has for
each of these."""

UNTURNED = "it cannot be turned"
READ_OFTEN = ("a contraction reads it often", "a reader reads it often")


def is_multiplied_narrow(facts: Facts, state: Storing, t: Compute) -> bool:
    """Whether t is narrow but for its type, and a contraction multiplies it with what is so too: it converts again
    what it loads again, which is half of the bytes, and has tensor cores for it."""
    dtype = facts.narrow.get(t)
    return dtype is not None and any(facts.multiplies(reader, dtype) for reader in state.uses(t))


# ----------------------------------------------------------------------------------------- inlining


def _is_padding_of_windows(t: Compute, reader: Compute) -> bool:
    """Whether t only moves, and what reads it are sums in windows that share no side, as a depthwise convolution: it
    packs nothing, and what it loads under a condition is a load as any other."""
    return is_move(t.definition) and is_contraction(reader.definition) and sides(reader.definition) is None


def is_read_in_windows(state: Storing, t: Compute) -> str | None:
    """The same as an objection, where conditions of loads were not measured: on a GPU."""
    for reader in () if is_view(t.definition) else state.uses(t):
        if _is_padding_of_windows(t, reader):
            return f"{reader.name} is a contraction that reads each element many times"
    return None


def _contraction_reads_often(facts: Facts, state: Storing, t: Compute) -> str | None:
    for reader in () if is_view(t.definition) else state.uses(t):
        if is_contraction(reader.definition) and not _is_padding_of_windows(t, reader):
            return f"{reader.name} is a contraction that reads each element many times"
    return None


def _lies_packed(facts: Facts, state: Storing, t: Compute) -> str | None:
    for reader in facts.readers_of(t) if is_view(t.definition) else ():
        slot = next(n for n, i in enumerate(reader.inputs) if i is t)
        if is_contraction(reader.definition) and block_axis(reader.definition, slot) is not None:
            return f"{reader.name} is a contraction that reads it in the order in which it lies"
        if isinstance(t.inputs[0], Parameter) and reduces(reader) and in_blocks(t.definition):
            return f"{reader.name} is a sum that reads it along its lanes, as it lies"
    return None


def _lies_along(facts: Facts, state: Storing, t: Compute) -> str | None:
    for reader in facts.readers_of(t) if moves_across(t.definition) else ():
        if is_contraction(reader.definition) and goes_along_all(reader.definition):
            return f"{reader.name} goes along it in vectors, and packs nothing"
    return None


def _reader_repeats(facts: Facts, state: Storing, t: Compute) -> str | None:
    cost = flops(t.definition.body)
    for reader, times in () if is_view(t.definition) else state.uses(t).items():
        if times <= WINDOW_REPEATS and _is_padding_of_windows(t, reader):
            continue
        if times > (COSTLY_REPEATS if cost >= COSTLY else REPEATS):
            return f"{reader.name} reads each element {times:.1f} times, at {cost} operations a time"
    return None


def _is_computed_once(state: Storing, t: Compute) -> bool:
    """Whether all readers are computed by one kernel, and at one point: t is so once for all of them."""
    needed = state.copies.of(t)
    return len(needed) == 1 and all(len(points) == 1 for points in needed.values())


def _readers_repeat(facts: Facts, state: Storing, t: Compute) -> str | None:
    readers, cost = len(facts.readers_of(t)), flops(t.definition.body)
    if readers < 2 or cost < COSTLY or is_view(t.definition) or _is_computed_once(state, t):
        return None
    return f"{readers} readers would each recompute its {cost} operations"


def _readers_read_more(facts: Facts, state: Storing, t: Compute) -> str | None:
    readers, traffic = len(facts.readers_of(t)), sum(i.nbytes for i in t.inputs)
    if readers < 2 or traffic <= TRAFFIC * t.nbytes or is_view(t.definition) or _is_computed_once(state, t):
        return None
    return f"{readers} readers would each read {traffic} bytes instead of {t.nbytes}"


def _has_forms(facts: Facts, state: Storing, t: Compute) -> str | None:
    if not computes_forms(t):
        return None
    return WRITTEN_OUT


def _forms_read_across(facts: Facts, state: Storing, t: Compute) -> str | None:
    for reader in state.uses(t) if reads_across(t.definition) else ():
        if isinstance(reader, Compute) and computes_forms(reader):
            return f"{reader.name} would go across memory for each of its points"
    return None


def _orders_results(facts: Facts, state: Storing, t: Compute) -> str | None:
    """What puts results of minimal filtering where they belong is written once for sums: a channel, which they add up,
    is a column of the tiles. Statistics of 16 x 14 x 14 x 128 took 7.9 ms there, 0.7 with what orders them."""
    if not moves_across(t.definition) or not isinstance(t.inputs[0], Compute) or not computes_forms(t.inputs[0]):
        return None
    return next((f"{r.name} sums it up in another order" for r in facts.readers_of(t) if reduces(r)), None)


def _cannot_be_turned(facts: Facts, state: Storing, t: Compute) -> str | None:
    """What a map reads across memory it turns in squares, in registers, unless it reads it under a condition; windows
    and the epilogues of contractions go across memory for each element. Of tiles of minimal filtering whose channels
    lie last a join took 545 us beside 98 with 81 of a kernel that turns them, a pooling 2,064 beside 699 with 554 (by a
    busy machine; squeezenet's)."""
    if t.nbytes < TURNED_BYTES or contiguous_offset(t.definition) is not None or not moves_across(t.definition):
        return None
    return _unturned(facts, state, t)


def _unturned(facts: Facts, state: Storing, t: Compute) -> str | None:
    """Why one that reads t at its own point, or through others that do, could turn no squares of what t reads."""
    for reader in facts.readers_of(t):
        if is_contraction(reader.definition):
            continue
        if reader.definition.has_reduction:
            if points(reader.definition) > t.size:
                return f"{reader.name} goes through windows of it, and would go across memory in each of them"
            continue
        if any(_needs_a_condition(r) for r in reader.definition.reads if reader.inputs[r.slot] is t):
            return f"{reader.name} reads it under a condition, where squares of it cannot be turned in registers"
        if reader in state.recomputed:
            if (found := _unturned(facts, state, reader)) is not None:
                return found
        elif (source := _rides_along(facts, state, reader)) is not None:
            return f"{reader.name} rides along in {source.name}, whose tiles would go across memory for it"
    return None


def _needs_a_condition(read: Read) -> bool:
    """Whether an index may leave the tensor, for which it stands under a condition."""
    spans = [(affine.bounds(i), n) for i, n in zip(read.indices, read.source.shape, strict=True) if i.dtype == dt.INDEX]
    return any(low < 0 or high >= extent for (low, high), extent in spans)


def _rides_along(facts: Facts, state: Storing, t: Compute) -> Compute | None:
    """A contraction of the same shape that t alone reads, at its own point, itself or through what is recomputed."""
    for source in t.inputs:
        if not isinstance(source, Compute) or source.shape != t.shape or source in facts.roots:
            continue
        reads = [r for r in t.definition.reads if t.inputs[r.slot] is source]
        if len(facts.readers_of(source)) > 1 or not all(reads_at_own_point(r, t.shape) for r in reads):
            continue
        if is_contraction(source.definition):
            return source
        if not reduces(source) and (found := _rides_along(facts, state, source)) is not None:
            return found
    return None


def _windows_repeat(facts: Facts, state: Storing, t: Compute) -> str | None:
    """What rides along in a contraction is stored in its place: no memory more. A pooling of activations reads fewer
    tensors then, and computes none of them for each of its windows again."""
    repeated = [
        r for r, times in state.uses(t).items() if times > 1 and reduces(r) and not is_contraction(r.definition)
    ]
    if not repeated or (source := _rides_along(facts, state, t)) is None:
        return None
    return f"it rides along in {source.name}, and {repeated[0].name} would compute it in windows"


def computes_forms(t: Compute) -> bool:
    """Whether points of a short axis are computed each by another expression, of more than a read."""
    return bool(form_axes(t.definition.body)) and instructions(t.definition) >= FORMS


def _is_a_part(facts: Facts, state: Storing, t: Compute) -> str | None:
    for reader in facts.readers_of(t):
        if reader in state.recomputed or reader in facts.roots or pieces(reader.definition) is None:
            continue
        if (whole := next((r for r in state.uses(reader) if is_contraction(r.definition)), None)) is not None:
            return f"it is written where it stands in {reader.name}, which {whole.name} contracts"
    return None


def _takes_a_place(facts: Facts, state: Storing, t: Compute) -> str | None:
    source = _ends(facts, t)
    return None if source is None else f"it takes the place of {source.name}, which it alone reads"


def _ends(facts: Facts, t: Compute) -> Tensor | None:
    """A contraction that t alone reads, at its own point, to combine it with something as large.

    Stored in its place, t frees what else it reads: a sum of contractions needs one buffer, not one for each.
    """
    for source in t.inputs:
        own = isinstance(source, Compute) and source.shape == t.shape and is_contraction(source.definition)
        if not own or source in facts.roots or len(facts.readers_of(source)) > 1:
            continue
        reads = [r for r in t.definition.reads if t.inputs[r.slot] is source]
        others = any(i is not source and i.nbytes >= t.nbytes for i in t.inputs)
        if others and all(reads_at_own_point(r, t.shape) for r in reads):
            return source
    return None


def _picks_elements(facts: Facts, state: Storing, t: Compute) -> str | None:
    """Of something large t reads a few elements, at places that data say, as a loss does the logits of its labels:
    stored, it lets go of the rest, and what others compute from that may take its place."""
    for source in t.inputs:
        if not isinstance(source, Compute) or source in facts.roots or len(facts.readers_of(source)) < 2:
            continue
        if source.nbytes < PICKED_BYTES or source.size < PICKED_SHARE * points(t.definition):
            continue
        if any(looked_up_axes(t.definition, n) for n, i in enumerate(t.inputs) if i is source):
            return f"of {source.name} ({source.nbytes} bytes) it reads single elements, and lets go of the others"
    return None


def _many_nodes(facts: Facts, state: Storing, t: Compute) -> str | None:
    if is_move(t.definition) or all(state.copies.nodes(kernel) <= MAX_NODES for kernel in state.copies.of(t)):
        return None
    return f"the kernel would have more than {MAX_NODES} nodes"


def _many_points(facts: Facts, state: Storing, t: Compute) -> str | None:
    for kernel, needed in state.copies.of(t).items() if instructions(t.definition) else ():
        if len(needed) > REPEATS:
            return f"the kernel of {kernel.name} would compute it at {len(needed)} points each time"
    return None


def _many_instructions(facts: Facts, state: Storing, t: Compute) -> str | None:
    for kernel, needed in () if is_move(t.definition) else state.copies.of(t).items():
        more = len(needed) * instructions(t.definition)
        total = state.copies.instructions(kernel) + more
        if total > MAX_INSTRUCTIONS:
            return f"the kernel of {kernel.name} would have {total} instructions, {more} of them for this"
    return None


def _many_copies(facts: Facts, state: Storing, t: Compute) -> str | None:
    needed = state.copies.of(t)
    total = sum(map(len, needed.values()))
    if total <= MAX_COPIES or not instructions(t.definition):
        return None
    return f"{len(needed)} kernels would compute it at {total} points altogether"


OBJECTIONS: tuple[tuple[str, Callable[[Facts, Storing, Compute], str | None]], ...] = (
    ("a contraction reads it often", _contraction_reads_often),
    ("it lies packed", _lies_packed),
    ("it lies along vectors", _lies_along),
    ("a reader reads it often", _reader_repeats),
    ("several readers repeat its work", _readers_repeat),
    ("several readers read more than it has", _readers_read_more),
    ("its points differ", _has_forms),
    ("forms would read across memory", _forms_read_across),
    ("it orders results", _orders_results),
    (UNTURNED, _cannot_be_turned),
    ("it is a part", _is_a_part),
    ("it takes the place of a contraction", _takes_a_place),
    ("windows would repeat it", _windows_repeat),
    ("it picks elements of something large", _picks_elements),
    ("many nodes", _many_nodes),
    ("a kernel repeats it at many points", _many_points),
    ("a kernel grows large", _many_instructions),
    ("many copies", _many_copies),
)
"""Each with its name; the first that says something decides."""
