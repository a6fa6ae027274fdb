"""Loops of a plan as one launch each: a *persistent* kernel goes through all turns without coming back.

    for every thread: for turn in turns: for part in parts: part at the thread's own point      every point alone
    for a block:      for turn in turns: for part in parts: all tasks of part; a barrier        little in a turn

*Points*: whatever the turns write is read at the reader's own point, so a thread needs no other one, and no barrier.
Where points need others and a turn is little work, a *block* does all of it, whose threads wait for each other after
each kernel: that takes less than to launch it, by an estimate. Where equal parts of what is carried are not mixed by a
step (`partition.strands`), a block does all of one. No block waits for another one in either form.

Source of the form: persistent threads (Gupta, Stuart and Owens, A study of persistent threads style GPU programming,
2012); weights that stay near a block: Diamos and others, Persistent RNNs, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neoflow.architectures import WARP, architecture
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read, postorder, substitute
from neoflow.loops import costs
from neoflow.loops.gpu.blocks import USUAL_THREADS, ceil_power, powers
from neoflow.loops.gpu.estimate import FORMS, LAUNCH_SECONDS, estimate
from neoflow.loops.gpu.limits import STATIC_BYTES
from neoflow.loops.gpu.map import total
from neoflow.loops.nest import Nest
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import KnobValue, Schedule
from neoflow.loops.template import complete, legal, problem_of
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target
from neoflow.verdict import Verdict

POINTS, BLOCK = "points", "block"
PART_SECONDS = 1e-6
"""Of a kernel within a block: its loads are waited for, then all threads. By order of magnitude, on no GPU yet."""
BLOCK_BANDWIDTH = 90e9
"""Bytes a second that a processor reads from the level-2 cache: 64 in each of 1.4e9 cycles."""
MOST_THREADS = 512
"""Of a block: each has 128 registers then."""
MOST_PARTS = 16
"""Kernels of a turn: they are one function, whose registers and instructions are those of all."""


@dataclass(frozen=True)
class Motion:
    """In turn n of its loop a pointer is `step` * ((n + ahead) % period) elements further."""

    step: int
    period: int
    ahead: int


@dataclass(frozen=True)
class Pointer:
    """Where an argument lies in the memory of number `root`: `offset` elements from its beginning in the first turn.

    turns, strands: how it moves with them; None: it does not.
    """

    root: int
    offset: int
    turns: Motion | None = None
    strands: Motion | None = None


@dataclass(frozen=True)
class Part:
    """A kernel of a turn: inputs, then outputs."""

    subgraph: Subgraph
    schedule: Schedule
    pointers: tuple[Pointer, ...]


@dataclass(frozen=True)
class Persistent:
    """A loop as one launch. roots: dtypes of the memory it goes through; `mixed`: of which of it a thread reads what
    others have written. threads: of a block. strands: how many there are, each a block, where it goes in some."""

    form: str
    roots: tuple[str, ...]
    parts: tuple[Part, ...]
    turns: int
    blocks: int
    threads: int
    mixed: frozenset[int] = frozenset()
    strands: int = 0

    @property
    def reason(self) -> str:
        """How it goes, in words."""
        how = "each point alone, " if self.form == POINTS else "a barrier after each kernel, "
        how = f"{self.strands} strands, {how}" if self.strands else how
        blocks = f"{self.blocks} blocks" if self.blocks > 1 else "a block"
        return f"{self.turns} turns in one launch: {how}{blocks} of {self.threads} threads"


def persistent(
    roots: Sequence[str],
    parts: Sequence[Part],
    turns: int,
    strands: int,
    overlaps: Mapping[int, str],
    target: Target,
) -> Persistent | Verdict:
    """The launch of a loop; or why there is none.

    roots: dtypes of memory. parts: by the schedules of their own launches, of one strand where it goes in some;
    strands: how many, or 0. overlaps: by number, the memory that lies in that of others for a time, and how this is
    told.
    """
    if target.kind != "cuda":
        return Verdict(False, "loops in one launch are written in CUDA C++ alone")
    if len(parts) > MOST_PARTS:
        return Verdict(False, f"a turn has {len(parts)} kernels, more than {MOST_PARTS}")
    if strands:
        return _block(roots, parts, turns, strands, overlaps, target)
    alone = _points(roots, parts, turns, overlaps, target)
    if isinstance(alone, Persistent):
        return alone
    block = _block(roots, parts, turns, 0, overlaps, target)
    return block if isinstance(block, Persistent) else Verdict(False, f"{alone.reason}; {block.reason}")


# --- every point alone


def _points(
    roots: Sequence[str], parts: Sequence[Part], turns: int, overlaps: Mapping[int, str], target: Target
) -> Persistent | Verdict:
    if overlaps:
        return Verdict(False, next(iter(overlaps.values())))
    scheduled = _alike(parts, target)
    if isinstance(scheduled, Verdict):
        return scheduled
    nests = [_nest(p) for p in scheduled]
    extents = [tuple(a.extent for a in n.axes) for n in nests]
    if len(set(extents)) > 1:
        return Verdict(False, f"its kernels have other points: {' and '.join(map(str, dict.fromkeys(extents)))}")
    mixing = _mixing(scheduled, nests)
    if mixing is not None:
        return Verdict(False, mixing)
    schedule = scheduled[0].schedule
    count, threads = total(nests[0], int(schedule["lanes"])), int(schedule["threads"])
    return Persistent(POINTS, tuple(roots), tuple(scheduled), turns, math.ceil(count / threads), threads)


def _alike(parts: Sequence[Part], target: Target) -> list[Part] | Verdict:
    """All parts by schedules in which a thread has the same points; why there are none."""
    for p in parts:
        problem = problem_of(p.subgraph)
        if p.schedule.template != "gpu_map" or not isinstance(problem, NestProblem):
            return Verdict(False, f"a turn has a kernel by {p.schedule.template}, whose points need others")
        if p.schedule["turn"] != "no":
            return Verdict(False, "a kernel of a turn goes through shared memory, where its points need others")
    ends = [p.subgraph.lying(p.subgraph.outputs[0]).shape[-1:] for p in parts]
    lanes = math.gcd(*(int(p.schedule["lanes"]) for p in parts), *(n for end in ends for n in end or (1,)))
    points = min(costs.points(_nest(p).axes) for p in parts) // lanes
    threads = _threads(points, target)
    knobs: dict[str, KnobValue] = {
        "fuse": 0,
        "turn": "no",
        "inner": -1,
        "lanes": lanes,
        "threads": threads,
        "vectors": 1,
    }
    found: list[Part] = []
    for p in parts:
        problem = problem_of(p.subgraph)
        schedule = complete("gpu_map", problem, target, knobs)
        verdict = legal(problem, schedule, target)
        if not verdict.ok:
            return verdict
        found.append(replace(p, schedule=schedule))
    return found


def _threads(points: int, target: Target) -> int:
    """Of a block: as many as usual where the blocks are enough for all processors, else fewer, a warp at least."""
    enough = [n for n in powers(USUAL_THREADS) if n >= WARP and points // n >= architecture(target).processors]
    return max(enough, default=WARP)


def _nest(part: Part) -> Nest:
    problem = problem_of(part.subgraph)
    assert isinstance(problem, NestProblem)
    return problem.fused(part.schedule)


def _mixing(parts: Sequence[Part], nests: Sequence[Nest]) -> str | None:
    """What a thread would need of others, if anything: everything that turns write has to be read and written at one
    place of each value for each point."""
    names = [Axis(n, extent) for n, extent in enumerate(a.extent for a in nests[0].axes)]
    written = {p.root for part in parts for p in part.pointers[len(part.subgraph.inputs) :]}
    places: dict[int, tuple[tuple[int, int], Expr]] = {}
    for part, nest in zip(parts, nests, strict=True):
        axes: Mapping[Expr, Expr] = dict(zip(nest.axes, names, strict=True))
        for number, address in _addresses(part.subgraph, nest):
            pointer = _pointer(part, number)
            if pointer.root not in written:
                continue
            if address is None:
                return f"{_name(part.subgraph, number)} is read at an index that is data"
            size = _size(part.subgraph, number)
            if pointer.turns is not None and pointer.turns.step % size:
                return "what turns write overlaps with what other turns write"
            lying, at = (size, pointer.offset % size), affine.simplify(substitute(address, axes))
            first, other = places.setdefault(pointer.root, (lying, at))
            if first != lying or other is not at:
                return f"{_name(part.subgraph, number)} is read or written at other points than its own"
    return None


# --- a block


def _block(
    roots: Sequence[str],
    parts: Sequence[Part],
    turns: int,
    strands: int,
    overlaps: Mapping[int, str],
    target: Target,
) -> Persistent | Verdict:
    """All of it by one block, or by one for each strand, whose threads wait for each other after each kernel."""
    for p in parts:
        if p.schedule.template not in INSTEAD:
            return Verdict(False, f"a turn has a kernel by {p.schedule.template}, which is for many blocks")
    scheduled: list[Part] | Verdict = Verdict(False, "")
    for threads in _block_threads(parts):
        scheduled = _by_threads(parts, threads, target)
        if not isinstance(scheduled, Verdict):
            break
    if isinstance(scheduled, Verdict):
        return scheduled
    alone = sum(_alone_seconds(p, target) for p in scheduled)
    alone *= math.ceil(strands / architecture(target).processors) if strands else 1
    launched = sum(_launched_seconds(p, strands, target) for p in parts)
    if alone > launched:
        told = f"{alone * 1e6:.1f} us a turn by estimate, its launches {launched * 1e6:.1f}"
        return Verdict(False, f"by one block it takes {told}")
    mixed = {p.root for part in parts for p in part.pointers[len(part.subgraph.inputs) :]} | set(overlaps)
    return Persistent(BLOCK, tuple(roots), tuple(scheduled), turns, max(1, strands), threads, frozenset(mixed), strands)


INSTEAD = {
    "gpu_map": "gpu_map",
    "gpu_reduction": "gpu_reduction",
    "gpu_contraction": "gpu_reduction",
    "gpu_rows": "gpu_rows",
}
"""By the template of a kernel's own launch, that of its part of a turn: one whose threads may be any number."""


