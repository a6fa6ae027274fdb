"""`Driver`: the calls of the CUDA driver API that are used, and the driver of this machine through cuda-bindings.

Addresses and handles are numbers. Everything is put into one stream, in order; but uploads into a second one, so that
they go on while kernels run.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Protocol

from neoflow.errors import RuntimeFault


@dataclass(frozen=True)
class Gpu:
    """A device as its driver describes it. driver: the newest CUDA it runs, 13000 for 13.0. ordinal: among those that
    this process sees."""

    name: str
    architecture: str
    processors: int
    nbytes: int
    driver: int
    ordinal: int = 0


class Driver(Protocol):
    """One GPU. Raises `RuntimeFault` with the driver's words where a call fails."""

    @property
    def gpu(self) -> Gpu: ...

    @property
    def stream(self) -> int:
        """The handle of the stream, as other libraries take it."""
        ...

    def follow(self, stream: int) -> None:
        """What is put into the stream from now on waits for what another library has put into its own by now."""
        ...

    def lead(self, stream: int) -> None:
        """What another library puts into its stream from now on waits for what is in this one by now."""
        ...

    def pinned(self, nbytes: int) -> int:
        """Memory of the host that uploads are made from."""
        ...

    def free_pinned(self, address: int) -> None: ...

    def upload(self, target: int, host: int, nbytes: int) -> None:
        """From pinned memory, into the second stream."""
        ...

    def hold_uploads(self, event: int) -> None:
        """Uploads from now on wait for a moment in the stream."""
        ...

    def join_uploads(self) -> None:
        """What is put into the stream from now on waits for the uploads up to now."""
        ...

    def finish_uploads(self) -> None:
        """Returns when all uploads are done."""
        ...

    def allocate(self, nbytes: int) -> int: ...

    def free(self, address: int) -> None: ...

    def free_bytes(self) -> int: ...

    def to_device(self, target: int, host: int, nbytes: int) -> None: ...

    def to_host(self, host: int, source: int, nbytes: int) -> None:
        """Returns when the bytes are there."""
        ...

    def copy(self, target: int, source: int, nbytes: int) -> None: ...

    def clear(self, target: int, nbytes: int) -> None: ...

    def load(self, data: bytes) -> int: ...

    def unload(self, module: int) -> None: ...

    def function(self, module: int, symbol: str) -> int: ...

    def launch(self, function: int, blocks: int, threads: int, shared_bytes: int, arguments: Sequence[int]) -> None: ...

    def begin_graph(self) -> None:
        """What this thread launches, copies, clears and marks from now on is kept, and not done."""
        ...

    def end_graph(self) -> int: ...

    def branch(self, number: int) -> None:
        """What is put into the graph from now on goes into its branch of this number, 1 or more; branches wait for what
        was in the graph before the first of them, and not for each other."""

    def join(self) -> None:
        """What is put into the graph from now on waits for all branches."""

    def drop_graph(self) -> None:
        """What this thread has begun, if it has, is not kept."""
        ...

    def run_graph(self, graph: int) -> None: ...

    def launches(self, graph: int, followers: Sequence[int] = ()) -> Iterator[Any]:
        """Runs the graph when it is asked for its first item, and has other libraries' streams wait for it with the
        others; what they mean `judge` knows."""
        ...

    def leads(self, followers: Sequence[int]) -> Iterator[Any]:
        """Has other libraries' streams wait for what is in the stream by then, as it is asked for its items."""
        ...

    def judge(self, launched: Any) -> None:
        """Raises `RuntimeFault` where what an item stands for has failed."""
        ...

    def free_graph(self, graph: int) -> None: ...

    def event(self) -> int:
        """A moment in the stream."""
        ...

    def events(self, count: int) -> list[int]:
        """So many that have no moment yet."""
        ...

    def mark(self, event: int) -> None:
        """Its moment comes here, in every run of the graph that is being made."""
        ...

    def is_over(self, event: int) -> bool:
        """Whether its moment has come."""
        ...

    def wait_for(self, event: int) -> None:
        """Returns when its moment has come."""
        ...

    def seconds(self, first: int, last: int) -> float:
        """Between two events, once both have come."""
        ...

    def free_event(self, event: int) -> None: ...

    def synchronize(self) -> None: ...


