"""`Driver`: the calls of the CUDA driver API that are used, and the driver of this machine through cuda-bindings.

Addresses and handles are numbers. Everything is put into one stream, in order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from neoflow.errors import RuntimeFault


@dataclass(frozen=True)
class Gpu:
    """A device as its driver describes it. driver: the newest CUDA it runs, 13000 for 13.0."""

    name: str
    architecture: str
    processors: int
    nbytes: int
    driver: int


class Driver(Protocol):
    """One GPU. Raises `RuntimeFault` with the driver's words where a call fails."""

    @property
    def gpu(self) -> Gpu: ...

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
        """What is put into the stream from now on is kept, and not done."""
        ...

    def end_graph(self) -> int: ...

    def run_graph(self, graph: int) -> None: ...

    def free_graph(self, graph: int) -> None: ...

    def event(self) -> int:
        """A moment in the stream."""
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
        try:
            self._do("cuInit", 0)
        except RuntimeFault:
            raise
        except Exception as error:  # cuda-bindings has one class for each way in which no driver is found
            raise RuntimeFault(f"there is no NVIDIA driver on this machine ({type(error).__name__})") from None
        if not self._do("cuDeviceGetCount"):
            raise RuntimeFault("there is no GPU that this process may see: look at CUDA_VISIBLE_DEVICES")
        device = self._do("cuDeviceGet", 0)
        self._do("cuCtxSetCurrent", self._do("cuDevicePrimaryCtxRetain", device))
        self._stream = self._do("cuStreamCreate", 1)  # does not wait for the legacy stream
        kinds = cu.CUdevice_attribute
        major = self._do("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        minor = self._do("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
        processors = self._do("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
        name = self._do("cuDeviceGetName", 128, device).split(b"\0")[0].decode()
        total = int(self._do("cuDeviceTotalMem", device))
        version = int(self._do("cuDriverGetVersion"))
        self.gpu = Gpu(name, f"sm_{major}{minor}", int(processors), total, version)

    def _do(self, name: str, *arguments: Any) -> Any:
        """A call's result."""
        code, *found = getattr(self._cu, name)(*arguments)
        if int(code) != 0:
            _, words = self._cu.cuGetErrorString(code)
            raise RuntimeFault(
                f"the GPU's driver: {name} failed: {_said(words)} ({code.name}){_ADVICE.get(code.name, '')}"
            )
        return found[0] if found else None

    def allocate(self, nbytes: int) -> int:
        return int(self._do("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        self._cu.cuMemFree(address)

    def free_bytes(self) -> int:
        code, free, _ = self._cu.cuMemGetInfo()
        return int(free) if int(code) == 0 else 0

    def to_device(self, target: int, host: int, nbytes: int) -> None:
        self._do("cuMemcpyHtoDAsync", target, host, nbytes, self._stream)

    def to_host(self, host: int, source: int, nbytes: int) -> None:
        self._do("cuMemcpyDtoHAsync", host, source, nbytes, self._stream)
        self.synchronize()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._do("cuMemcpyDtoDAsync", target, source, nbytes, self._stream)

    def clear(self, target: int, nbytes: int) -> None:
        self._do("cuMemsetD8Async", target, 0, nbytes, self._stream)

    def load(self, data: bytes) -> int:
        return int(self._do("cuModuleLoadData", data))

    def unload(self, module: int) -> None:
        self._cu.cuModuleUnload(self._cu.CUmodule(module))

    def function(self, module: int, symbol: str) -> int:
        return int(self._do("cuModuleGetFunction", self._cu.CUmodule(module), symbol.encode()))

    def launch(self, function: int, blocks: int, threads: int, shared_bytes: int, arguments: Sequence[int]) -> None:
        handle = self._cu.CUfunction(function)
        if shared_bytes > _ASKED_SHARED_BYTES:
            kind = self._cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._do("cuFuncSetAttribute", handle, kind, shared_bytes)
        values = (tuple(arguments), (ctypes.c_void_p,) * len(arguments))
        self._do("cuLaunchKernel", handle, blocks, 1, 1, threads, 1, 1, shared_bytes, self._stream, values, 0)

    def begin_graph(self) -> None:
        mode = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._do("cuStreamBeginCapture", self._stream, mode)

    def end_graph(self) -> int:
        graph = self._do("cuStreamEndCapture", self._stream)
        ready = self._do("cuGraphInstantiate", graph, 0)
        self._do("cuGraphDestroy", graph)
        return int(ready)

    def run_graph(self, graph: int) -> None:
        self._do("cuGraphLaunch", self._cu.CUgraphExec(graph), self._stream)

    def free_graph(self, graph: int) -> None:
        self._cu.cuGraphExecDestroy(self._cu.CUgraphExec(graph))

    def event(self) -> int:
        found = self._do("cuEventCreate", 0)
        self._do("cuEventRecord", found, self._stream)
        return int(found)

    def seconds(self, first: int, last: int) -> float:
        self._do("cuEventSynchronize", self._cu.CUevent(last))
        return float(self._do("cuEventElapsedTime", self._cu.CUevent(first), self._cu.CUevent(last))) / 1e3

    def free_event(self, event: int) -> None:
        self._cu.cuEventDestroy(self._cu.CUevent(event))

    def synchronize(self) -> None:
        self._do("cuStreamSynchronize", self._stream)


_ASKED_SHARED_BYTES = 48 << 10
"""More dynamic shared memory than this must be asked for."""
_STICKY = "; nothing runs on the GPU any more in this process: start it again"
_ADVICE = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "; the code is for another architecture: compile for this machine's, target='cuda'",
    "CUDA_ERROR_INVALID_PTX": "; the driver is older than the compiler: update it, or install an older nvcc",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "; the driver is older than the compiler: update it",
    "CUDA_ERROR_ILLEGAL_ADDRESS": _STICKY,
    "CUDA_ERROR_LAUNCH_FAILED": _STICKY,
    "CUDA_ERROR_MISALIGNED_ADDRESS": _STICKY,
    "CUDA_ERROR_ECC_UNCORRECTABLE": _STICKY,
}


def _said(words: Any) -> str:
    return words.decode() if isinstance(words, bytes) else str(words)
