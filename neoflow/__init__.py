"""neoflow: write an operator as one index expression, differentiate it, compile it, train with it.

What builds expressions is here at once; differentiation, compilation and training are imported when first used.
"""

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Any

from neoflow.boundary import OPERATORS, publish, publish_methods
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
    PartitionError,
    RuntimeFault,
    ScheduleError,
    TextError,
)
from neoflow.expr.constant import constant
from neoflow.expr.count import count_ops
from neoflow.expr.dsl import (
    abs,
    argmax,
    argmin,
    axis,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cast,
    ceil,
    clip,
    compute,
    cos,
    equal,
    erf,
    exp,
    expm1,
    floor,
    left_shift,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    max,
    maximum,
    mean,
    min,
    minimum,
    not_equal,
    parameter,
    placeholder,
    pow,
    prod,
    relu,
    right_shift,
    round,
    rsqrt,
    scatter,
    select,
    sigmoid,
    sign,
    sin,
    sqrt,
    stop_gradient,
    sum,
    tanh,
    where,
)
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Expr
from neoflow.expr.products import einsum, matmul
from neoflow.expr.reducers import all, any, std, var
from neoflow.expr.shape.cumulative import cumsum
from neoflow.expr.shape.fill import arange, eye, full, full_like, ones, ones_like, zeros, zeros_like
from neoflow.expr.shape.indexing import diagonal, gather, one_hot, take, take_along_axis, tril, triu
from neoflow.expr.shape.join import concat, repeat, split, stack, tile
from neoflow.expr.shape.ordering import argsort, sort, top_k
from neoflow.expr.shape.padding import pad
from neoflow.expr.shape.rearrange import (
    broadcast_to,
    expand_dims,
    flip,
    moveaxis,
    ravel,
    reshape,
    roll,
    squeeze,
    swapaxes,
    transpose,
)
from neoflow.expr.tensor import Parameter, Tensor

if TYPE_CHECKING:
    from neoflow.autodiff import check_grad, grad, vjp
    from neoflow.expr.notation import expr

__version__ = "0.1.0"

_LAZY = {
    "EarlyStopping": "neoflow.train",
    "Trainer": "neoflow.report.trainer",
    "check_grad": "neoflow.autodiff",
    "compile": "neoflow.pipeline",
    "get_value": "neoflow.runtime",
    "grad": "neoflow.autodiff",
    "load_parameters": "neoflow.runtime",
    "mixed_precision": "neoflow.pipeline",
    "nn": "neoflow.nn",
    "optim": "neoflow.nn.optim",
    "save_parameters": "neoflow.runtime",
    "set_value": "neoflow.runtime",
    "tune": "neoflow.tune",
    "vjp": "neoflow.autodiff",
}
"""Public names that live in a stage of their own, and that stage; a name of a module is the module."""

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
    "load_parameters",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
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


publish(globals(), (name for name in __all__ if name not in ("Parameter", "Tensor")))
publish_methods(type(modules["neoflow.expr"]))
publish_methods(Expr, OPERATORS)
publish_methods(Tensor, OPERATORS)


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'neoflow' has no attribute {name!r}")
    module = import_module(home)
    globals()[name] = module if home.endswith(f".{name}") else getattr(module, name)
    publish(globals(), [name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
