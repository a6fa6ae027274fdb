"""Which legal fusions are worth doing: for each rule what speaks against, asked in order. The first objection decides.

The last of them is the reward of what two kernels are by now, in the one currency of `graph.cost`: surely below 0 they
stay apart; and where one keeps much for a row, they are one only where it is surely above 0.
Those before it say what that estimate does not know. Their numbers are judgements of kind ("several times", "fits the
first cache"), the same for every machine, not measurements of one.

What is recomputed does not go by the reward, for that was tried in four forms, forward and backward counted: by the
estimate steps became between 0.6 % shorter and 0.3 % longer; measured in two of these forms, mi_lstm took 1.05 times as
long, lltm and sru_rnntc 1.02, nasrnn 1.01 (one thread, processor time in turns, busy Xeon). Differences that small are
no more than what the estimate does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from neoflow.architectures import ACCESS_BYTES
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Compute
from neoflow.graph import (
    LONGEST,
    contiguous_offset,
    is_contraction,
    operations,
    pieces,
    points,
)
from neoflow.graph.cost import is_worth, told
from neoflow.partition import inlined
from neoflow.partition.cost import reward, spent
from neoflow.partition.facts import goes_across, reads_columns, reduces
from neoflow.partition.graph_facts import Facts
from neoflow.partition.inlined import MAX_NODES, READ_OFTEN, UNTURNED, WRITTEN_OUT
from neoflow.partition.kernels import Kernels, Merge
from neoflow.partition.rules import (
    ALONGSIDE,
    EPILOGUES,
    INLINING,
    MOVES,
    PARTS,
    RIDERS,
    ROW_KERNELS,
    SHARING,
    SIBLINGS,
    VIEWS,
)

MAX_OUTPUTS = 4
"""Tensors a kernel writes. More streams are not slow by themselves: in kernels of 8 to 32, chains of 16 and 32 results
took 0.40 to 1.09 of the time, mostly 0.75 to 0.98. But where kernels share little, the reward says the same of both, to
0.01 %, and they are no faster: without the limit sru_rnntc, of 32 calls instead of 47, took 1.02 times as long and
nasrnn 1.03 (one thread, processor time; an early form by the reward, two threads: sru_rnntc 1.06; busy Xeon). By the
reward, saving a tenth, chains become kernels of 5."""

MIN_ROW = 32
"""Elements of a row from which a row kernel pays: a few vectors, beside which their rest and the loop cost little. On a
CPU kernels that reduce are one below it too where their reward is surely above 0: softmax of 600 rows of 5 took 1.5
times as long as one kernel, of 4096 and of 65536 rows of 16 0.96 (two threads, idle Xeon). What is moved stays above
it, as the first rows that save are taken, and longer ones may save more."""

MIN_ROWS, LONG_ROW = 8, 1 << 16
"""Rows from which all threads have some, and elements from which a row is worth to be shared among them; the same of
a GPU, whose hundred processors take blocks of threads:"""
GPU_ROWS, GPU_LONG_ROW = 256, 1 << 12

LONG_SUMS = 1 << 15
"""Terms of all sums of a row from which threads had better share them, where rows are few. The first step of LLTM, 384
sums of 156, took 10 us in a row kernel beside 3; chains of 128 sums of 220, no faster by themselves, stay one."""

MAX_ROW_BYTES, GPU_ROW_BYTES = 1 << 18, 1 << 16
"""What lies between the nodes of one row: a quarter of a core's own cache, so that planes of 112 x 112 go through
pooling and its adjoint once, 1.3 times as fast as in two kernels; of a GPU what its shared memory holds. Rows that are
no leading dimensions are streams of memory that is written anyway, and stay in that cache with what is read. On a CPU a
larger row goes by the reward, which has to be surely above 0: three kinds of kernels of shufflenet do, and its step of
16 took 0.98 of the time (one thread, processor time, busy Xeon)."""

GATHERED_BYTES = 1 << 20
"""Of a tensor, from which no row of a map gathers elements that lie one in a line: rows that follow find their lines
gone. The tiles of Winograd's results, channels last, took 22 ms in a kernel whose rows are channels, and 1 in two."""

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
    left = {*besides} if LOSES in besides else {*besides, *BY_REWARD}
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
    if rule == RIDERS.name:
        return "tiles of a GPU add nothing up"
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
    is_free = rule == INLINING.name and inlined.is_multiplied_narrow(facts, state, candidate)
    if rule == INLINING.name and not is_free and (often := inlined.is_read_in_windows(state, candidate)) is not None:
        return often
    return object_to(rule, facts, state, candidate, besides | set(READ_OFTEN) if is_free else besides)


LOSES = "it loses"
"""The objection by the reward: named, so that it can be left out. What goes through the same points as one kernel
moves less, calls less and computes nothing more often: nobody need ask."""
LARGE_ROW, SHORT_ROW, IN_PIECES = BY_REWARD = ("a row is large", "a row is short", "a row is in pieces")
"""Those that decide where there is no reward; where there is, it has to be surely above 0. Channels of a batch as rows,
which are a piece a sample, made steps of 16 samples take 0.95 (ShuffleNet) and 0.94 (MobileNet) of the time on an idle
Xeon: a sum over a channel and what follows from it read it once. Columns as rows are no matter of the reward: by it
alone LLTM's step took 1.12 times as long."""


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


