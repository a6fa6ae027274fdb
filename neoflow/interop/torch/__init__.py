"""neoflow inside PyTorch: an expression as an operator, a layer as a module. Public as `nf.torch`."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("nf.torch needs PyTorch, which is not installed: pip install 'neoflow[torch]'") from error

from neoflow.boundary import publish
from neoflow.interop.torch.module import Module, module
from neoflow.interop.torch.operator import Operator, operator

__all__ = ["Module", "Operator", "module", "operator"]

publish(globals(), ["module", "operator"])
