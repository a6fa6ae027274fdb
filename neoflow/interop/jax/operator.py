"""`nf.jax.operator`: an expression as a function of JAX's arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import neoflow.language as nf
from neoflow import dtype as dt
from neoflow.caller import caller
from neoflow.errors import ArgumentError, RuntimeFault
from neoflow.expr.tensor import Tensor
from neoflow.interop.compiled import check_search, compiled
from neoflow.interop.family import LIMIT, Case, Family, Spec
from neoflow.interop.jax.calls import Call, register
from neoflow.interop.named import Named, decorator
from neoflow.interop.signature import Names, Signature
from neoflow.runtime.function import Function
from neoflow.tune import Limits

_names = Names()
_NARROW = {"float64": "float32", "int64": "int32"}
"""What JAX makes of wide types unless `jax_enable_x64` is set."""


class Operator(Named):
    """What `nf.jax.operator` makes: called with arrays, gives arrays.

    `jax.jit`, `jax.grad`, `jax.vjp` and `jax.vmap` work as with JAX's own functions, in any order.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        target: str | None,
        tune: float | Limits | None,
        limit: int,
    ):
        super().__init__(function, signature)
        narrow = Family(_Narrow(function), signature, limit)
        self._narrow = _Programs(signature.name, narrow, target, tune)
        self._wide = _Programs(f"{signature.name}.x64", Family(function, signature, limit), target, tune)

    def __call__(self, *args: Any, **named: Any) -> Any:
        args = self.signature.filled(args, named)
        specs: list[Any] = []
        values: list[Any] = []
        for a, value in zip(self.signature.arguments, args, strict=True):
            if a.is_tensor and value is not None:
                value = value if isinstance(value, jax.Array) else jax.numpy.asarray(value)
                values.append(value)
                value = _spec_of(value, a.name, self.signature.name)
            elif not a.is_tensor and isinstance(value, (jax.Array, np.ndarray)):
                raise ArgumentError(
                    f"operator {self.signature.name}: argument {a.name} is {a.kind}, known while the expression is "
                    "written, and got an array: name it in static_argnames= of jax.jit, or take it as a tensor",
                    caller(),
                )
            specs.append(value)
        if not values:
            raise ArgumentError(f"operator {self.signature.name} got no array at all", caller())
        programs = self._wide if jax.config.jax_enable_x64 else self._narrow
        found = programs.first(tuple(specs))(*values)
        return tuple(found) if self.signature.outputs else found[0]


class _Narrow:
    """A function whose results are of types that JAX has without `jax_enable_x64`."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *args: Any, **named: Any) -> Any:
        found = self._function(*args, **named)
        return type(found)(map(_narrowed, found)) if isinstance(found, (tuple, list)) else _narrowed(found)


def _narrowed(t: Any) -> Any:
    return nf.cast(t, _NARROW[t.dtype]) if isinstance(t, Tensor) and t.dtype in _NARROW else t


class _Programs:
    """The calls of an operator's cases. name: what custom calls find them by."""

    def __init__(self, name: str, family: Family, target: str | None, tune: float | Limits | None):
        self.name, self._family, self._target, self._tune = name, family, target, tune
        self._calls: dict[str, Call] = {}
        register(self)

    def first(self, specs: tuple[Any, ...]) -> Call:
        return self.call(self._family.case(specs))

    def found(self, text: str) -> Call:
        """The call of the case that a text is about."""
        return self.call(self._family.of(text))

    def case(self, text: str) -> Case:
        """The case that a text is about."""
        return self._family.of(text)

    def call(self, case: Case) -> Call:
        found = self._calls.get(case.text)
        return self._calls.setdefault(case.text, Call(self, case)) if found is None else found

    def compiled(self, case: Case) -> Function:
        return compiled(case, "cpu", self._target, self._tune)


def _spec_of(value: Any, name: str, operator: str) -> Spec:
    """dtype and shape of an argument. Raises `RuntimeFault` for a dtype that the language lacks, and for a shape that
    is not known yet."""
    dtype = value.dtype
    try:
        dtype_name = dt.name_of(dtype)
    except KeyError:
        known = ", ".join(dt.NUMPY)
        raise RuntimeFault(f"argument {name} is {dtype}; there are {known}: convert it") from None
    if not all(isinstance(n, int) for n in value.shape):
        extents = ", ".join(map(str, value.shape))
        raise RuntimeFault(
            f"operator {operator}: argument {name} has the shape ({extents}), and is compiled for numbers: "
            "export a program for each shape"
        )
    return dtype_name, tuple(value.shape)


def operator(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    outputs: int | None = None,
    target: str | None = None,
    tune: float | Limits | None = None,
    limit: int = LIMIT,
) -> Any:
    """An expression as a function of JAX's arrays: `@nf.jax.operator` before a function of tensors.

    The function is called with tensors of neoflow, once for each shape and dtype of the arrays that the operator is
    called with, and gives one tensor or a tuple of them (annotated `-> tuple[nf.Tensor, nf.Tensor]`, or outputs=2). An
    argument annotated `int`, `float`, `bool` or `str`, or with such a default, is what it is; all others are arrays,
    and may be None where None is their default. name: that in the log and in JAX's programs, its own when None. target:
    "cpu" and the like. tune: search for better schedules, for so many seconds or within `nf.tune.Limits`, of each
    program that is compiled; what was found is found again by every later process. limit: how many shapes there may be.
    """

    check_search(target, tune)
    make = partial(_made, target=target, tune=tune, limit=limit)
    return decorator(function, make, _names, name, outputs, limit)


def _made(function: Callable[..., Any], signature: Signature, **options: Any) -> Operator:
    return Operator(function, signature, **options)
