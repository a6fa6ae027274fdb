"""CUDA C++ to machine code: by NVRTC, a library of the extra `cuda`, or by nvcc of an installed CUDA toolkit.

NEOFLOW_CUDA_COMPILER says which; otherwise the first one that is there.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from neoflow import config
from neoflow.errors import CodegenError
from neoflow.target import Target

FLAGS = ("--fmad=false", "-std=c++17", "-w")
"""A product and a sum are one operation only where the kernel says so. Division and square root are rounded, denormals
are numbers: that is what both compilers do unless asked otherwise. Warnings would be of what a kernel does not call."""


@dataclass(frozen=True)
class Compiler:
    """One way to machine code. is_here: whether it can be used; version: as it says itself."""

    name: str
    is_here: Callable[[], bool]
    version: Callable[[], str]
    cubin: Callable[[str, str], bytes]


# --- nvcc


def _nvcc_version() -> str:
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    return (said.strip().splitlines() or ["?"])[-1]


def _by_nvcc(source: str, architecture: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="neoflow-") as folder:
        given, made = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        given.write_text(source)
        command = ["nvcc", "-cubin", f"-arch={architecture}", *FLAGS, "-o", str(made), str(given)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CodegenError(f"nvcc does not compile a kernel for {architecture}:\n{done.stderr[-2000:]}")
        return made.read_bytes()


# --- NVRTC


def _has_nvrtc() -> bool:
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return False
    try:
        _nvrtc_version()
    except Exception:  # cuda-bindings has one class for each way in which the library is not found
        return False
    return True


@lru_cache(maxsize=1)
def _nvrtc_version() -> str:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"NVRTC {major}.{minor}"


def _by_nvrtc(source: str, architecture: str) -> bytes:
    from cuda.bindings import nvrtc

    options = [o.encode() for o in (f"--gpu-architecture={architecture}", *FLAGS, *_includes(source))]
    program = _done(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        code = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        if int(code) != 0:
            said = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace")
            raise CodegenError(f"NVRTC does not compile a kernel for {architecture}:\n{said[-2000:]}")
        return _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(size: Callable, get: Callable, program: Any) -> bytes:
    """Bytes that NVRTC writes into a buffer of the size it says."""
    found = b" " * int(_done(size(program)))
    get(program, found)
    return found


def _done(said: tuple) -> Any:
    if int(said[0]) != 0:
        raise CodegenError(f"NVRTC failed: {said[0].name}")
    return said[1]


def _includes(source: str) -> list[str]:
    """Where CUDA's headers are, for a source that needs them."""
    if "#include <cuda_" not in source and "#include <mma.h>" not in source:
        return []
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    if folder is None:
        raise CodegenError("half precision needs the headers of CUDA: pip install 'neoflow[cuda]', or set CUDA_PATH")
    return [f"-I{folder}"]


COMPILERS = {
    c.name: c
    for c in (
        Compiler("nvrtc", _has_nvrtc, _nvrtc_version, _by_nvrtc),
        Compiler("nvcc", lambda: shutil.which("nvcc") is not None, _nvcc_version, _by_nvcc),
    )
}


def compiler() -> Compiler:
    """The one that is used. Raises `CodegenError` when there is none."""
    wanted = config.load().cuda_compiler
    found = [c for c in COMPILERS.values() if c.name in (wanted or COMPILERS) and c.is_here()]
    if not found:
        what = f"the compiler {wanted} is not here" if wanted else "there is no CUDA compiler here"
        raise CodegenError(f"{what}: pip install 'neoflow[cuda]' brings NVRTC, a CUDA toolkit brings nvcc")
    return found[0]


def cuda_compilers() -> list[str]:
    """Those that are here, with their versions."""
    return [f"{c.name}: {c.version()}" for c in COMPILERS.values() if c.is_here()]


def cubin(source: str, target: Target) -> bytes:
    """Machine code of CUDA C++ for the target's architecture. Raises `CodegenError`."""
    return compiler().cubin(source, machine_of(source, target))


def machine_of(source: str, target: Target) -> str:
    """What the source is compiled for: instructions of warpgroups are for one architecture alone, "sm_90a"."""
    return f"{target.mcpu}a" if "wgmma.mma_async" in source else target.mcpu
