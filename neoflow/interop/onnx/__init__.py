"""Models of ONNX files as expressions, and programs as ONNX files. Public as `nf.onnx`."""

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise ImportError("nf.onnx needs the package onnx, which is not installed: pip install 'neoflow[onnx]'") from error

from neoflow.boundary import publish
from neoflow.interop.onnx.model import Model, load
from neoflow.interop.onnx.saving import save

__all__ = ["Model", "load", "save"]

publish(globals(), ["load", "save"])
