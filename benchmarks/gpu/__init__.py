"""Kernels and training steps on a GPU: against NumPy, against what the GPU reaches, against PyTorch."""
