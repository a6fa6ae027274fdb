"""The loops of a plan for a GPU that are one launch each: found, compiled and loaded.

A loop stays as it is in the plan, and its kernels are there for whoever runs it turn by turn, as a package does; beside
them it has a kernel of its own (`loops.persistent`), with schedules of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neoflow import codegen, config
from neoflow import dtype as dt
from neoflow.building import library_of
from neoflow.devices import kernel_cache
from neoflow.kernel import Kernel
from neoflow.loops.persistent import Motion, Part, Persistent, Pointer, persistent
from neoflow.runtime.device import Device
from neoflow.runtime.layout import Whole
from neoflow.runtime.plan import Moving, Plan, Repeated
from neoflow.runtime.records import Module
from neoflow.runtime.turns import outermost
from neoflow.target import Target
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class Found:
    """A loop of a plan and what it is as one launch, or why it is none. launches: that it would be otherwise; of one in
    strands, in each. roots: the buffers it goes through."""

    loop: Repeated
    name: str
    launches: int
    kernel: Persistent | Verdict
    roots: tuple[int, ...]

    @property
    def is_one(self) -> bool:
        return isinstance(self.kernel, Persistent)

    def __str__(self) -> str:
        answer = self.kernel.reason
        if isinstance(self.kernel, Persistent):
            others = "" if self.loop.is_apart else f", in place of {self.launches}"
            return f"loop {self.name}: {answer}{others}"
        return f"loop {self.name}: {self.launches} launches: {answer}"


@dataclass(frozen=True)
class Loops:
    """The loops of a plan, outermost ones alone. built: where the code is of those that are one launch, and by which
    key."""

    found: tuple[Found, ...]
    built: tuple[tuple[Found, str, Module], ...] = ()

    @property
    def has_lost_strands(self) -> bool:
        """Whether one goes in strands, which are as many loops, and is no launch."""
        return any(f.loop.is_apart and not f.is_one for f in self.found)

    @property
    def has_strands(self) -> bool:
        """Whether one goes in strands."""
        return any(f.loop.is_apart for f in self.found)

    @property
    def summary(self) -> str:
        return f"{sum(f.is_one for f in self.found)} of {len(self.found)} loops are one launch each"

    def __str__(self) -> str:
        return "\n".join(map(str, self.found))

    def loaded(self, place: Device) -> dict[int, Whole]:
        """What runs them, by the number of their first call."""
        wholes = {}
        for f, key, module in self.built:
            library = library_of(place, module)
            [entry] = module.codes[key].entries
            wholes[f.loop.first] = Whole(f.roots, entry, library.address(entry.symbol), library)
        return wholes


NONE = Loops(())


def persisting(plan: Plan, kernels: Sequence[Kernel], target: Target, settings: config.Config) -> Loops:
    """The loops of a plan as launches, compiled where the cache lacks them and there is a compiler."""
    found = tuple(_found(plan, loop, kernels, target) for loop in outermost(plan.loops))
    if codegen.missing(target) is not None:
        return Loops(found)
    cache, built = kernel_cache(settings), []
    for f in found:
        if not isinstance(f.kernel, Persistent):
            continue
        key, source, code = codegen.lower_persistent(f.kernel, target)
        module = cache.find(key) or cache.publish(codegen.build_persistent(source, target), {key: code})
        built.append((f, key, module))
    return Loops(found, tuple(built))


def _found(plan: Plan, loop: Repeated, kernels: Sequence[Kernel], target: Target) -> Found:
    calls = range(loop.first, loop.first + loop.count)
    name = plan.calls[loop.first + loop.count - 1].name
    inner = _inner(plan, loop)
    launches = inner.turns * sum(len(plan.kernels[plan.calls[n].kernel].entries) for n in calls)
    places = _Places(plan, inner, loop if loop.is_apart else None)
    refused = _refused(plan, loop, inner, calls)
    if refused is not None:
        return Found(loop, name, launches, Verdict(False, refused), ())
    parts = [
        Part(k.subgraph, k.schedule, tuple(places.pointer(b) for b in plan.calls[n].arguments))
        for n in calls
        for k in (kernels[plan.calls[n].kernel],)
    ]
    dtypes = [plan.buffers[n].dtype for n in places.roots]
    strands = loop.turns if loop.is_apart else 0
    made = persistent(dtypes, parts, inner.turns, strands, places.overlaps, target)
    return Found(loop, name, launches, made, tuple(places.roots))


def _inner(plan: Plan, loop: Repeated) -> Repeated:
    """The loop over steps: of one over strands the one inside."""
    inside = [a for a in plan.loops if a is not loop and loop.holds(a)]
    return inside[-1] if loop.is_apart and inside else loop


def _refused(plan: Plan, loop: Repeated, inner: Repeated, calls: range) -> str | None:
    if any(loop.holds(a) for a in plan.loops if a is not loop and a is not inner):
        return "there are loops inside"
    if any(plan.kernels[plan.calls[n].kernel].faults for n in calls):
        return "a kernel checks indices that are data"
    return None


class _Places:
    """Where the arguments of a loop's calls lie, as pointers into memory that is apart: temporaries that have the same
    place one after the other are one. overlaps: those that have a part of it in common with others, in words."""

    def __init__(self, plan: Plan, loop: Repeated, strands: Repeated | None):
        self.plan = plan
        self.moving: Mapping[int, Moving] = {m.buffer: m for m in loop.moving}
        self.apart: Mapping[int, Moving] = {} if strands is None else {m.buffer: m for m in strands.moving}
        used = [b for c in plan.calls[loop.first : loop.first + loop.count] for b in c.arguments]
        self.base = {b: self._base(b) for b in used}
        self.roots: list[int] = []
        self.number: dict[int, int] = {}
        self.overlaps: dict[int, str] = {}
        for root, _ in self.base.values():
            if root not in self.number:
                self._add(root)

    def _add(self, root: int) -> None:
        b = self.plan.buffers[root]
        for n, other in enumerate(self.roots):
            o = self.plan.buffers[other]
            if b.kind != "temporary" or o.kind != "temporary":
                continue
            if (b.offset, b.nbytes, b.dtype) == (o.offset, o.nbytes, o.dtype):
                self.number[root] = n
                return
            if b.offset < o.offset + o.nbytes and o.offset < b.offset + b.nbytes:
                words = f"{b.name} and {o.name} have a part of their memory in common"
                self.overlaps |= {n: words, len(self.roots): words}
        self.number[root] = len(self.roots)
        self.roots.append(root)

    def _base(self, number: int) -> tuple[int, int]:
        """The buffer that is no view, and bytes from its beginning."""
        at = 0
        while self.plan.buffers[number].kind == "view":
            at += self.plan.buffers[number].offset
            number = self.plan.buffers[number].base
        return number, at

    def pointer(self, number: int) -> Pointer:
        root, at = self.base[number]
        width = dt.itemsize(self.plan.buffers[number].dtype)
        moved = (moving.get(number) for moving in (self.moving, self.apart))
        motions = (None if m is None else Motion(m.step // width, m.period, m.ahead) for m in moved)
        return Pointer(self.number[root], at // width, *motions)
