"""Kernels for a CPU: the templates' loop nests, compilation by LLVM, and the link to a shared library."""
