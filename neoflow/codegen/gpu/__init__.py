"""Kernels for NVIDIA GPUs: the templates' launches, and compilation through CUDA C++."""

from neoflow.codegen.gpu.compile import build, kernel_key, source
from neoflow.codegen.gpu.kernel import Lowered, lower

__all__ = ["Lowered", "build", "kernel_key", "lower", "source"]
