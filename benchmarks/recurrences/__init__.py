"""Recurrences as scans, T = 16 to 4096, value and gradients, beside PyTorch and JAX: the rows of this table."""