def _block_threads(parts: Sequence[Part]) -> list[int]:
    """Of a block, the best first: as many as a kernel has work for, or fewer where these take too many registers."""
    wanted = max(_work(p) for p in parts)
    return [n for n in reversed(powers(MOST_THREADS)) if WARP <= n <= max(WARP, ceil_power(wanted))]


def _work(part: Part) -> int:
    """Points, a warp for each that is reduced."""
    problem = problem_of(part.subgraph)
    points = max(math.prod(part.subgraph.lying(o).shape) for o in part.subgraph.outputs)
    is_reduced = not isinstance(problem, NestProblem) or problem.nest.reduction is not None
    return points * (WARP if is_reduced else 1)


def _by_threads(parts: Sequence[Part], threads: int, target: Target) -> list[Part] | Verdict:
    """All parts by schedules of so many threads; why there are none."""
    found: list[Part] = []
    shared = 0
    for p in parts:
        template, problem = INSTEAD[p.schedule.template], problem_of(p.subgraph)
        knobs: dict[str, KnobValue] = {"threads": threads, **_FIXED.get(template, {})}
        schedule = complete(template, problem, target, knobs)
        verdict = legal(problem, schedule, target)
        if not verdict.ok:
            return verdict
        shared += FORMS[template].block(problem, target, schedule).shared_bytes
        if template == "gpu_rows" and schedule["place"] != "shared":
            return Verdict(False, "the rows of a kernel do not fit into shared memory")
        if shared > STATIC_BYTES:
            return Verdict(False, f"its kernels take {shared} bytes of shared memory, more than {STATIC_BYTES}")
        found.append(replace(p, schedule=schedule))
    return found


