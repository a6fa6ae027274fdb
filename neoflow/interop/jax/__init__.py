"""neoflow inside JAX: an expression as a function of JAX's arrays. Public as `nf.jax`."""

try:
    import jax  # noqa: F401
except ImportError as error:
    raise ImportError("nf.jax needs JAX, which is not installed: pip install 'neoflow[jax]'") from error

from neoflow.boundary import publish
from neoflow.interop.jax.operator import Operator, operator

__all__ = ["Operator", "operator"]

publish(globals(), ["operator"])
