"""Helpers: a subgraph of given tensors, compiled and compared with the interpreter."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import neoflow as nf
from neoflow import codegen
from neoflow.devices import device
from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Compute, Tensor, topological
from neoflow.loops import KnobValue, Schedule, default_schedule, nearest, problem_of
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.runtime.device.cpu import empty
from neoflow.runtime.executor import load_kernel, run_kernel
from neoflow.target import Target, cpu_target

TARGET = cpu_target()
WIDE = Target("cpu", "x86-64-v4", 2, 64, 2 << 20, 2)
"""What is chosen there is the same on every machine; not every machine runs it."""

TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def subgraph_of(outputs: list[Tensor], inputs: list[Tensor], rows: int | None = None) -> Subgraph:
    """Every compute between `inputs` and `outputs`, as one kernel; `rows`: one that goes row by row."""
    number = {t.uid: n for n, t in enumerate(inputs)}
    nodes = []
    for t in topological(outputs):
        if isinstance(t, Compute) and t.uid not in number:
            number[t.uid] = len(inputs) + len(nodes)
            nodes.append(Node(t.definition, tuple(number[i.uid] for i in t.inputs)))
    values = tuple(Value(t.shape, t.dtype) for t in inputs)
    found = Subgraph(values, tuple(nodes), tuple(number[o.uid] for o in outputs), rows)
    found.check()
    return found


def random_array(tensor: Tensor, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Aligned values, the same at every run."""
    rng = np.random.default_rng(zlib.crc32(repr((tensor.shape, tensor.dtype, low)).encode()))
    array = empty(tensor.shape, tensor.dtype)
    if tensor.dtype == "bool":
        array[...] = rng.integers(0, 2, tensor.shape)
    elif tensor.dtype.startswith("int"):
        array[...] = rng.integers(-5, 6, tensor.shape)
    else:
        array[...] = rng.uniform(low, high, tensor.shape)
    return array


def _looked_up() -> dict[str, Subgraph]:
    """Kernels that look up what they compute, in one dimension of several: an index that leaves its own dimension is
    refused although it stays in the tensor."""
    x, ids = nf.placeholder((3, 4, 5), name="x"), nf.placeholder((4,), "int64", name="ids")
    doubled = nf.compute(x.shape, lambda i, j, k: x[i, j, k] * 2.0)
    total = nf.sum(nf.exp(x), axis=(1, 2))
    parts = nf.compute(x.shape, lambda i, j, k: nf.exp(x[i, j, k]) / total[i])
    chosen = nf.compute((3, 4), lambda i, j: parts[i, j, ids[j]] + 1.0)
    return {
        "at each point": subgraph_of([nf.compute((3, 4), lambda i, j: doubled[i, j, ids[j]] + 1.0)], [x, ids]),
        "in a row": subgraph_of([chosen], [x, ids], rows=1),
        "in what a row writes": subgraph_of([parts, chosen], [x, ids], rows=1),
    }


LOOKED_UP = _looked_up()


def scheduled(subgraph: Subgraph, **knobs: KnobValue) -> Schedule:
    """The default template with these knobs where they are legal, the others by their defaults."""
    problem = problem_of(subgraph)
    template = default_schedule(subgraph, TARGET).template
    return nearest(problem, Schedule(template, tuple(knobs.items())), TARGET)


def changed(schedule: Schedule, **knobs: object) -> Schedule:
    """The schedule with some knobs replaced."""
    return Schedule(schedule.template, tuple(sorted({**dict(schedule.knobs), **knobs}.items())))


def kernel(subgraph: Subgraph, schedule: Schedule | None = None, target: Target = TARGET):
    """The compiled kernel, as a callable of arrays."""
    schedule = schedule or default_schedule(subgraph, target)
    [call] = loaded([codegen.lower(subgraph, schedule, target, "kernel")], target)
    return call


def loaded(lowered: list[Any], target: Target = TARGET) -> list[Callable[..., None]]:
    """Kernels compiled into one module, each as a callable of arrays, inputs then outputs."""
    library = device().load(codegen.build(lowered, target))
    kernels = [load_kernel(k.code, library) for k in lowered]
    return [lambda *arrays, k=k: run_kernel(device(), k, arrays, target.threads) for k in kernels]


def check_subgraph(subgraph: Subgraph, schedule: Schedule, target: Target = TARGET, atol: float = 1e-6) -> None:
    """Compile, run on drawn numbers, compare with `evaluate` in float64."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(v.dtype) for v in subgraph.inputs]
    inputs, outputs = subgraph.tensors()
    found = [empty(o.shape, o.dtype) for o in outputs]
    kernel(subgraph, schedule, target)(*arrays, *found)
    wanted = evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
    for got, exact in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=2e-5, atol=atol)


def assert_close(got: np.ndarray, want: np.ndarray, scale: float = 1.0) -> None:
    """Equal up to the dtype's tolerance, relative to the largest value; integers exactly."""
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    tolerance = TOLERANCE[want.dtype.name] * scale
    got64, want64 = np.asarray(got, np.float64), np.asarray(want, np.float64)
    finite = want64[np.isfinite(want64)]
    size = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(got64, want64, rtol=tolerance, atol=tolerance * max(size, 1e-3), equal_nan=True)


def check(
    outputs: Tensor | list[Tensor],
    inputs: list[Tensor],
    schedule: Schedule | None = None,
    feeds: dict[Tensor, np.ndarray] | None = None,
    scale: float = 1.0,
    target: Target = TARGET,
) -> Schedule:
    """Compile, run, compare with `evaluate`; the schedule used."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    subgraph = subgraph_of(outputs, inputs)
    schedule = schedule or default_schedule(subgraph, target)
    arrays = []
    for t in inputs:
        array = empty(t.shape, t.dtype)
        array[...] = feeds[t] if feeds and t in feeds else random_array(t)
        arrays.append(array)
    wanted = evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
    found = [empty(o.shape, o.dtype) for o in outputs]
    kernel(subgraph, schedule, target)(*arrays, *found)
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want, scale)
    return schedule
