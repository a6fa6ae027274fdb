"""A driver whose GPU is the emulator: modules are CUDA C++, a graph is the list of what was put into the stream.

`emulated(monkeypatch)` makes it this machine's GPU."""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from neoflow import config, pipeline
from neoflow.codegen.gpu import compile, compilers
from neoflow.errors import RuntimeFault
from neoflow.runtime.device.cuda import Cuda, Gpu
from tests.emulator.machine import MEMORY, Program


def _bytes(host: int, nbytes: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_char * nbytes).from_address(host), np.uint8)


class EmulatedDriver:
    """See `neoflow.runtime.device.cuda.Driver`. calls: what was done, by name; limit: bytes of its memory."""

    def __init__(self, checked: bool = True, limit: int = 4 << 30, architecture: str = "sm_80"):
        self.gpu = Gpu("emulator", architecture, 4, limit, 13000)
        self.checked, self.calls, self.used = checked, list[str](), 0
        self._buffers: dict[int, object] = {}
        self._handles: dict[int, object] = {}
        self._capturing: list[Callable[[], None]] | None = None
        self._clock, self._handed = 0.0, 0

    def _put(self, name: str, action: Callable[[], None]) -> None:
        """Into the stream: done at once, or kept by the graph that is made."""
        if self._capturing is not None:
            self._capturing.append(action)
        else:
            self.calls.append(name)
            action()

    def _handle(self, thing: object) -> int:
        self._handed += 1
        self._handles[self._handed] = thing
        return self._handed

    def allocate(self, nbytes: int) -> int:
        if self._capturing is not None:
            raise RuntimeFault("the GPU's driver: cuMemAlloc failed: operation not permitted when stream is capturing")
        buffer = MEMORY.allocate(nbytes)
        self._buffers[buffer.address] = buffer
        self.used += nbytes
        return buffer.address

    def free(self, address: int) -> None:
        buffer = self._buffers.pop(address)
        self.used -= buffer.bytes
        MEMORY.free(buffer)

    def free_bytes(self) -> int:
        return self.gpu.nbytes - self.used

    def to_device(self, target: int, host: int, nbytes: int) -> None:
        self._put("to_device", lambda: MEMORY.write(target, _bytes(host, nbytes)))

    def to_host(self, host: int, source: int, nbytes: int) -> None:
        content = np.empty(nbytes, np.uint8)
        self._put("to_host", lambda: MEMORY.read(source, content))
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

    def end_graph(self) -> int:
        actions, self._capturing = self._capturing, None
        self.calls.append("graph")
        return self._handle(actions)

    def run_graph(self, graph: int) -> None:
        self.calls.append("run")
        for action in self._handles[graph]:
            action()

    def free_graph(self, graph: int) -> None:
        del self._handles[graph]

    def event(self) -> int:
        self._clock += 1e-6
        return self._handle(self._clock)

    def seconds(self, first: int, last: int) -> float:
        return self._handles[last] - self._handles[first]

    def free_event(self, event: int) -> None:
        del self._handles[event]

    def synchronize(self) -> None:
        self.calls.append("synchronize")


def emulated(monkeypatch, **options: object) -> Cuda:
    """The emulator as this machine's GPU, for as long as the patches last."""
    place = Cuda(EmulatedDriver(**options))
    apart = config.load().cache_dir / "emulated"  # what is there is no machine code
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(apart))
    written = compilers.Compiler("emulator", lambda: True, lambda: "emulator 1", lambda source, _: source.encode())
    for module in (compilers, compile):
        monkeypatch.setattr(module, "compiler", lambda: written)
    monkeypatch.setattr(pipeline, "gpu", lambda: place)
    return place
