"""Functions that move elements: NumPy's names and conventions, each an ordinary compute that reads its argument.

rearrange (the same elements, other places) · join (several tensors, one tensor several times) · padding · indexing
(some of the elements) · fill (tensors of no other) · tools (what these share)
"""
