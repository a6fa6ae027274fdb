"""Small models written with the `onnx` package, as exporters write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
VERSION = 17


def info(name: str, shape: Sequence[Any] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    version: int = VERSION,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(a, name) for name, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, [info(o, None) for o in outputs], held)
    versions = [helper.make_opsetid("", version), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=versions, functions=functions, ir_version=9)


def saved(proto: onnx.ModelProto, folder: Any) -> Any:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network() -> onnx.ModelProto:
    """A convolution, batch norm, pooling, a Reshape to a shape that is computed from that of its input, and Gemm."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"], name="norm"),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["p"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "first"], ["batches"]),
        node("Concat", ["batches", "rest"], ["wanted"], axis=0),
        node("Reshape", ["p", "wanted"], ["f"]),
        node("Gemm", ["f", "v", "u"], ["y"], transB=1),
    ]
    weights = {
        "w": drawn(4, 2, 3, 3, seed=1), "b": drawn(4, seed=2), "scale": drawn(4, seed=3), "bias": drawn(4, seed=4),
        "mean": drawn(4, seed=5), "var": np.abs(drawn(4, seed=6)) + 1, "v": drawn(3, 64, seed=7), "u": drawn(3, seed=8),
        "zero": np.array(0), "first": np.array([0]), "rest": np.array([-1]),
    }  # fmt: skip
    return model(nodes, [info("x", ["batch", 2, 8, 8])], ["y"], weights)
