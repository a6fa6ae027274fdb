"""The meaning of the language: NumPy evaluates tensors, and whatever a later stage makes must agree with it.

Inside a body every value is an array with one dimension for each axis of the definition, of extent 1 for the axes
it does not use. A read that is affine in the axes is a strided view; a sum of products is a chain of matrix products.
What would need more than `LIMIT` elements at once is done in pieces along one axis; where elements need nothing of
each other, in pieces that stay in a cache, each expression let go after its last use.

Types: integers are exact and wrap at their width, `//` and `%` round down; float16 and bfloat16 are computed in
float32 and rounded where a tensor is stored or a cast says so; sums of float32 accumulate in at least float32.

program (tensors in turn) · types (how elements are held) · analysis (of a body, before any value) · body (one tensor's
values, in pieces) · views (affine reads) · contraction (sums of products) · fault (which integer was
out of range)
"""

from neoflow.expr.interp.fault import find_fault
from neoflow.expr.interp.program import evaluate

__all__ = ["evaluate", "find_fault"]
