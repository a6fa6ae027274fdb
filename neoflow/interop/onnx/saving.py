"""`nf.onnx.save`: a program as a file of ONNX."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import set_external_data

from neoflow.caller import caller
from neoflow.errors import ArgumentError, shown
from neoflow.expr.tensor import Placeholder, Tensor, topological
from neoflow.graph import make_graph
from neoflow.interop.onnx.model import Model
from neoflow.interop.onnx.writing.loops import written_out
from neoflow.interop.onnx.writing.program import Program
from neoflow.runtime.files import write_atomically

MOST_BYTES = (1 << 31) - (1 << 20)
"""Of a file by itself, which protobuf limits to 2 GiB; beyond, its weights are in another one beside it."""
LEAST_BYTES = 1 << 10
"""Of a tensor that goes into the other file."""


def save(
    path: str | os.PathLike,
    outputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor] | Model,
    inputs: Sequence[Placeholder] | Placeholder = (),
) -> None:
    """Write a program as an ONNX file, which other runtimes run and `nf.onnx.load` reads.

    outputs: tensors, by the names that they get in the file where these are not their own: {"scores": y}. Or a model
    that was loaded, which has inputs of its own. inputs: placeholders, in the order of the file's inputs. The values
    that parameters have now are its initializers. More than 2 GiB of them go into PATH.data beside it.

    Of a network that was trained, save `nf.nn.inference(scores)`. Raises `GraphError` as `nf.compile` does, and
    `DataError`, which names the tensor, for what ONNX has no operators for.
    """
    named, given = _arguments(outputs, inputs)
    make_graph(list(named.values()), given)
    model = Program(written_out(named), given).model()
    file = Path(path)
    if model.ByteSize() > MOST_BYTES:
        data = _moved(model, f"{file.name}.data")
        write_atomically(file.with_name(f"{file.name}.data"), data)
    write_atomically(file, model.SerializeToString())


def _arguments(outputs: Any, inputs: Any) -> tuple[dict[str, Tensor], list[Placeholder]]:
    if isinstance(outputs, Model):
        if not isinstance(inputs, Tensor) and not len(inputs):
            return dict(zip(outputs.names, outputs.outputs, strict=True)), list(outputs.inputs)
        raise ArgumentError("inputs are those of the model; leave them out", caller())
    given = [inputs] if isinstance(inputs, Tensor) else inputs
    if not isinstance(given, Sequence) or not all(isinstance(t, Tensor) for t in given):
        raise ArgumentError(f"inputs is {shown(inputs)}; it is a placeholder or a list of placeholders", caller())
    if isinstance(outputs, Mapping):
        named = dict(outputs)
    else:
        roots = [outputs] if isinstance(outputs, Tensor) else outputs
        if not isinstance(roots, Sequence) or not all(isinstance(t, Tensor) for t in roots):
            raise ArgumentError(
                f"outputs is {shown(outputs)}; it is a tensor, a list of tensors, a mapping of names to tensors, or "
                "what nf.onnx.load gave",
                caller(),
            )
        named = {}
        taken = {t.name for t in (*given, *topological(list(roots))) if isinstance(t, Placeholder)}
        for t in roots:
            named[_free(t.name, {*taken, *named})] = t
    if not named or not all(isinstance(k, str) and k and isinstance(t, Tensor) for k, t in named.items()):
        raise ArgumentError(f"outputs is {shown(outputs)}; it has a name and a tensor for each output", caller())
    return named, list(given)


def _free(name: str, taken: Collection[str]) -> str:
    found, n = name, 1
    while found in taken:
        found, n = f"{name}_{n}", n + 1
    return found


def _moved(model: onnx.ModelProto, location: str) -> bytes:
    """The elements of large initializers, which the model says the places of from then on."""
    parts: list[bytes] = []
    at = 0
    for tensor in model.graph.initializer:
        data = tensor.raw_data
        if len(data) < LEAST_BYTES:
            continue
        set_external_data(tensor, location, at, len(data))
        tensor.ClearField("raw_data")
        parts.append(data)
        at += len(data)
    return b"".join(parts)