def _row_gathers(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    """Whether a map in a row reads large memory whose neighbours belong to other rows: a line for each element."""
    if any(t.width > 1 for t in merge.turns):
        return None
    members = {*state.merged(merge).members}
    for m, rows in zip(state.merged(merge).members, state.row_dims(merge), strict=True):
        if reduces(m):
            continue
        for source, indices in state.storage.places(m, frozenset(state.storage.reads[m]) - members):
            if source.nbytes > GATHERED_BYTES and goes_across(indices, rows):
                return f"a row would gather what it reads of {source.name}: loops across rows are faster"
    return None


def _row_computes_forms(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    """What begins a row is computed where it is read, and that is one point at a time."""
    found = next((m for m in state.merged(merge).members if inlined.computes_forms(m)), None)
    return None if found is None else f"{found.name}: {WRITTEN_OUT}"


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
        if reduces(m) and m.size >= MIN_ROW * rows and points(m.definition) >= LONG_SUMS * rows:
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


def _loses(rule: str, facts: Facts, state: Kernels, merge: Merge) -> str | None:
    """Whether one kernel surely takes more work, or more memory, than it saves of the two: R of section 5.1. Where a
    fixed limit of the rule (`BY_REWARD`) would speak against it, whether it does not surely take less."""
    two, one = _compared(state, merge)
    if is_worth(two, one):
        return None
    limits = (o.raised(facts, state, merge) for o in OBJECTIONS if o.rule == rule and o.name in BY_REWARD)
    doubt = next((sentence for sentence in limits if sentence is not None), None)
    if doubt is not None:
        return f"{doubt}, and one kernel would take {told(two, one)}"
    return None if two >= one or not is_worth(one, two) else f"one kernel would take {told(two, one)}"


def _saves_little(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    two, one = _compared(state, merge)
    return None if is_worth(two, one) else f"one kernel would take {told(two, one)}"


def _saves_nothing(facts: Facts, state: Kernels, merge: Merge) -> str | None:
    """Whether one kernel takes as long as the two: what is not read again is less than what tiles add, and what it
    takes to clear partial sums and to add them, which all threads wait for."""
    two, one = _compared(state, merge)
    one += 2 * state.roofs.start
    return None if one < two else f"one kernel would take {told(two, one)}"


def _compared(state: Kernels, merge: Merge) -> tuple[float, float]:
    """Seconds of the two kernels, and of one in their place."""
    before = [state.cost(state.kernels[n]) for n in (merge.first, merge.second)]
    after = state.cost(state.merged(merge))
    one = spent([after], state.roofs)
    return one + reward(before, [after], state.roofs), one


OBJECTIONS = (
    *(Objection(INLINING.name, name, raised) for name, raised in inlined.OBJECTIONS),
    Objection(EPILOGUES.name, "many outputs", _many_outputs),
    Objection(EPILOGUES.name, "many results", _many_results),
    Objection(EPILOGUES.name, "it is long", _is_long),
    Objection(SIBLINGS.name, "many outputs", _many_outputs),
    Objection(SIBLINGS.name, "it is long", _is_long),
    Objection(ROW_KERNELS.name, "a contraction has its own loops", _has_its_own_loops),
    Objection(ROW_KERNELS.name, "points have forms", _row_computes_forms),
    Objection(ROW_KERNELS.name, "a row is a column", _row_is_a_column),
    Objection(ROW_KERNELS.name, "a row gathers", _row_gathers),
    Objection(ROW_KERNELS.name, IN_PIECES, _row_is_scattered),
    Objection(ROW_KERNELS.name, SHORT_ROW, _row_is_short),
    Objection(ROW_KERNELS.name, LARGE_ROW, _row_is_large),
    Objection(ROW_KERNELS.name, "rows are long", _rows_are_long),
    Objection(ROW_KERNELS.name, "rows are few", _rows_are_few),
    Objection(ROW_KERNELS.name, "sums are many", _sums_are_many),
    Objection(ROW_KERNELS.name, LOSES, partial(_loses, ROW_KERNELS.name)),
    Objection(MOVES.name, "a contraction has its own loops", _has_its_own_loops),
    Objection(MOVES.name, "points have forms", _row_computes_forms),
    Objection(MOVES.name, "a moved row is short", _row_is_short),
    Objection(MOVES.name, LARGE_ROW, _row_is_large),
    Objection(MOVES.name, "rows are long", _rows_are_long),
    Objection(MOVES.name, "rows are few", _moved_rows_are_few),
    Objection(MOVES.name, LOSES, partial(_loses, MOVES.name)),
    Objection(ALONGSIDE.name, "a contraction has its own loops", _has_its_own_loops),
    Objection(ALONGSIDE.name, "points have forms", _row_computes_forms),
    Objection(ALONGSIDE.name, "a row is a column", _row_is_a_column),
    Objection(ALONGSIDE.name, "a row gathers", _row_gathers),
    Objection(ALONGSIDE.name, IN_PIECES, _row_is_scattered),
    Objection(ALONGSIDE.name, SHORT_ROW, _row_is_short),
    Objection(ALONGSIDE.name, LARGE_ROW, _row_is_large),
    Objection(ALONGSIDE.name, "rows are long", _rows_are_long),
    Objection(ALONGSIDE.name, "rows are few", _rows_are_few),
    Objection(ALONGSIDE.name, "sums are many", _sums_are_many),
    Objection(ALONGSIDE.name, LOSES, partial(_loses, ALONGSIDE.name)),
    Objection(SHARING.name, "many outputs", _many_outputs),
    Objection(SHARING.name, "it is long", _is_long),
    Objection(SHARING.name, "it saves little", _saves_little),
    Objection(RIDERS.name, "it saves nothing", _saves_nothing),
)
