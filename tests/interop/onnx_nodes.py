"""The `onnx` package's own tests of operators, against `evaluate` and against kernels."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import neoflow as nf
from neoflow.errors import NeoflowError
from neoflow.interop.onnx.operators import TABLE


@cache
def collected() -> dict[str, Any]:
    """All node tests of the installed package, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)}


def with_known(model: onnx.ModelProto, inputs: list[Any], everything: bool) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The model with the inputs that its operators take as known (or all integers) as initializers; the others'
    arrays."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    wanted = {n.input[k] for n in model.graph.node for k in known_of(n) if k < len(n.input)}
    left = []
    for info, array in zip(list(model.graph.input), inputs, strict=True):
        is_array = isinstance(array, np.ndarray)
        is_small = is_array and (array.dtype.kind in "ib" or not array.ndim)
        if is_array and (info.name in wanted or (everything and is_small) or not array.size):
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            left.append(array)
    return model, left


def as_array(value: Any) -> Any:
    """Some tests give tensors of protobuf, and numbers."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def known_of(node: onnx.NodeProto) -> tuple[int, ...]:
    return TABLE[node.op_type].known if node.op_type in TABLE else (0,) if node.op_type == "If" else ()


def wrong(case: Any, folder: Path, compiled: bool = False) -> str | None:
    """What a test finds wrong, in a sentence; None where it passes."""
    for given, wanted in case.data_sets:
        inputs, outputs = ([as_array(a) for a in arrays] for arrays in (given, wanted))
        for everything in (False, True):
            model, arrays = with_known(case.model, inputs, everything)
            path = folder / "node.onnx"
            path.write_bytes(model.SerializeToString())
            try:
                loaded = nf.onnx.load(path)
                found = loaded(*arrays) if compiled else nf.evaluate(
                    loaded.outputs, dict(zip(loaded.inputs, arrays, strict=True))
                )  # fmt: skip
                break
            except NeoflowError as error:
                if everything or "has to be known" not in error.message:
                    return error.message.removeprefix(f"{path}: ")
        for mine, theirs in zip(found, outputs, strict=True):
            if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
                return f"gave {mine.dtype}{list(mine.shape)} for {theirs.dtype}{list(theirs.shape)}"
            try:
                np.testing.assert_allclose(
                    mine.astype(np.float64), theirs.astype(np.float64), rtol=case.rtol, atol=case.atol
                )
            except AssertionError as error:
                return " ".join(str(error).split())[:200]
    return None
