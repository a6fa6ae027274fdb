"""Cases of operators as JAX calls them: one primitive that becomes a custom call of XLA, and batches of it.

The custom call is a C function that `frame` makes of `_handled`. It has one attribute, the name of the operator and the
text of the case, so that a program that JAX keeps on disk finds its operator in the next process.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from neoflow import dtype as dt
from neoflow.errors import NeoflowError, RuntimeFault
from neoflow.interop.family import Case, Spec
from neoflow.interop.jax.derivatives import Known, derivative
from neoflow.interop.jax.frame import c_function
from neoflow.runtime.device import ALIGNMENT
from neoflow.runtime.executor import OutOfRange
from neoflow.runtime.function import Function

TARGET = "neoflow_run"
"""The name of the custom call."""


class Operator(Known, Protocol):
    """An operator, as far as its calls need it."""

    name: str

    def call(self, case: Case) -> Call: ...

    def found(self, text: str) -> Call: ...

    def compiled(self, case: Case) -> Function: ...


_operators: dict[str, Operator] = {}
"""by name; for ever, as compiled programs of JAX name them"""
_calls: dict[str, Call] = {}
"""by what the custom call says"""


def register(operator: Operator) -> None:
    """Let custom calls find an operator."""
    _operators[operator.name] = operator


class Call:
    """A case as a function of JAX's arrays: one for each input of its program. Gives a list.

    Outside of other functions of JAX it is compiled by itself.
    """

    def __init__(self, operator: Operator, case: Case):
        self.operator, self.case = operator, case
        self.text = f"{operator.name} {case.text}"
        self._run: _Run | None = None
        self._function = jax.jit(self._bound, inline=True)
        _calls[self.text] = self

    def __call__(self, *values: Any) -> list[Any]:
        if self.case.is_empty:
            self.case.check_empty()
            return [jax.numpy.zeros(shape, dtype) for dtype, shape in self.case.outputs]
        return list(self._function(*values))

    def _bound(self, *values: Any) -> list[Any]:
        return list(_primitive.bind(*values, of=self))

    def __repr__(self) -> str:
        return self.text

    def run(self) -> _Run:
        """What runs it, compiled now where it was not before."""
        found = self._run
        if found is None:
            with self.case.family.lock:
                found = self._run
                if found is None:
                    found = self._run = _Run(self.case, self.operator.compiled(self.case))
        return found


class _Run:
    """A compiled case, where XLA has memory."""

    def __init__(self, case: Case, function: Function):
        self._function = function
        self._inputs = [(t.dtype, t.shape) for t in case.program.inputs]
        self._outputs = case.outputs

    def __call__(self, arguments: list[int], results: list[int]) -> None:
        addresses = [*arguments, *results]
        kept: list[np.ndarray] = []
        back: list[tuple[int, Spec, np.ndarray]] = []
        if any(a % ALIGNMENT for a in addresses):
            for n, spec in enumerate((*self._inputs, *self._outputs)):
                if addresses[n] % ALIGNMENT:
                    aligned = _aligned(spec)
                    if n < len(arguments):
                        aligned[...] = _array(addresses[n], spec)
                    else:
                        back.append((addresses[n], spec, aligned))
                    kept.append(aligned)
                    addresses[n] = aligned.ctypes.data
        try:
            self._function.run_at(addresses)
        except OutOfRange:  # says which value, and the user's line
            self._function(*(_array(a, s) for a, s in zip(arguments, self._inputs, strict=True)))
            raise
        for address, spec, aligned in back:
            _array(address, spec)[...] = aligned


def _array(address: int, spec: Spec) -> np.ndarray:
    """Memory of somebody else as an array."""
    dtype = dt.NUMPY[spec[0]]
    memory = (ctypes.c_int8 * (math.prod(spec[1]) * dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(spec[1])


def _aligned(spec: Spec) -> np.ndarray:
    dtype = dt.NUMPY[spec[0]]
    nbytes = math.prod(spec[1]) * dtype.itemsize
    room = np.empty(nbytes + ALIGNMENT, np.int8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes].view(dtype).reshape(spec[1])


def _handled(text: str, arguments: list[int], results: list[int]) -> str | None:
    """Run a custom call; whatever is wrong, XLA gets it as a text: no exception may leave a C function."""
    try:
        call = _calls.get(text)
        if call is None:
            name, _, of = text.partition(" ")
            if name not in _operators:
                return f"no operator {name} is defined in this process: import the module that defines it"
            call = _operators[name].found(of)
        call.run()(arguments, results)
    except NeoflowError as error:
        return str(error)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


_c_function = c_function(_handled)
jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(ctypes.cast(_c_function, ctypes.c_void_p).value), "cpu")
_primitive = Primitive("neoflow")
_primitive.multiple_results = True


@_primitive.def_impl
def _impl(*values: Any, of: Call) -> Any:
    """Under `jax.disable_jit`, which this part of a program cannot do without."""
    with jax.disable_jit(False):
        return jax.jit(lambda *v: _primitive.bind(*v, of=of))(*values)


@_primitive.def_abstract_eval
def _abstract(*avals: Any, of: Call) -> list[Any]:
    return [jax.core.ShapedArray(shape, dt.NUMPY[dtype]) for dtype, shape in of.case.outputs]


def _lowered(context: Any, *operands: Any, of: Call) -> Any:
    of.run()
    return jax.ffi.ffi_lowering(TARGET)(context, *operands, of=of.text)


def _not_lowered(context: Any, *operands: Any, of: Call) -> Any:
    platforms = ", ".join(context.module_context.platforms)
    raise RuntimeFault(
        f"operator {of.operator.name} is compiled by JAX for {platforms}; neoflow inside JAX runs on cpu: "
        "put its arrays there, with jax.default_device(jax.devices('cpu')[0])"
    )


def _batched(values: Sequence[Any], dims: Sequence[Any], *, of: Call) -> tuple[list[Any], list[Any]]:
    which = tuple(n for n, d in enumerate(dims) if d is not None)
    moved = [v if d is None else jax.numpy.moveaxis(v, d, 0) for v, d in zip(values, dims, strict=True)]
    found = of.operator.call(of.case.batched(which, moved[which[0]].shape[0]))(*moved)
    return found, [0 if set(needs) & set(which) else None for needs in of.case.program.depends]


def _derived(primals: Sequence[Any], tangents: Sequence[Any], *, of: Call) -> tuple[list[Any], list[Any]]:
    """Values, and the tangents that follow from those that there are."""
    values, changes = derivative(of.operator, of.case, primals, tangents)
    return values, changes


mlir.register_lowering(_primitive, _not_lowered)
mlir.register_lowering(_primitive, _lowered, platform="cpu")
batching.primitive_batchers[_primitive] = _batched
ad.primitive_jvps[_primitive] = _derived
