"""A package for a GPU as C programs run it: what the driver is asked for when an instance is opened, run and closed.

Memory there is one block, whose places are worked out here, so that all launches of a function are one graph, captured
once. Arrays are copied from the host before it runs, and to it afterwards.

    open    the GPU, its memory, constants, modules; for each function its launches and copies as a graph
    run     copy inputs, launch the graph, copy outputs and status words, wait
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from neoflow.architectures import taken_by
from neoflow.codegen import ARGUMENTS, DATA, FILL, IGNORED, IS_OTHER, ITSELF, OWN, CFunction, Command, Commands, Word
from neoflow.package.contents import Contents, Program
from neoflow.package.image import MESSAGES, Places, spots
from neoflow.runtime.device import Launch
from neoflow.runtime.device.cuda.driver import ASKED_SHARED_BYTES, NO_TIMES
from neoflow.runtime.device.cuda.memory import ALIGNMENT, rounded
from neoflow.runtime.device.cuda.recording import BRANCHES, COPY
from neoflow.runtime.executor import fault_of, overwritten
from neoflow.runtime.layout import Layout
from neoflow.target import Target

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""
_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_APART, _THIS_THREAD = 1, 1
"""Of a stream: it waits for no legacy one; of a capture: other threads do meanwhile as they like."""
NO_DRIVER, OLD_DRIVER, OTHER_GPU, NO_PARAMETER = range(len(MESSAGES), len(MESSAGES) + 4)
"""The numbers of messages that a package for a GPU has beside `MESSAGES`."""


def _messages(target: Target) -> list[str]:
    return [
        *MESSAGES,
        "there is no NVIDIA driver on this machine: libcuda.so.1 is not found",
        "the NVIDIA driver of this machine is too old for this package: update it",
        f"the package is for {target.mcpu}, and the GPU here is of another architecture: build it for that",
        "there is no parameter of this number",
    ]


class _Branch(NamedTuple):
    """Of graphs: the places of a stream and of an event."""

    stream: int
    event: int


class _Instance:
    """Words on the host, memory on the GPU, data of the library; and the commands over these.

    device, context, stream, there: places of what the driver gives, the last of the address of all memory.
    """

    def __init__(self, contents: Contents, target: Target):
        self.host, self.memory, self.data = Places(), Places(), bytearray()
        self.functions, self.messages = list(OWN), _messages(target)
        self.opening: list[Command] = []
        self.closing: list[Command] = []
        self._branches: list[_Branch] = []
        self.host.take(ARGUMENTS)
        self.host.take(8 * max(3, *(len(p.inputs) + len(p.outputs) for p in contents.programs)))
        self.device, self.context, self.stream, self.there = (self.word() for _ in range(4))

    def word(self) -> int:
        """The place of a word on the host."""
        return self.host.take(8, 8)

    def room(self, nbytes: int) -> int:
        """A place in the memory on the GPU."""
        return self.memory.take(nbytes, ALIGNMENT)

    def put(self, content: bytes) -> Word:
        """Where the library has these bytes; a 0 follows them, which ends strings and PTX."""
        self.data += bytes(-len(self.data) % ALIGNMENT)
        at = len(self.data)
        self.data += content + bytes(1)
        return Word(DATA, at)

    def do(self, function: str, *arguments: Word | int, needs: int = ITSELF, failure: int = 0) -> Command:
        """A command; a number stands for itself."""
        if function not in self.functions:
            self.functions.append(function)
        return Command(function, tuple(a if isinstance(a, Word) else Word(0, a) for a in arguments), needs, failure)

    def make(self, function: str, *arguments: Word | int, end: str | None = None) -> int:
        """The place of what a function of the driver gives, as an instance is opened. end: what gives it back."""
        place = self.word()
        self.opening.append(self.do(function, Word(ITSELF, place), *arguments))
        if end is not None:
            self.closing.append(self.do(end, Word(place), needs=place, failure=IGNORED))
        return place

    def branch(self, number: int) -> _Branch:
        """The branch of this number, for all graphs."""
        while len(self._branches) <= number:
            stream = self.make("cuStreamCreate", _APART, end="cuStreamDestroy_v2")
            self._branches.append(_Branch(stream, self.make("cuEventCreate", NO_TIMES, end="cuEventDestroy_v2")))
        return self._branches[number]

    def enter(self) -> Command:
        """What any list of commands begins with: a thread may be a new one."""
        return self.do("cuCtxSetCurrent", Word(self.context), needs=self.context)

    def wait(self) -> Command:
        """What a list ends with whose work is to be done."""
        return self.do("cuStreamSynchronize", Word(self.stream), needs=self.stream)

    def upload(self, place: Word, array: Word, nbytes: Word | int) -> Command:
        return self.do("cuMemcpyHtoDAsync_v2", place, array, nbytes, Word(self.stream))

    def download(self, array: Word, place: Word, nbytes: Word | int) -> Command:
        return self.do("cuMemcpyDtoHAsync_v2", array, place, nbytes, Word(self.stream))


class _Rooms:
    """Where memory that functions share lies on the GPU. given: inputs and outputs, which no two need at once."""

    def __init__(self, own: _Instance, contents: Contents, constants: int):
        plans = [p.plan for p in contents.programs]
        self.parameters = tuple(own.room(p.nbytes) for p in contents.parameters)
        self.cleared = own.memory.end
        self.first_constant = own.room(constants)
        self.constants = tuple(self.first_constant + c.offset for c in contents.constants)
        self.temporary = own.room(max(p.arena_bytes for p in plans))
        self.scratch = own.room(max(p.scratch_bytes for p in plans))
        given = [[p.plan.buffers[n].nbytes for n in (*p.plan.inputs, *p.plan.outputs)] for p in contents.programs]
        self.given = own.room(max(sum(map(rounded, sizes)) for sizes in given))


def make_commands(
    name: str, contents: Contents, target: Target, modules: Sequence[bytes], constants: bytes, head: bytes
) -> Commands:
    """An instance of a package for a GPU. modules: of all `libraries` of its contents; head: what a file of parameters
    begins with."""
    own = _Instance(contents, target)
    rooms = _Rooms(own, contents, len(constants))
    kernels = _load(own, contents, modules)
    functions = tuple(_Function(own, p, rooms, kernels).made for p in contents.programs)
    opening = (*_begin(own, target), *_fill(own, rooms, constants), *own.opening, own.wait())
    closing = tuple(c._replace(failure=IGNORED) for c in (*_stop(own), *reversed(own.closing), *_end(own)))
    address, array, nbytes = (Word(ARGUMENTS + 8 * n) for n in range(3))
    getting = (own.enter(), own.download(array, address, nbytes), own.wait())
    setting = (own.enter(), own.upload(address, array, nbytes), own.wait())
    functions_at = own.host.take(8 * len(own.functions))
    return Commands(
        name,
        -(-own.host.end // 64) * 64,
        tuple(own.functions),
        functions_at,
        own.there,
        tuple((at, p.nbytes) for at, p in zip(rooms.parameters, contents.parameters, strict=True)),
        tuple(own.messages),
        NO_DRIVER,
        OLD_DRIVER,
        NO_PARAMETER,
        opening,
        closing,
        getting,
        setting,
        functions,
        bytes(own.data),
        head,
    )


def _begin(own: _Instance, target: Target) -> list[Command]:
    """The GPU of the number that is the first argument, a context, a stream, and all memory."""
    major, minor, device = own.word(), own.word(), Word(own.device)
    here = taken_by(target)
    return [
        own.do("cuInit", 0),
        own.do("cuDeviceGet", Word(ITSELF, own.device), Word(ARGUMENTS)),
        own.do("cuDeviceGetAttribute", Word(ITSELF, major), _MAJOR, device),
        own.do("cuDeviceGetAttribute", Word(ITSELF, minor), _MINOR, device),
        own.do(IS_OTHER, Word(major), Word(minor), here.start, here.stop, failure=OTHER_GPU),
        own.do("cuDevicePrimaryCtxRetain", Word(ITSELF, own.context), device),
        own.enter(),
        own.do("cuStreamCreate", Word(ITSELF, own.stream), _APART),
        own.do("cuMemAlloc_v2", Word(ITSELF, own.there), own.memory.end),
    ]


def _fill(own: _Instance, rooms: _Rooms, constants: bytes) -> Iterator[Command]:
    """Parameters that are 0, and constants."""
    if rooms.cleared:
        yield own.do("cuMemsetD8Async", Word(own.there), 0, rooms.cleared, Word(own.stream))
    if constants:
        yield own.upload(Word(own.there, rooms.first_constant), own.put(constants), len(constants))


def _stop(own: _Instance) -> list[Command]:
    """No work goes on; a graph that was being captured when opening failed is left."""
    left = own.word()
    return [
        own.enter(),
        own.do("cuStreamEndCapture", Word(own.stream), Word(ITSELF, left), needs=own.stream),
        own.do("cuGraphDestroy", Word(left), needs=left),
        own.wait(),
    ]


def _end(own: _Instance) -> list[Command]:
    """What is given back last."""
    return [
        own.do("cuMemFree_v2", Word(own.there), needs=own.there),
        own.do("cuStreamDestroy_v2", Word(own.stream), needs=own.stream),
        own.do("cuDevicePrimaryCtxRelease_v2", Word(own.device), needs=own.context),
    ]


def _load(own: _Instance, contents: Contents, modules: Sequence[bytes]) -> dict[tuple[int, str], int]:
    """Where the handles of kernels are, by the number of their library and their symbols."""
    handles = [own.make("cuModuleLoadData", own.put(m), end="cuModuleUnload") for m in modules]
    found: dict[tuple[int, str], int] = {}
    for program in contents.programs:
        for library, code in zip(program.libraries, program.plan.kernels, strict=True):
            for entry in code.entries:
                if (library, entry.symbol) in found:
                    continue
                name = own.put(entry.symbol.encode())
                kernel = own.make("cuModuleGetFunction", Word(handles[library]), name)
                if entry.shared_bytes > ASKED_SHARED_BYTES:
                    size = entry.shared_bytes
                    own.opening.append(own.do("cuFuncSetAttribute", Word(kernel), _DYNAMIC_SHARED, size))
                found[library, entry.symbol] = kernel
    return found


class _Function:
    """A function of a package: its launches over a table of pointers, captured as a graph, and what runs that."""

    def __init__(self, own: _Instance, program: Program, rooms: _Rooms, kernels: Mapping[tuple[int, str], int]):
        self._own, self._program, plan = own, program, program.plan
        pairs = zip(program.libraries, plan.kernels, strict=True)
        addresses = [[kernels[library, e.symbol] for e in code.entries] for library, code in pairs]
        self._layout = layout = Layout(plan, addresses, COPY)
        self._places = _places(program, rooms)
        self._status = own.room(4 * len(layout.failing))
        self._offsets = np.zeros(len(layout.table), np.int64)
        for number, place, offset in spots(layout):
            if number not in self._places:  # an old value of a parameter, kept during the call
                self._places[number] = own.room(plan.buffers[number].nbytes)
            self._offsets[place] = self._places[number] + offset
        for n, place in enumerate(layout.status_places):
            self._offsets[place] = self._status + 4 * n
        self._table, self._pointers = (own.host.take(8 * len(layout.table)) for _ in range(2))
        graph = self._capture()
        status = own.host.take(4 * len(layout.failing))
        first = tuple(self._tell(number) for number in layout.failing)
        count = len(program.inputs) + len(program.outputs)
        self.made = CFunction(program.name, count, tuple(self._run(graph, status)), status, first)

    def _tell(self, number: int) -> int:
        """Messages for all values of the status word of a call; what is added to that to be the number of one."""
        own, program, plan = self._own, self._program, self._program.plan
        first = len(own.messages) - 1
        pairs = zip(program.parameters, plan.parameters, strict=True)
        changed = overwritten(plan, [b for n, b in pairs if n in program.updated])  # nothing ends a graph there
        faults = plan.kernels[plan.calls[number].kernel].faults
        own.messages += [f"{fault_of(plan, number, word)}; {changed}" for word in range(1, len(faults) + 1)]
        return first

    def _capture(self) -> int:
        """As an instance is opened: the table of pointers, and the launches as a graph, whose place is returned."""
        own, count, stream = self._own, len(self._offsets), Word(self._own.stream)
        table, pointers = Word(ITSELF, self._table), Word(ITSELF, self._pointers)
        steps = 8 * np.arange(count, dtype=np.int64)
        own.opening += [
            own.do(FILL, table, own.put(self._offsets.tobytes()), count, Word(own.there)),
            own.do(FILL, pointers, own.put(steps.tobytes()), count, table),
        ]
        launches = list(self._launches())
        own.opening.append(own.do("cuStreamBeginCapture_v2", stream, _THIS_THREAD))
        if self._layout.failing:
            nbytes = 4 * len(self._layout.failing)
            own.opening.append(own.do("cuMemsetD8Async", Word(own.there, self._status), 0, nbytes, stream))
        own.opening += launches
        captured = own.word()
        own.opening.append(own.do("cuStreamEndCapture", stream, Word(ITSELF, captured)))
        graph = own.make("cuGraphInstantiateWithFlags", Word(captured), 0, end="cuGraphExecDestroy")
        own.opening.append(own.do("cuGraphDestroy", Word(captured)))
        return graph

    def _launches(self) -> Iterator[Command]:
        """All launches in order; calls of a group in branches, as `CudaRecording` has them."""
        own, group, branches = self._own, None, dict[int, _Branch]()
        for launch in self._layout.launches:
            if launch.group != group:
                yield from self._join(branches)
            group, stream = launch.group, own.stream
            if group is not None and launch.call is not None:
                number = (launch.call - group) % BRANCHES
                begun = Word(own.branch(0).event)
                if not branches:
                    yield own.do("cuEventRecord", begun, Word(own.stream))
                if number not in branches:
                    branches[number] = own.branch(number)
                    yield own.do("cuStreamWaitEvent", Word(branches[number].stream), begun, 0)
                stream = branches[number].stream
            yield self._launch(launch, Word(stream))
        yield from self._join(branches)

    def _join(self, branches: dict[int, _Branch]) -> Iterator[Command]:
        """What follows waits for all branches, of which none is left."""
        for branch in branches.values():
            yield self._own.do("cuEventRecord", Word(branch.event), Word(branch.stream))
            yield self._own.do("cuStreamWaitEvent", Word(self._own.stream), Word(branch.event), 0)
        branches.clear()

    def _launch(self, launch: Launch, stream: Word) -> Command:
        own, first = self._own, launch.pointers
        if launch.function == COPY:
            source, target = (Word(own.there, int(n)) for n in self._offsets[first : first + 2])
            return own.do("cuMemcpyDtoDAsync_v2", target, source, self._layout.table[first + 2], stream)
        grid, block = (launch.tasks, 1, 1), (launch.threads, 1, 1)
        pointers = Word(ITSELF, self._pointers + 8 * first)
        return own.do("cuLaunchKernel", Word(launch.function), *grid, *block, launch.shared_bytes, stream, pointers, 0)

    def _run(self, graph: int, status: int) -> Iterator[Command]:
        """One run. status: where the status words come to on the host."""
        own, plan = self._own, self._program.plan
        yield own.enter()
        for n, number in enumerate(plan.inputs):
            there = Word(own.there, self._places[number])
            yield own.upload(there, Word(ARGUMENTS + 8 * n), plan.buffers[number].nbytes)
        yield own.do("cuGraphLaunch", Word(graph), Word(own.stream))
        for n, number in enumerate(plan.outputs, len(plan.inputs)):
            there = Word(own.there, self._places[number])
            yield own.download(Word(ARGUMENTS + 8 * n), there, plan.buffers[number].nbytes)
        if self._layout.failing:
            nbytes = 4 * len(self._layout.failing)
            yield own.download(Word(ITSELF, status), Word(own.there, self._status), nbytes)
        yield own.wait()


def _places(program: Program, rooms: _Rooms) -> dict[int, int]:
    """Where buffers lie on the GPU, but for views and what is kept during a call."""
    plan = program.plan
    found = {b: rooms.parameters[n] for n, b in zip(program.parameters, plan.parameters, strict=True)}
    found |= {b: rooms.constants[n] for n, b in zip(program.constants, plan.constants, strict=True)}
    starts = {"temporary": rooms.temporary, "scratch": rooms.scratch}
    found |= {n: starts[b.kind] + b.offset for n, b in enumerate(plan.buffers) if b.kind in starts}
    at = rooms.given
    for number in (*plan.inputs, *plan.outputs):
        found[number], at = at, at + rounded(plan.buffers[number].nbytes)
    return found
