"""Kernels for NVIDIA GPUs: the templates' launches, and compilation through CUDA C++ or LLVM."""

from neoflow.codegen.gpu.ceiling import THREADS as CEILING_THREADS
from neoflow.codegen.gpu.ceiling import ceilings, ceilings_module
from neoflow.codegen.gpu.compile import build, kernel_key, missing, source
from neoflow.codegen.gpu.compilers import cubin, cuda_compilers
from neoflow.codegen.gpu.kernel import Lowered, lower
from neoflow.codegen.gpu.persistent import build_persistent, lower_persistent, persistent_source

__all__ = [
    "CEILING_THREADS",
    "Lowered",
    "build",
    "build_persistent",
    "ceilings",
    "ceilings_module",
    "cubin",
    "cuda_compilers",
    "kernel_key",
    "lower",
    "lower_persistent",
    "missing",
    "persistent_source",
    "source",
]
