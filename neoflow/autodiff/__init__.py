"""Symbolic differentiation of tensors, in the language itself."""

from neoflow.autodiff.backward import grad, vjp
from neoflow.autodiff.numeric import check_grad

__all__ = ["check_grad", "grad", "vjp"]