_FIXED: dict[str, dict[str, KnobValue]] = {"gpu_map": {"turn": "no"}, "gpu_reduction": {"splits": 1}}


def _launched_seconds(part: Part, strands: int, target: Target) -> float:
    """Of a kernel by launches of its own; of all strands together, the kernel being one strand's."""
    problem = problem_of(part.subgraph)
    found = estimate(problem, part.schedule, target)
    if not strands:
        return found.seconds
    a, m = architecture(target), FORMS[part.schedule.template].measures(problem, target, part.schedule)
    work = max(strands * m.operations / (a.flops / 2), (m.read + strands * m.written) / a.bandwidth)
    return found.launches * LAUNCH_SECONDS + work


def _alone_seconds(part: Part, target: Target) -> float:
    """Of a kernel by one block, by estimate."""
    a, problem = architecture(target), problem_of(part.subgraph)
    m = FORMS[part.schedule.template].measures(problem, target, part.schedule)
    return PART_SECONDS + (m.read + m.written) / BLOCK_BANDWIDTH + m.operations * a.processors / (a.flops / 2)


def _addresses(subgraph: Subgraph, nest: Nest) -> list[tuple[int, Expr | None]]:
    """Every access of a kernel: of which of its values, and where; None: at an index that is data."""
    found: list[tuple[int, Expr | None]] = [(number, address) for number, address, _ in nest.outputs]
    for _, _, value in nest.outputs:
        for node in postorder(value):
            if isinstance(node, Read) and node.slot < len(subgraph.inputs):
                is_flat = len(node.indices) == 1 and not any(isinstance(e, Read) for e in postorder(node.indices[0]))
                found.append((node.slot, node.indices[0] if is_flat else None))
    return found


def _pointer(part: Part, number: int) -> Pointer:
    """Of a value of its subgraph: an input or an output."""
    count = len(part.subgraph.inputs)
    return part.pointers[number if number < count else count + part.subgraph.outputs.index(number)]


def _size(subgraph: Subgraph, number: int) -> int:
    """Elements of a value of a subgraph."""
    value = subgraph.inputs[number] if number < len(subgraph.inputs) else subgraph.lying(number)
    return math.prod(value.shape)


def _name(subgraph: Subgraph, number: int) -> str:
    value = subgraph.inputs[number] if number < len(subgraph.inputs) else subgraph.lying(number)
    return f"a value of shape {tuple(value.shape)} of {dt.NUMPY[value.dtype]}"
