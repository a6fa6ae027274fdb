"""Neural networks, written in the expression language: nothing here is known to the compiler."""

from neoflow.nn import functional, init, optim
from neoflow.nn.model import Model, Parameters

__all__ = ["Model", "Parameters", "functional", "init", "optim"]
