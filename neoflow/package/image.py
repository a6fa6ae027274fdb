"""The memory of an instance of a package in C: the plans in the form that the team reads, their places worked out.

What is an address there is a base and a distance, which `codegen/cpu/package.ll` adds when an instance is opened. Bases
are the instance itself, the constants in the library, functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from neoflow.codegen import FIRST_FUNCTION, Image, Runs
from neoflow.package.contents import Contents, Program
from neoflow.runtime.device import ALIGNMENT
from neoflow.runtime.device.cpu import native_form
from neoflow.runtime.device.team import MOST_THREADS, TEAM_BYTES
from neoflow.runtime.executor import changed_by, fault_of
from neoflow.runtime.layout import Layout

_PAGE = 4096
_OWN, _CONSTANTS = 1, 2
"""Bases: the instance, the constants."""
_COPY, _LOOP = "nf_team_copy", "nf_team_loop"
MESSAGES = (
    "",
    "an array is a null pointer",
    f"an array does not begin at a multiple of {ALIGNMENT} bytes",
    "the file of parameters cannot be read or written",
    "the file of parameters is not one of this model",
)
"""What numbers mean that any function may give; those of faults follow."""
UNREADABLE, FOREIGN = 3, 4
"""The numbers of the two about files."""


class Places:
    """Bytes of an instance, given out from its start; words are rows of a place, a base, what is added."""

    def __init__(self) -> None:
        self.end = 0
        self.words: list[tuple[int, int, int]] = []

    def take(self, nbytes: int, alignment: int = ALIGNMENT) -> int:
        start = -(-self.end // alignment) * alignment
        self.end = start + nbytes
        return start

    def put(self, place: int, rows: np.ndarray, bases: np.ndarray) -> None:
        """Words from a place on, row by row; those that are 0 need none."""
        flat = zip(bases.reshape(-1).tolist(), rows.reshape(-1).tolist(), strict=True)
        self.words += [(place + 8 * n, base, value) for n, (base, value) in enumerate(flat) if base or value]


def make_image(name: str, contents: Contents, threads: int, constants: bytes, head: bytes) -> Image:
    """An instance of a package for a CPU, with at most so many threads. head: what a file of parameters begins with."""
    functions = list(dict.fromkeys(s for p in contents.programs for k in p.plan.kernels for s in k.symbols))
    numbers = {symbol: n for n, symbol in enumerate((*functions, _COPY, _LOOP), FIRST_FUNCTION)}
    places = Places()
    places.take(64 + 24 * min(threads, MOST_THREADS))
    team = places.take(TEAM_BYTES, _PAGE)
    places.words.append((team + 40, 0, 1))
    bound = [_Bound(places, p, numbers, threads) for p in contents.programs]
    parameters = tuple(places.take(p.nbytes) for p in contents.parameters)
    cleared = places.end
    arena = places.take(max(p.plan.arena_bytes for p in contents.programs))
    scratch = places.take(max(p.plan.scratch_bytes for p in contents.programs))
    messages, runs = list(MESSAGES), []
    for b in bound:
        b.point(parameters, [c.offset for c in contents.constants], {"temporary": arena, "scratch": scratch})
        first = []
        for number in b.layout.failing:
            first.append(len(messages) - 1)
            messages += _faults(b.program, number)
        bindings = np.array(b.bindings, np.int64).reshape(-1, 3)
        count = len(b.program.inputs) + len(b.program.outputs)
        runs.append(Runs(b.program.name, b.header, count, bindings, b.status, tuple(first)))
    nbytes = -(-places.end // _PAGE) * _PAGE
    words = np.array(places.words, np.int64)
    return Image(
        name,
        min(threads, MOST_THREADS),
        nbytes,
        cleared,
        team,
        words,
        (*functions, _COPY, _LOOP),
        constants,
        head,
        parameters,
        tuple(runs),
        tuple(messages),
    )


def _faults(program: Program, number: int) -> list[str]:
    """What each value of the status word of a call means."""
    plan = program.plan
    written = [b for n, b in zip(program.parameters, plan.parameters, strict=True) if n in program.updated]
    changed = changed_by(plan, number, written)
    count = len(plan.kernels[plan.calls[number].kernel].faults)
    return [f"{fault_of(plan, number, word)}; {changed}" for word in range(1, count + 1)]


class _Bound:
    """A function in an instance: its program for the team, its table of pointers, its status words."""

    def __init__(self, places: Places, program: Program, numbers: dict[str, int], threads: int):
        self.places, self.program = places, program
        plan = program.plan
        addresses = [[numbers[e.symbol] for e in k.entries] for k in plan.kernels]
        self.layout = layout = Layout(plan, addresses, numbers[_COPY], numbers[_LOOP], threads)
        form = native_form(layout.launches, threads)
        self.header = places.take(40)
        regions, phases = places.take(form.regions.nbytes), places.take(form.phases.nbytes)
        self.table, self.status = places.take(8 * len(layout.table)), places.take(4 * len(layout.failing))
        self.bindings: list[tuple[int, int, int]] = []
        places.put(self.header, np.array([regions, len(form.regions)]), np.array([_OWN, 0]))
        functions = form.phases[:, 0].copy()
        form.phases[:, 0], form.phases[:, 1] = 0, self.table + 8 * form.phases[:, 1]
        places.put(phases, form.phases, np.stack([functions, np.full_like(functions, _OWN), 0 * functions], 1))
        failing = form.regions[:, 2] >= 0
        form.regions[:, 0] = phases + 24 * form.regions[:, 0]
        form.regions[:, 2] = np.where(failing, self.status + 4 * form.regions[:, 2], 0)
        own = np.full(len(failing), _OWN)
        places.put(regions, form.regions, np.stack([own, 0 * own, np.where(failing, _OWN, 0)], 1))
        table = np.array(layout.table, np.int64)
        bases = np.zeros_like(table)
        bases[layout.functions], table[layout.functions] = table[layout.functions], 0
        places.put(self.table, table, bases)
        for n, place in enumerate(layout.status_places):
            places.words.append((self.table + 8 * place, _OWN, self.status + 4 * n))

    def point(self, parameters: Sequence[int], constants: Sequence[int], rooms: Mapping[str, int]) -> None:
        """Words for all pointers whose memory is known, and bindings for those that come with a call."""
        program, plan = self.program, self.program.plan
        known = {b: (_OWN, parameters[n]) for n, b in zip(program.parameters, plan.parameters, strict=True)}
        known |= {b: (_CONSTANTS, constants[n]) for n, b in zip(program.constants, plan.constants, strict=True)}
        known |= {n: (_OWN, rooms[b.kind] + b.offset) for n, b in enumerate(plan.buffers) if b.kind in rooms}
        given = {b: n for n, b in enumerate((*plan.inputs, *plan.outputs))}
        for base, place, offset in spots(self.layout):
            if base not in known and base not in given:  # an old value of a parameter, kept during the call
                known[base] = (_OWN, self.places.take(plan.buffers[base].nbytes))
            at = self.table + 8 * place
            if base in given:
                self.bindings.append((at, given[base], offset))
            else:
                self.places.words.append((at, known[base][0], known[base][1] + offset))


def spots(layout: Layout) -> Iterator[tuple[int, int, int]]:
    """Where in its table addresses of memory go: the buffer that is no view, the place, how many bytes further."""
    buffers = layout.plan.buffers
    found = [(number, place, 0) for number, places in layout.places.items() for place in places]
    for number, sweep in layout.sweeps.items():
        found += [(number, *spot) for spot in zip(sweep.places.tolist(), sweep.offsets.tolist(), strict=True)]
    for number, place, further in found:
        base, offset = number, further
        while buffers[base].kind == "view":
            base, offset = buffers[base].base, offset + buffers[base].offset
        yield base, place, offset
