"""Which legal fusions are worth doing: for each rule what speaks against, asked in order. The first objection decides.

The last of them is the reward of what two kernels are by now, in the one currency of `graph.cost`: surely below 0 they
stay apart; and where one keeps much for a row, they are one only where it is surely above 0.
Those before it say what that estimate does not know. Their numbers are judgements of kind ("several times", "fits the
first cache"), the same for every machine, not measurements of one.

What is recomputed does not go by the reward, for that was tried, forward and backward counted: instructions of every
kernel that computes it again, bytes that no other reads there, a call where nothing rides along. By the estimate the
steps of ten models took 0.2 to 0.9 % less; measured, mi_lstm took 1.05 times as long, lltm and sru_rnntc 1.02, nasrnn
1.01 (one thread, processor time in turns, busy Xeon). Differences that small are no more than what it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from neoflow.architectures import ACCESS_BYTES
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Read
from neoflow.expr.tensor import Compute, Parameter, Tensor
from neoflow.expr.traits import flops, form_axes
from neoflow.graph import (
    LONGEST,
    block_axis,
    contiguous_offset,
    in_blocks,
    is_contraction,
    is_move,
    operations,
    pieces,
    points,
    reads_at_own_point,
)
from neoflow.graph.cost import is_worth, told
from neoflow.partition.copies import instructions
from neoflow.partition.cost import reward, spent
from neoflow.partition.facts import goes_along_all, is_view, moves_across, reads_across, reads_columns, reduces
from neoflow.partition.graph_facts import Facts
from neoflow.partition.kernels import Kernels, Merge
from neoflow.partition.rules import ALONGSIDE, EPILOGUES, INLINING, MOVES, PARTS, ROW_KERNELS, SIBLINGS, VIEWS
from neoflow.partition.storage import Storing
from neoflow.roofs import STATED

COSTLY = 10
"""Operations an element from which recomputing costs more than memory: one transcendental function (`flops`)."""

REPEATS, COSTLY_REPEATS = 8, 1.5
"""How often a reader may read, and so recompute, each element: a few operations hide behind the loads, as often as
there are lanes in a vector; what is costly is computed once, and a half more for the overlap of windows."""

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

MAX_OUTPUTS = 4
"""Tensors a kernel writes. More streams are not slow by themselves: in kernels of 8 to 32, chains of 16 and 32 results
took 0.40 to 1.09 of the time, mostly 0.75 to 0.98. But where kernels share little, the reward says the same of both, to
0.01 %, and they are no faster: without the limit sru_rnntc, of 32 calls instead of 47, took 1.02 times as long and
nasrnn 1.03 (one thread, processor time; an early form by the reward, two threads: sru_rnntc 1.06; busy Xeon). By the
reward, saving a tenth, chains become kernels of 5."""

MIN_ROW = 32
"""Elements of a row from which a row kernel pays: a few vectors, beside which their rest and the loop cost little."""

FORMS = 8
"""Instructions from which expressions that a condition chooses from are better written out than all computed."""

MIN_ROWS, LONG_ROW = 8, 1 << 16
"""Rows from which all threads have some, and elements from which a row is worth to be shared among them; the same of
a GPU, whose hundred processors take blocks of threads:"""
GPU_ROWS, GPU_LONG_ROW = 256, 1 << 12

MAX_ROW_BYTES, GPU_ROW_BYTES = 1 << 18, 1 << 16
"""What lies between the nodes of one row: a quarter of a core's own cache, so that planes of 112 x 112 go through
pooling and its adjoint once, 1.3 times as fast as in two kernels; of a GPU what its shared memory holds. Rows that are
no leading dimensions are streams of memory that is written anyway, and stay in that cache with what is read. On a CPU a
larger row goes by the reward, which has to be surely above 0: three kinds of kernels of shufflenet do, and its step of
16 took 0.98 of the time (one thread, processor time, busy Xeon)."""

TURNED_BYTES = 1 << 14
"""Bytes from which what lies across memory is turned by a kernel of its own, rather than read so where it cannot be
turned: below, the kernel costs as much as it saves."""

MANY = 2
"""So many times `LONGEST` are the most operations of a kernel whose results are all short."""

MAX_ROW_OPERATIONS = 16 * LONGEST
"""Operations of all nests of a row kernel: each is a loop of its own."""


@dataclass(frozen=True)
class Objection:
    """What may speak against a candidate of a rule: `raised` is the sentence, or None."""

    rule: str
    name: str
    raised: Callable[[Facts, Any, Any], str | None]


Choice = Callable[[str, Facts, Any, Any], str | None]
"""rule, facts, state, a legal candidate -> what speaks against it, or None."""


def object_to(rule: str, facts: Facts, state: Any, candidate: Any, besides: Collection[str] = ()) -> str | None:
    """The first objection to a legal candidate of a rule, `besides` those of these names."""
    left = {*besides} if LOSES in besides else {*besides, LARGE_ROW}  # the reward says that
    found = (o.raised(facts, state, candidate) for o in OBJECTIONS if o.rule == rule and o.name not in left)
    return next((sentence for sentence in found if sentence is not None), None)


def object_for_gpu(rule: str, facts: Facts, state: Any, candidate: Any) -> str | None:
    """The first objection where kernels access memory in vectors that begin at multiples of their length, and tensor
    cores multiply what is narrow."""
    if rule == PARTS.name:
        for part in pieces(candidate.definition) or ():
            if part.offset * dt.itemsize(candidate.dtype) % ACCESS_BYTES:
                name, at = candidate.inputs[part.slot].name, part.offset * dt.itemsize(candidate.dtype)
                return f"{name} would begin at byte {at}, no multiple of {ACCESS_BYTES}"
    if rule == MOVES.name and (few := _moved_rows_are_few(facts, state, candidate, GPU_ROWS)) is not None:
        return few
    if rule in (ROW_KERNELS.name, ALONGSIDE.name):
        if any(not t.is_plain for t in candidate.turns):
            return "its rows are not the first dimensions of what it writes, which a block of threads writes at once"
        few = _rows_are_few(facts, state, candidate, GPU_ROWS, GPU_LONG_ROW)
        large = _row_is_large(facts, state, candidate, GPU_ROW_BYTES)
        return few or object_to(rule, facts, state, candidate, (LOSES,)) or large
    besides = {LOSES, UNTURNED}  # what is stated, and measured, of a CPU
    offset = contiguous_offset(candidate.definition) if rule in (VIEWS.name, INLINING.name) else None
    if offset is not None and offset * dt.itemsize(candidate.dtype) % ACCESS_BYTES:
        if rule == VIEWS.name:
            return f"it would begin at byte {offset * dt.itemsize(candidate.dtype)}, no multiple of {ACCESS_BYTES}"
        if state.looked_up(candidate):
            return "it is looked up at indices from data, and is no view"
    is_free = rule == INLINING.name and _is_multiplied_narrow(facts, state, candidate)
    return object_to(rule, facts, state, candidate, besides | set(READ_OFTEN) if is_free else besides)


LOSES = "it loses"
"""The objection by the reward: named, so that it can be left out. What goes through the same points as one kernel
moves less, calls less and computes nothing more often: nobody need ask."""
LARGE_ROW = "a row is large"
"""That by a fixed number, where there is no reward."""
UNTURNED = "it cannot be turned"
READ_OFTEN = ("a contraction reads it often", "a reader reads it often")


def _is_multiplied_narrow(facts: Facts, state: Storing, t: Compute) -> bool:
    """Whether t is narrow but for its type, and a contraction multiplies it with what is so too: it converts again
    what it loads again, which is half of the bytes, and has tensor cores for it."""
    dtype = facts.narrow.get(t)
    return dtype is not None and any(facts.multiplies(reader, dtype) for reader in state.uses(t))


# ----------------------------------------------------------------------------------------- inlining


def _contraction_reads_often(facts: Facts, state: Storing, t: Compute) -> str | None:
    for reader in () if is_view(t.definition) else state.uses(t):
        if is_contraction(reader.definition):
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
        if times > (COSTLY_REPEATS if cost >= COSTLY else REPEATS):
            return f"{reader.name} reads each element {times:.1f} times, at {cost} operations a time"
    return None


def _readers_repeat(facts: Facts, state: Storing, t: Compute) -> str | None:
    readers, cost = len(facts.readers_of(t)), flops(t.definition.body)
    if readers < 2 or cost < COSTLY or is_view(t.definition):
        return None
    return f"{readers} readers would each recompute its {cost} operations"


def _readers_read_more(facts: Facts, state: Storing, t: Compute) -> str | None:
    readers, traffic = len(facts.readers_of(t)), sum(i.nbytes for i in t.inputs)
    if readers < 2 or traffic <= TRAFFIC * t.nbytes or is_view(t.definition):
        return None
    return f"{readers} readers would each read {traffic} bytes instead of {t.nbytes}"


def _has_forms(facts: Facts, state: Storing, t: Compute) -> str | None:
    if not _computes_forms(t):
        return None
    return "its points have expressions of their own, which are written out where it is stored"


def _forms_read_across(facts: Facts, state: Storing, t: Compute) -> str | None:
    for reader in state.uses(t) if reads_across(t.definition) else ():
        if isinstance(reader, Compute) and _computes_forms(reader):
            return f"{reader.name} would go across memory for each of its points"
    return None


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


def _computes_forms(t: Compute) -> bool:
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


# ----------------------------------------------------------------------------------------- kernels


def _many_outputs(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    if sum(map(state.storage.is_kept, state.merged(merge).members)) <= MAX_OUTPUTS:
        return None
    return f"the kernel would store more than {MAX_OUTPUTS} tensors"


def _many_results(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    if len(state.kernels[merge.first].members) < MAX_NODES:
        return None
    return f"the kernel has {MAX_NODES} results already"


def _is_long(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    parts = [_operations(state, m) for m in state.merged(merge).members]
    if sum(parts) <= LONGEST or (max(parts) <= LONGEST // 2 and sum(parts) <= MANY * LONGEST):
        return None
    if max(parts) <= LONGEST // 2:
        return f"the kernel would have {sum(parts)} operations, more than {MANY * LONGEST}"
    return f"the kernel would have {sum(parts)} operations, more than {LONGEST}, half of them and more in one result"


def _operations(state: Kernels, t: Compute) -> int:
    """Of a result, with what is recomputed for it."""
    return sum(operations(u.definition) for u in state.storage.closures[t])


# ----------------------------------------------------------------------------------------- row kernels


def _has_its_own_loops(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    for m in state.merged(merge).members:
        if is_contraction(m.definition):
            return f"{m.name} contracts: it needs loops of its own"
    return None


def _row_is_a_column(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    blocks = any(t.width > 1 for t in merge.turns)
    for m, rows in zip(state.merged(merge).members, state.row_dims(merge), strict=True):
        if reduces(m) and not blocks and reads_columns(m.definition, rows):
            return "a row would be a column in memory: loops across rows are faster"
    return None


def _rows_are_long(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    total = sum(_operations(state, m) for m in state.merged(merge).members)
    return None if total <= MAX_ROW_OPERATIONS else f"the nests of a row would have {total} operations"


def _row_is_short(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    width = max(points(m.definition) for m in state.merged(merge).members) // state.row_count(merge)
    return f"a row has {width} elements: loops across rows are faster" if width < MIN_ROW else None


def _rows_are_few(
    facts: Facts, state: Kernels, merge: Merge, least: int = MIN_ROWS, long: int = LONG_ROW
) -> str | None:
    """least, long: rows of which all threads have some; elements of a row that is worth to be shared among them."""
    rows, width = _rows_of(state, merge)
    if rows >= least or width < long or not _is_in_pieces(state, merge):
        return None
    return f"threads would share {rows} rows of {width} elements"


def _sums_are_many(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    """A vector times a matrix, of few rows: by itself all threads share its sums, in a row kernel one has them all."""
    rows, _ = _rows_of(state, merge)
    for m in state.merged(merge).members if rows < MIN_ROWS else ():
        if reduces(m) and m.size >= MIN_ROW * rows and points(m.definition) >= LONG_ROW * rows:
            return f"threads share the {m.size // rows} sums of {m.name} in each of {rows} rows better by themselves"
    return None


def _moved_rows_are_few(facts: Facts, state: Kernels, merge: Merge, least: int = MIN_ROWS) -> str | None:
    """What only moves goes as fast by itself, shared among all threads."""
    rows, width = _rows_of(state, merge)
    return None if rows >= least else f"threads would share {rows} rows of {width} elements"


def _rows_of(state: Kernels, merge: Merge) -> tuple[int, int]:
    """How many there are, and the elements of one."""
    rows = state.row_count(merge)
    return rows, max(points(m.definition) for m in state.merged(merge).members) // rows


def _is_in_pieces(state: Kernels, merge: Merge) -> bool:
    """Whether a row of what is reduced lies in several places: of all rows together a part each."""
    for m, rows in zip(state.merged(merge).members, state.row_dims(merge), strict=True):
        for source, indices in state.storage.places(m, frozenset(state.storage.reads[m])) if reduces(m) else ():
            inside = [any(a.ident not in rows for a in i.free) for i in indices if i.free]
            if source.size > m.size and any(inside) and not all(inside[inside.index(True) :]):
                return True
    return False


def _row_is_scattered(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    for m, turn in zip(state.merged(merge).members, merge.turns, strict=False):
        pieces_of_row = math.prod(n for d, n in enumerate(m.shape[: turn.rows[-1]]) if d not in turn.rows)
        if turn.width == 1 and pieces_of_row > 1:
            return f"a row of {m.name} lies in {pieces_of_row} pieces: memory is faster from one end to the other"
    return None


def _row_is_large(facts: Facts, state: Kernels, merge: Merge, most: int = MAX_ROW_BYTES) -> str | None:
    between = sum(m.nbytes for m in state.merged(merge).members) // state.row_count(merge)
    return f"what lies between the nodes exceeds {most} bytes a row" if between > most else None


def _large_row_saves_little(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    """The same where its reward is known: whether what lies between the nodes of a row leaves the cache for little."""
    if (large := _row_is_large(facts, state, merge)) is None:
        return None
    two, one = _compared(state, merge)
    return None if is_worth(two, one) else f"{large}, and one kernel would take {told(two, one)}"


def _loses(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    """Whether one kernel surely takes more work, or more memory, than it saves of the two: R of section 5.1."""
    two, one = _compared(state, merge)
    return None if two >= one or not is_worth(one, two) else f"one kernel would take {told(two, one)}"


def _compared(state: Kernels, merge: Merge) -> tuple[float, float]:
    """Seconds of the two kernels, and of one in their place."""
    before = [state.cost(state.kernels[n]) for n in (merge.first, merge.second)]
    after = state.cost(state.merged(merge))
    one = spent([after], STATED)
    return one + reward(before, [after], STATED), one


OBJECTIONS = (
    Objection(INLINING.name, "a contraction reads it often", _contraction_reads_often),
    Objection(INLINING.name, "it lies packed", _lies_packed),
    Objection(INLINING.name, "it lies along vectors", _lies_along),
    Objection(INLINING.name, "a reader reads it often", _reader_repeats),
    Objection(INLINING.name, "several readers repeat its work", _readers_repeat),
    Objection(INLINING.name, "several readers read more than it has", _readers_read_more),
    Objection(INLINING.name, "its points differ", _has_forms),
    Objection(INLINING.name, "forms would read across memory", _forms_read_across),
    Objection(INLINING.name, UNTURNED, _cannot_be_turned),
    Objection(INLINING.name, "it is a part", _is_a_part),
    Objection(INLINING.name, "it takes the place of a contraction", _takes_a_place),
    Objection(INLINING.name, "many nodes", _many_nodes),
    Objection(INLINING.name, "a kernel repeats it at many points", _many_points),
    Objection(INLINING.name, "a kernel grows large", _many_instructions),
    Objection(INLINING.name, "many copies", _many_copies),
    Objection(EPILOGUES.name, "many outputs", _many_outputs),
    Objection(EPILOGUES.name, "many results", _many_results),
    Objection(EPILOGUES.name, "it is long", _is_long),
    Objection(SIBLINGS.name, "many outputs", _many_outputs),
    Objection(SIBLINGS.name, "it is long", _is_long),
    Objection(ROW_KERNELS.name, "a contraction has its own loops", _has_its_own_loops),
    Objection(ROW_KERNELS.name, "a row is a column", _row_is_a_column),
    Objection(ROW_KERNELS.name, "a row is in pieces", _row_is_scattered),
    Objection(ROW_KERNELS.name, "a row is short", _row_is_short),
    Objection(ROW_KERNELS.name, LARGE_ROW, _row_is_large),
    Objection(ROW_KERNELS.name, "rows are long", _rows_are_long),
    Objection(ROW_KERNELS.name, "rows are few", _rows_are_few),
    Objection(ROW_KERNELS.name, "sums are many", _sums_are_many),
    Objection(ROW_KERNELS.name, LOSES, _large_row_saves_little),
    Objection(ROW_KERNELS.name, LOSES, _loses),
    Objection(MOVES.name, "a contraction has its own loops", _has_its_own_loops),
    Objection(MOVES.name, "a row is short", _row_is_short),
    Objection(MOVES.name, LARGE_ROW, _row_is_large),
    Objection(MOVES.name, "rows are long", _rows_are_long),
    Objection(MOVES.name, "rows are few", _moved_rows_are_few),
    Objection(MOVES.name, LOSES, _large_row_saves_little),
    Objection(MOVES.name, LOSES, _loses),
    Objection(ALONGSIDE.name, "a contraction has its own loops", _has_its_own_loops),
    Objection(ALONGSIDE.name, "a row is a column", _row_is_a_column),
    Objection(ALONGSIDE.name, "a row is in pieces", _row_is_scattered),
    Objection(ALONGSIDE.name, "a row is short", _row_is_short),
    Objection(ALONGSIDE.name, LARGE_ROW, _row_is_large),
    Objection(ALONGSIDE.name, "rows are long", _rows_are_long),
    Objection(ALONGSIDE.name, "rows are few", _rows_are_few),
    Objection(ALONGSIDE.name, "sums are many", _sums_are_many),
    Objection(ALONGSIDE.name, LOSES, _large_row_saves_little),
    Objection(ALONGSIDE.name, LOSES, _loses),
)
