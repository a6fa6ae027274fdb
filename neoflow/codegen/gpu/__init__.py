"""Kernels for NVIDIA GPUs: the templates' launches, and compilation through CUDA C++ or LLVM."""

from neoflow.codegen.gpu.ceiling import THREADS as CEILING_THREADS
from neoflow.codegen.gpu.ceiling import ceilings, ceilings_module
from neoflow.codegen.gpu.compile import build, kernel_key, missing, source
from neoflow.codegen.gpu.compilers import cubin, cuda_compilers
from neoflow.codegen.gpu.kernel import Lowered, lower

__all__ = [
    "CEILING_THREADS",
    "Lowered",
    "build",
    "ceilings",
    "ceilings_module",
    "cubin",
    "cuda_compilers",
    "kernel_key",
    "lower",
    "missing",
    "source",
]
