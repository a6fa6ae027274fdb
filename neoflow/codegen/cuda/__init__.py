"""Kernels for NVIDIA GPUs. There is nothing here yet; what they share with a CPU's is in `codegen.tir`."""
