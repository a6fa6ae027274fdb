"""A driver whose GPU is the emulator: modules are CUDA C++, a graph is the list of what was put into the stream.

`emulated(monkeypatch)` makes it this machine's GPU."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count

import numpy as np

from neoflow import config, devices
from neoflow.codegen.gpu import compile, compilers
from neoflow.errors import RuntimeFault
from neoflow.package import gpu as packages
from neoflow.runtime.device.cuda import Cuda, Gpu
from tests.emulator.machine import MEMORY, Program
from tests.emulator.streams import MAIN, OTHERS, UPLOADS, Streams


def _bytes(host: int, nbytes: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_char * nbytes).from_address(host), np.uint8)


class EmulatedDriver:
    """See `neoflow.runtime.device.cuda.Driver`. calls: what was asked for, by name; limit: bytes of its memory.
    late_uploads, late_others: they are done as late as they may be, and not as early; of other libraries, all streams
    are one. Of the branches of a graph the last one goes first. branched: how many branches graphs had."""

    def __init__(
        self,
        checked: bool = True,
        limit: int = 4 << 30,
        architecture: str = "sm_80",
        late_uploads: bool = True,
        late_others: bool = True,
    ):
        self.gpu = Gpu("emulator", architecture, 4, limit, 13000)
        self.checked, self.calls, self.used = checked, list[str](), 0
        self.streams = Streams(late_uploads, late_others)
        self.stream, self.followed, self.led = 0x7F00, list[int](), list[int]()
        self._buffers: dict[int, object] = {}
        self._pinned: dict[int, np.ndarray] = {}
        self._handles: dict[int, object] = {}
        self._numbers = count(1)
        self._capturing: list[Callable[[], None]] | None = None
        self._branches: dict[int, list[Callable[[], None]]] = {}
        self._branch = 0
        self.branched = 0
        self._clock = 0.0

    def _put(self, name: str, action: Callable[[], None]) -> None:
        """Into the stream, or kept by the graph that is made."""
        if self._capturing is not None:
            (self._branches[self._branch] if self._branch else self._capturing).append(action)
        else:
            self.calls.append(name)
            self.streams.put(MAIN, action)

    def _handle(self, thing: object) -> int:
        number = next(self._numbers)
        self._handles[number] = thing
        return number

    def allocate(self, nbytes: int) -> int:
        if self._capturing is not None:
            raise RuntimeFault("the GPU's driver: cuMemAlloc failed: operation not permitted when stream is capturing")
        buffer = MEMORY.allocate(nbytes)
        self._buffers[buffer.address] = buffer
        self.used += nbytes
        return buffer.address

    def free(self, address: int) -> None:
        def give_back() -> None:
            buffer = self._buffers.pop(address)
            self.used -= buffer.bytes
            MEMORY.free(buffer)

        self.streams.after_all(give_back)

    def free_bytes(self) -> int:
        return self.gpu.nbytes - self.used

    def to_device(self, target: int, host: int, nbytes: int) -> None:
        content = _bytes(host, nbytes).copy()
        self._put("to_device", lambda: MEMORY.write(target, content))

    def to_host(self, host: int, source: int, nbytes: int) -> None:
        content = np.empty(nbytes, np.uint8)
        self._put("to_host", lambda: MEMORY.read(source, content))
        self.streams.finish()
        ctypes.memmove(host, content.ctypes.data, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        def move() -> None:
            content = np.empty(nbytes, np.uint8)
            MEMORY.read(source, content)
            MEMORY.write(target, content)

        self._put("copy", move)

    def clear(self, target: int, nbytes: int) -> None:
        self._put("clear", lambda: MEMORY.write(target, np.zeros(nbytes, np.uint8)))

    def load(self, data: bytes) -> int:
        return self._handle(Program(data.decode(), self.checked))

    def unload(self, module: int) -> None:
        del self._handles[module]

    def function(self, module: int, symbol: str) -> int:
        program = self._handles[module]
        if symbol not in program.kernels:
            raise RuntimeFault(f"the GPU's driver: cuModuleGetFunction failed: named symbol {symbol} not found")
        return self._handle((program, symbol))

    def launch(self, function: int, blocks: int, threads: int, shared_bytes: int, arguments: Sequence[int]) -> None:
        program, symbol = self._handles[function]
        given = tuple(arguments)
        self._put("launch", lambda: program.launch(symbol, blocks, threads, shared_bytes, given))

    def begin_graph(self) -> None:
        self._capturing = []

    @property
    def is_capturing(self) -> bool:
        """Whether a graph is made."""
        return self._capturing is not None

    def end_graph(self) -> int:
        assert not self._branches, "a graph ends when its branches are joined"
        actions, self._capturing = self._capturing, None
        self.calls.append("graph")
        return self._handle(actions)

    def branch(self, number: int) -> None:
        assert self._capturing is not None and number > 0
        self.branched += number not in self._branches
        self._branches.setdefault(number, [])
        self._branch = number

    def join(self) -> None:
        assert self._capturing is not None
        for actions in reversed(self._branches.values()):
            self._capturing += actions
        self._branches, self._branch = {}, 0

    def drop_graph(self) -> None:
        self._capturing, self._branches, self._branch = None, {}, 0

    def run_graph(self, graph: int) -> None:
        self.calls.append("run")
        for action in self._handles[graph]:
            self.streams.put(MAIN, action)

    def launches(self, graph: int, followers: Sequence[int] = ()) -> Iterator[object]:
        return chain(map(self.run_graph, (graph,)), self.leads(followers))

    def leads(self, followers: Sequence[int]) -> Iterator[object]:
        return map(self.lead, followers)

    def judge(self, launched: object) -> None:
        if isinstance(launched, RuntimeFault):
            raise launched

    def free_graph(self, graph: int) -> None:
        del self._handles[graph]

    def event(self) -> int:
        return self._handle(self._now())

    def _now(self) -> tuple[float, int]:
        self._clock += 1e-6
        return self._clock, self.streams.moment(MAIN)

    def events(self, count: int) -> list[int]:
        return [self._handle(None) for _ in range(count)]

    def mark(self, event: int) -> None:
        assert self._capturing is not None
        self._capturing.append(lambda: self._handles.update({event: self._now()}))

    def is_over(self, event: int) -> bool:
        return self.streams.is_done(MAIN, self._handles[event][1])

    def wait_for(self, event: int) -> None:
        self.streams.run(MAIN, self._handles[event][1])

    def seconds(self, first: int, last: int) -> float:
        self.streams.finish()
        return self._handles[last][0] - self._handles[first][0]

    def free_event(self, event: int) -> None:
        del self._handles[event]

    def synchronize(self) -> None:
        self.calls.append("synchronize")
        self.streams.finish()

    def follow(self, stream: int) -> None:
        self.calls.append("follow")
        self.followed.append(stream)
        self.streams.wait(MAIN, OTHERS, self.streams.moment(OTHERS))

    def lead(self, stream: int) -> None:
        self.calls.append("lead")
        self.led.append(stream)
        self.streams.wait(OTHERS, MAIN, self.streams.moment(MAIN))

    def pinned(self, nbytes: int) -> int:
        content = np.full(nbytes, 0xAA, np.uint8)
        self._pinned[content.ctypes.data] = content
        return content.ctypes.data

    def free_pinned(self, address: int) -> None:
        self.streams.after_all(lambda: self._pinned.__delitem__(address))

    def upload(self, target: int, host: int, nbytes: int) -> None:
        assert host in self._pinned
        self.calls.append("upload")
        self.streams.put(UPLOADS, lambda: MEMORY.write(target, _bytes(host, nbytes)))

    def hold_uploads(self, event: int) -> None:
        self.calls.append("hold_uploads")
        self.streams.wait(UPLOADS, MAIN, self._handles[event][1])

    def join_uploads(self) -> None:
        self.calls.append("join_uploads")
        self.streams.wait(MAIN, UPLOADS, self.streams.moment(UPLOADS))

    def finish_uploads(self) -> None:
        self.calls.append("finish_uploads")
        self.streams.run(UPLOADS, self.streams.moment(UPLOADS))


def emulated(monkeypatch, **options: object) -> Cuda:
    """The emulator as this machine's GPU, for as long as the patches last."""
    place = Cuda(EmulatedDriver(**options))
    apart = config.load().cache_dir / "emulated"  # what is there is no machine code
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(apart))
    written = compilers.Compiler("emulator", lambda: True, lambda: "emulator 1", lambda source, _: source.encode())
    for module in (compilers, compile):
        monkeypatch.setattr(module, "compiler", lambda: written)
    monkeypatch.setattr(devices, "gpu", lambda: place)
    monkeypatch.setattr(packages, "this_gpu", lambda: place)
    return place
