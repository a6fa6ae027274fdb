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
    """A loop of a plan and what it is as one launch, or why it is none. roots: the buffers it goes through."""

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
            return f"loop {self.name}: {answer}, in place of {self.launches}"
        return f"loop {self.name}: {self.launches} launches: {answer}"


@dataclass(frozen=True)
class Loops:
    """The loops of a plan, outermost ones alone. built: where the code is of those that are one launch, and by which
    key."""

    found: tuple[Found, ...]
    built: tuple[tuple[Found, str, Module], ...] = ()

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
    launches = loop.turns * sum(len(plan.kernels[plan.calls[n].kernel].entries) for n in calls)
    places = _Places(plan, loop)
    refused = _refused(plan, loop, calls)
    if refused is not None:
        return Found(loop, name, launches, Verdict(False, refused), ())
    parts = [
        Part(k.subgraph, k.schedule, tuple(places.pointer(b) for b in plan.calls[n].arguments))
        for n in calls
        for k in (kernels[plan.calls[n].kernel],)
    ]
    dtypes = [plan.buffers[n].dtype for n in places.roots]
    return Found(
        loop, name, launches, persistent(dtypes, parts, loop.turns, places.overlaps, target), tuple(places.roots)
    )


def _refused(plan: Plan, loop: Repeated, calls: range) -> str | None:
    if any(loop.holds(a) for a in plan.loops if a is not loop):
        return "there are loops inside"
    if any(plan.kernels[plan.calls[n].kernel].faults for n in calls):
        return "a kernel checks indices that are data"
    return None


class _Places:
    """Where the arguments of a loop's calls lie, as pointers into memory that is apart: temporaries that have the same
    place one after the other are one. overlaps: those that have a part of it in common with others, in words."""

    def __init__(self, plan: Plan, loop: Repeated):
        self.plan = plan
        self.moving: Mapping[int, Moving] = {m.buffer: m for m in loop.moving}
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
        m = self.moving.get(number)
        motion = None if m is None else Motion(m.step // width, m.period, m.ahead)
        return Pointer(self.number[root], at // width, motion)
