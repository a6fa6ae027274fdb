"""The expression language: what users write, what every later stage reads.

ir (the grammar) · tensor (definitions, tensors, programs) · constant (tensors of known elements) · dtype · functions
(the scalar functions) · dsl (Python notation) · typed (scalars), given (shapes, names, first values): what it checks ·
weak (how numbers take a dtype) · reducers, products (made of these) · shape (NumPy's shape functions) · operators,
numpy_calls (Python's and NumPy's own words) · notation (index notation) · close, check (from what is written to a
closed, proved definition) · affine (index arithmetic) · extents · normal · recipe · count · interp (the meaning) ·
printer

The package is also a function: `nf.expr("y[i] = ...")` calls it.
"""

import sys
from types import ModuleType

from neoflow import dtype
from neoflow.boundary import OPERATORS, publish_methods
from neoflow.expr import notation, operators
from neoflow.expr.close import build, define
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select, Slot, postorder, rewrite, substitute
from neoflow.expr.notation import expr
from neoflow.expr.printer import print_compute, print_expr, print_program, print_tensor
from neoflow.expr.tensor import (
    Compute,
    Constant,
    Definition,
    Parameter,
    Placeholder,
    Tensor,
    structural_hash,
    topological,
)

__all__ = [
    "Apply",
    "Axis",
    "Cast",
    "Compute",
    "Const",
    "Constant",
    "Definition",
    "Expr",
    "Parameter",
    "Placeholder",
    "Read",
    "Reduce",
    "Select",
    "Slot",
    "Tensor",
    "build",
    "define",
    "dtype",
    "postorder",
    "print_compute",
    "print_expr",
    "print_program",
    "print_tensor",
    "rewrite",
    "structural_hash",
    "substitute",
    "topological",
]


operators.install()
publish_methods(Expr, OPERATORS)
publish_methods(Tensor, OPERATORS)
__doc__ = f"{expr.__doc__}\n\n{notation.__doc__}\n\n{__doc__}"  # what `help(nf.expr)` shows


class _Callable(ModuleType):
    """`neoflow.expr` is a package and, as a public name, the function of index notation."""

    __call__ = staticmethod(expr)


publish_methods(_Callable)
sys.modules[__name__].__class__ = _Callable
