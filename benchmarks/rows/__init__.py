"""Operators at fixed sizes, tuned, beside four peers: the rows of `benchmarks.operators`."""
