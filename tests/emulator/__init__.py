"""A GPU in software: CUDA C++ compiled by g++, run on NumPy arrays, with every access checked.

`emulate(source, launches)` runs launches one after the other and raises a `Fault` at the first thing that is wrong. A
driver that keeps memory between launches uses what is below: `MEMORY` and `Program`."""

from collections.abc import Iterable, Sequence

import ml_dtypes
import numpy as np

from tests.emulator.faults import KINDS, Fault, SourceError
from tests.emulator.machine import MEMORY, Buffer, Extent, Memory, Program

__all__ = ["KINDS", "MEMORY", "Buffer", "Fault", "Launch", "Memory", "Program", "SourceError", "emulate"]

Launch = tuple[str, Extent, Extent, int, Sequence[np.ndarray]]
"""Kernel, blocks, threads of a block, bytes of dynamic shared memory, arrays."""

_TYPES = {
    "float": np.float32,
    "double": np.float64,
    "half": np.float16,
    "__half": np.float16,
    "nv_bfloat16": ml_dtypes.bfloat16,
    "__nv_bfloat16": ml_dtypes.bfloat16,
    "bool": np.bool_,
    "char": np.int8,
    "signed char": np.int8,
    "int8_t": np.int8,
    "uchar": np.uint8,
    "unsigned char": np.uint8,
    "uint8_t": np.uint8,
    "short": np.int16,
    "int16_t": np.int16,
    "ushort": np.uint16,
    "unsigned short": np.uint16,
    "uint16_t": np.uint16,
    "int": np.int32,
    "int32_t": np.int32,
    "uint": np.uint32,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "uint32_t": np.uint32,
    "long": np.int64,
    "long long": np.int64,
    "int64_t": np.int64,
    "unsigned long long": np.uint64,
    "uint64_t": np.uint64,
}
"""What a parameter's type points to."""


def _check(program: Program, launch: Launch) -> None:
    kernel, _, _, _, arrays = launch
    if kernel not in program.kernels:
        raise ValueError(f"the source has no kernel {kernel!r}, only {sorted(program.kernels)}")
    signature = program.kernels[kernel]
    if len(arrays) != len(signature.names):
        raise ValueError(f"{kernel}: {len(arrays)} arrays for {len(signature.names)} parameters")
    for kind, name, array in zip(signature.types, signature.names, arrays, strict=True):
        if kind != "void" and np.dtype(_TYPES[kind]) != array.dtype:
            raise ValueError(f"{kernel}: {name} is {kind}*, its array {array.dtype}")
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError(f"{kernel}: the array of {name} is not contiguous, or not writeable")


def emulate(
    source: str,
    launches: Iterable[Launch],
    checked: bool = True,
    seed: int | None = None,
    early_exit: bool = False,
    unwritten: Sequence[np.ndarray] = (),
) -> None:
    """Runs the launches; arrays change in place, also where a fault ends it.

    `checked=False`: accesses are not looked at, and kernels run as quickly as they can. `seed`: blocks in an order
    drawn from it. `early_exit`: a thread may end while others still come to a barrier. `unwritten` arrays hold nothing
    that a kernel may read before one has written it."""
    program, launches = Program(source, checked), list(launches)
    buffers: dict[int, tuple[np.ndarray, Buffer]] = {}
    bare = {id(a) for a in unwritten}
    for launch in launches:
        _check(program, launch)
        for name, array in zip(program.kernels[launch[0]].names, launch[4], strict=True):
            if id(array) in buffers:
                continue
            if any(np.may_share_memory(array, other) for other, _ in buffers.values()):
                raise ValueError(f"{launch[0]}: the array of {name} overlaps another")
            buffer = MEMORY.allocate(array.nbytes, array.itemsize, name, written=id(array) not in bare)
            buffer.view(array.dtype, array.shape)[...] = array
            buffers[id(array)] = (array, buffer)
    try:
        for kernel, blocks, threads, shared_bytes, arrays in launches:
            addresses = [buffers[id(a)][1].address for a in arrays]
            program.launch(kernel, blocks, threads, shared_bytes, addresses, seed, early_exit)
    finally:
        for array, buffer in buffers.values():
            array[...] = buffer.view(array.dtype, array.shape)
            MEMORY.free(buffer)
