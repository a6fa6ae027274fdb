"""neoflow: write an operator as one index expression, differentiate it, compile it, train with it.

Everything is imported when it is first used: a package that was built ahead of time runs without the compiler, and
without what expressions are written with.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neoflow.boundary import publish
from neoflow.errors import (
    ArgumentError,
    CheckpointError,
    CodegenError,
    ConfigError,
    DataError,
    ExpressionError,
    GradientError,
    GraphError,
    NeoflowError,
    PackageError,
    PartitionError,
    RuntimeFault,
    ScheduleError,
    TextError,
)

if TYPE_CHECKING:
    from neoflow.autodiff import check_grad, grad, vjp
    from neoflow.expr.notation import expr
    from neoflow.language import *

__version__ = "0.1.0"

_LANGUAGE = "neoflow.language"
_LAZY = {
    "EarlyStopping": "neoflow.train",
    "Trainer": "neoflow.report.trainer",
    "check_grad": "neoflow.autodiff",
    "compile": "neoflow.pipeline",
    "expr": "neoflow.expr",
    "get_value": "neoflow.runtime.parameters",
    "grad": "neoflow.autodiff",
    "jax": "neoflow.interop.jax",
    "load": "neoflow.package.loading",
    "load_parameters": "neoflow.runtime.parameters",
    "mapping": "neoflow.mapping",
    "mixed_precision": "neoflow.precision",
    "nn": "neoflow.nn",
    "onnx": "neoflow.interop.onnx",
    "optim": "neoflow.nn.optim",
    "save_parameters": "neoflow.runtime.parameters",
    "set_value": "neoflow.runtime.parameters",
    "torch": "neoflow.interop.torch",
    "tune": "neoflow.tune",
    "vjp": "neoflow.autodiff",
}
"""Public names that live in a stage of their own, and that stage; a name of a module is the module. The others are of
the language."""

_EXTRAS = ("jax", "onnx", "torch")
"""Public names that need another library: `from neoflow import *` leaves them."""

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "CodegenError",
    "ConfigError",
    "DataError",
    "EarlyStopping",
    "ExpressionError",
    "GradientError",
    "GraphError",
    "NeoflowError",
    "PackageError",
    "Parameter",
    "PartitionError",
    "RuntimeFault",
    "ScheduleError",
    "Tensor",
    "TextError",
    "Trainer",
    "__version__",
    "abs",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "axis",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "check_grad",
    "clip",
    "compile",
    "compute",
    "concat",
    "constant",
    "cos",
    "count_ops",
    "cumsum",
    "diagonal",
    "einsum",
    "equal",
    "erf",
    "evaluate",
    "exp",
    "expand_dims",
    "expm1",
    "expr",
    "eye",
    "flip",
    "floor",
    "full",
    "full_like",
    "gather",
    "get_value",
    "grad",
    "left_shift",
    "load",
    "load_parameters",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "mapping",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mixed_precision",
    "moveaxis",
    "nn",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "optim",
    "pad",
    "parameter",
    "placeholder",
    "pow",
    "prod",
    "ravel",
    "relu",
    "repeat",
    "reshape",
    "right_shift",
    "roll",
    "round",
    "rsqrt",
    "save_parameters",
    "scan",
    "scatter",
    "select",
    "set_value",
    "sigmoid",
    "sign",
    "sin",
    "sort",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tanh",
    "tile",
    "top_k",
    "transpose",
    "tril",
    "triu",
    "tune",
    "var",
    "vjp",
    "where",
    "zeros",
    "zeros_like",
]


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _EXTRAS:
        raise AttributeError(f"module 'neoflow' has no attribute {name!r}")
    home = _LAZY.get(name, _LANGUAGE)
    module = import_module(home)
    if home == _LANGUAGE:
        globals().update({n: getattr(module, n) for n in module.__all__})
        publish(globals(), (n for n in module.__all__ if n not in ("Parameter", "Tensor")))
    else:
        globals()[name] = module if home.endswith(f".{name}") else getattr(module, name)
        publish(globals(), [name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted((*__all__, *_EXTRAS))