class CudaDriver:
    """The first GPU that CUDA_VISIBLE_DEVICES lets this process see."""

    def __init__(self) -> None:
        """Raises `RuntimeFault` when there is no driver, no device, or no cuda-bindings."""
        try:
            from cuda.bindings import driver as cu
        except ImportError:
            raise RuntimeFault("running on a GPU needs cuda-bindings: pip install 'neoflow[cuda]'") from None
        self._cu: Any = cu
        self._lost: str | None = None
        self._here = threading.local()
        self._here.is_ready = True  # from now on `_do` makes the context each thread's own
        try:
            begun = cu.cuInit(0)
        except Exception as error:  # cuda-bindings has one class for each way in which no driver is found
            raise RuntimeFault(f"there is no NVIDIA driver on this machine ({type(error).__name__})") from None
        self._found("cuInit", begun)
        if not self._do("cuDeviceGetCount"):
            raise RuntimeFault("there is no GPU that this process may see: look at CUDA_VISIBLE_DEVICES")
        device = self._do("cuDeviceGet", 0)
        self._context = self._do("cuDevicePrimaryCtxRetain", device)
        self._do("cuCtxSetCurrent", self._context)
        self._stream, self._uploads = (self._do("cuStreamCreate", 1) for _ in range(2))  # wait for no legacy stream
        self._launched = self._do("cuEventCreate", NO_TIMES)
        kinds = cu.CUdevice_attribute
        major = self._do("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        minor = self._do("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
        processors = self._do("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
        name = self._do("cuDeviceGetName", 128, device).split(b"\0")[0].decode()
        total = int(self._do("cuDeviceTotalMem", device))
        version = int(self._do("cuDriverGetVersion"))
        self.gpu = Gpu(name, f"sm_{major}{minor}", int(processors), total, version)

    def _do(self, name: str, *arguments: Any) -> Any:
        """A call's result. After an error that a GPU does not get over every call tells of that one alone."""
        self._be_ready()
        try:
            given = getattr(self._cu, name)(*arguments)
        except RuntimeError as error:  # cuda-bindings found no such function
            raise RuntimeFault(f"the GPU's driver: it has no {name} ({error}){_TOO_OLD}") from None
        return self._found(name, given)

    def _be_ready(self) -> None:
        """Have the context in this thread."""
        if self._lost is not None:
            raise RuntimeFault(self._lost)
        if not getattr(self._here, "is_ready", False):
            self._cu.cuCtxSetCurrent(self._context)
            self._here.is_ready = True

    def _found(self, name: str, given: Any) -> Any:
        """What a call has given. Raises `RuntimeFault` with the driver's words where it has failed."""
        code, *found = given
        if int(code) != 0:
            _, words = self._cu.cuGetErrorString(code)
            text = f"the GPU's driver: {name} failed: {_said(words)} ({code.name}){_ADVICE.get(code.name, '')}"
            if _ADVICE.get(code.name) is _STICKY:
                self._lost = text
            raise RuntimeFault(text)
        return found[0] if found else None

    @property
    def stream(self) -> int:
        return int(self._stream)

    def follow(self, stream: int) -> None:
        self._wait(self._stream, self._cu.CUstream(stream))

    def lead(self, stream: int) -> None:
        self._wait(self._cu.CUstream(stream), self._stream)

    def _wait(self, waiting: Any, other: Any) -> None:
        """One stream for what is in another by now."""
        event = self._do("cuEventCreate", NO_TIMES)
        self._do("cuEventRecord", event, other)
        self._do("cuStreamWaitEvent", waiting, event, 0)
        self._do("cuEventDestroy", event)

    def pinned(self, nbytes: int) -> int:
        return int(self._do("cuMemHostAlloc", nbytes, 0))

    def free_pinned(self, address: int) -> None:
        self._quietly("cuMemFreeHost", address)

    def upload(self, target: int, host: int, nbytes: int) -> None:
        self._do("cuMemcpyHtoDAsync", target, host, nbytes, self._uploads)

    def hold_uploads(self, event: int) -> None:
        self._do("cuStreamWaitEvent", self._uploads, self._cu.CUevent(event), 0)

    def join_uploads(self) -> None:
        self._wait(self._stream, self._uploads)

    def finish_uploads(self) -> None:
        self._do("cuStreamSynchronize", self._uploads)

    def _quietly(self, name: str, *arguments: Any) -> None:
        """Give back what is gone anyway where the GPU is.

        Not while this thread makes a graph, which that would end: a finalizer may come at any time.
        """
        if self._graph is not None:
            self._here.late.append((name, arguments))
            return
        with suppress(RuntimeFault):
            self._do(name, *arguments)

    def allocate(self, nbytes: int) -> int:
        return int(self._do("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        self._quietly("cuMemFree", address)

    def free_bytes(self) -> int:
        return int(self._do("cuMemGetInfo"))

    def to_device(self, target: int, host: int, nbytes: int) -> None:
        self._do("cuMemcpyHtoDAsync", target, host, nbytes, self._stream)

    def to_host(self, host: int, source: int, nbytes: int) -> None:
        self._do("cuMemcpyDtoHAsync", host, source, nbytes, self._stream)
        self.synchronize()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._do("cuMemcpyDtoDAsync", target, source, nbytes, self._current)

    def clear(self, target: int, nbytes: int) -> None:
        self._do("cuMemsetD8Async", target, 0, nbytes, self._current)

    def load(self, data: bytes) -> int:
        return int(self._do("cuModuleLoadData", data))

    def unload(self, module: int) -> None:
        self._quietly("cuModuleUnload", self._cu.CUmodule(module))

    def function(self, module: int, symbol: str) -> int:
        return int(self._do("cuModuleGetFunction", self._cu.CUmodule(module), symbol.encode()))

    def launch(self, function: int, blocks: int, threads: int, shared_bytes: int, arguments: Sequence[int]) -> None:
        handle = self._cu.CUfunction(function)
        if shared_bytes > ASKED_SHARED_BYTES:
            kind = self._cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._do("cuFuncSetAttribute", handle, kind, shared_bytes)
        values = (tuple(arguments), (ctypes.c_void_p,) * len(arguments))
        self._do("cuLaunchKernel", handle, blocks, 1, 1, threads, 1, 1, shared_bytes, self._current, values, 0)

    @property
    def _graph(self) -> Any:
        """The stream of a graph that this thread makes: what other threads do meanwhile is not in it."""
        return getattr(self._here, "graph", None)

    @property
    def _current(self) -> Any:
        """Where launches go: into the stream, or into the graph that this thread makes, or a branch of that."""
        return getattr(self._here, "branch", None) or self._graph or self._stream

    def begin_graph(self) -> None:
        mode = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._here.late, self._here.branches, self._here.begun = [], {}, None
        self._here.graph = self._do("cuStreamCreate", 1)
        self._do("cuStreamBeginCapture", self._graph, mode)

    def end_graph(self) -> int:
        graph = self._do("cuStreamEndCapture", self._graph)
        ready = self._do("cuGraphInstantiate", graph, 0)
        self._do("cuGraphDestroy", graph)
        self.drop_graph()
        return int(ready)

    def branch(self, number: int) -> None:
        if self._here.begun is None:
            self._here.begun = self._moment(self._graph)
        if number not in self._here.branches:
            stream = self._do("cuStreamCreate", 1)
            self._here.late.append(("cuStreamDestroy", (stream,)))
            self._do("cuStreamWaitEvent", stream, self._here.begun, 0)
            self._here.branches[number] = stream
        self._here.branch = self._here.branches[number]

    def join(self) -> None:
        for stream in self._here.branches.values():
            self._do("cuStreamWaitEvent", self._graph, self._moment(stream), 0)
        self._here.branches, self._here.begun, self._here.branch = {}, None, None

    def _moment(self, stream: Any) -> Any:
        """In a stream of the graph that is made; gone with that."""
        event = self._do("cuEventCreate", NO_TIMES)
        self._here.late.append(("cuEventDestroy", (event,)))
        self._do("cuEventRecord", event, stream)
        return event

    def drop_graph(self) -> None:
        stream, self._here.graph, self._here.branch = self._graph, None, None
        if stream is None:
            return
        with suppress(RuntimeFault):
            if int(self._do("cuStreamIsCapturing", stream)):
                self._do("cuGraphDestroy", self._do("cuStreamEndCapture", stream))
        self._quietly("cuStreamDestroy", stream)
        late, self._here.late = self._here.late, []
        for name, arguments in late:
            self._quietly(name, *arguments)

    def run_graph(self, graph: int) -> None:
        for launched in self.launches(graph):
            self.judge(launched)

    def launches(self, graph: int, followers: Sequence[int] = ()) -> Iterator[Any]:
        self._be_ready()
        launched = map(self._cu.cuGraphLaunch, (self._cu.CUgraphExec(graph),), (self._stream,))
        return chain(zip(("cuGraphLaunch",), launched, strict=False), self.leads(followers))

    def leads(self, followers: Sequence[int]) -> Iterator[Any]:
        self._be_ready()
        cu, streams = self._cu, [self._cu.CUstream(f) for f in followers]
        moment = map(cu.cuEventRecord, (self._launched,) * bool(streams), (self._stream,))
        waits = map(cu.cuStreamWaitEvent, streams, repeat(self._launched), repeat(0))
        return zip(chain(("cuEventRecord",), repeat("cuStreamWaitEvent")), chain(moment, waits), strict=False)

    def judge(self, launched: Any) -> None:
        self._found(*launched)

    def free_graph(self, graph: int) -> None:
        self._quietly("cuGraphExecDestroy", self._cu.CUgraphExec(graph))

    def event(self) -> int:
        found = self._do("cuEventCreate", 0)
        self._do("cuEventRecord", found, self._stream)
        return int(found)

    def events(self, count: int) -> list[int]:
        return [int(self._do("cuEventCreate", 0)) for _ in range(count)]

    def mark(self, event: int) -> None:
        kind = self._cu.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL
        self._do("cuEventRecordWithFlags", self._cu.CUevent(event), self._graph, int(kind))

    def is_over(self, event: int) -> bool:
        self._be_ready()
        given = self._cu.cuEventQuery(self._cu.CUevent(event))
        if int(given[0]) and given[0].name == _NOT_YET:
            return False
        self._found("cuEventQuery", given)
        return True

    def wait_for(self, event: int) -> None:
        self._do("cuEventSynchronize", self._cu.CUevent(event))

    def seconds(self, first: int, last: int) -> float:
        self.wait_for(last)
        return float(self._do("cuEventElapsedTime", self._cu.CUevent(first), self._cu.CUevent(last))) / 1e3

    def free_event(self, event: int) -> None:
        self._quietly("cuEventDestroy", self._cu.CUevent(event))

    def synchronize(self) -> None:
        self._do("cuStreamSynchronize", self._stream)


ASKED_SHARED_BYTES = 48 << 10
"""More dynamic shared memory than this must be asked for."""
NO_TIMES = 2
"""Of an event: it orders, and tells no time."""
_NOT_YET = "CUDA_ERROR_NOT_READY"
_STICKY = "; nothing runs on the GPU any more in this process: start it again"
_TOO_OLD = "; the driver is older than the compiler: update it, or install an older nvcc"
_ADVICE = {
    "CUDA_ERROR_NO_DEVICE": "; no GPU is seen: look at nvidia-smi and CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "; another process has the GPU to itself: nvidia-smi tells which",
    "CUDA_ERROR_NOT_INITIALIZED": "; a child of fork cannot use the GPU of its parent: start it by spawn",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "; the driver was updated: restart the machine",
    "CUDA_ERROR_STUB_LIBRARY": "; the library is a stub for linking: take its folder out of LD_LIBRARY_PATH",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "; this GPU runs newer code with a newer driver alone: update it",
    "CUDA_ERROR_OUT_OF_MEMORY": "; take a smaller batch, or end what else uses the GPU",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "; the code is for another architecture: compile for this machine's, target='cuda'",
    "CUDA_ERROR_INVALID_PTX": _TOO_OLD,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": _TOO_OLD,
    **dict.fromkeys(
        (
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "CUDA_ERROR_ILLEGAL_INSTRUCTION",
            "CUDA_ERROR_INVALID_ADDRESS_SPACE",
            "CUDA_ERROR_INVALID_PC",
            "CUDA_ERROR_MISALIGNED_ADDRESS",
            "CUDA_ERROR_HARDWARE_STACK_ERROR",
            "CUDA_ERROR_LAUNCH_FAILED",
            "CUDA_ERROR_LAUNCH_TIMEOUT",
            "CUDA_ERROR_ASSERT",
            "CUDA_ERROR_ECC_UNCORRECTABLE",
            "CUDA_ERROR_CONTAINED",
        ),
        _STICKY,
    ),
}


def _said(words: Any) -> str:
    return words.decode() if isinstance(words, bytes) else str(words)
