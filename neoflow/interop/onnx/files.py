"""Files of ONNX, read without trust: what they say is checked before it is believed."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from neoflow.errors import DataError

OLDEST = 13
"""The oldest version of the operators; older files are read as far as their operators mean the same."""


def read(path: str | os.PathLike) -> onnx.ModelProto:
    """The model of a file, with the elements that lie in other files of its folder.

    Raises `DataError` for what is no such file, or lies elsewhere, and for operators newer than the installed `onnx`.
    """
    file = Path(path)
    try:
        model = onnx.load_model_from_string(file.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    except (DecodeError, ValueError) as error:
        raise DataError(f"{path} is no ONNX model, or a damaged one: {error}") from None
    if not model.HasField("graph") or not model.graph.output:
        raise DataError(f"{path} is no ONNX model, or a damaged one: it has no graph with outputs")
    version = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise DataError(f"{path} has operators of version {version}; the installed onnx knows {newest}: upgrade it")
    for tensor in model.graph.initializer:
        if uses_external_data(tensor):
            _bring(tensor, file)
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise DataError(f"{path}: initializer {name!r} is sparse; store it dense")
    return model


def _bring(tensor: onnx.TensorProto, file: Path) -> None:
    """Put the elements that lie in another file into the tensor."""
    what = f"{file}: tensor {tensor.name!r}"
    try:
        info = ExternalDataInfo(tensor)
        offset, length = int(info.offset or 0), None if info.length is None else int(info.length)
        folder = file.resolve().parent
        data = (folder / info.location).resolve()
    except (ValueError, OSError, RuntimeError, AttributeError) as error:
        raise DataError(f"{what}: where its elements lie is not said: {error}") from None
    if not info.location or not data.is_relative_to(folder):
        raise DataError(f"{what} has its elements in {info.location!r}, outside of the model's folder")
    try:
        if not data.is_file():
            raise DataError(f"{what} has its elements in {info.location!r}, which is no file there")
        size = data.stat().st_size
        least = 0 if length is None else length
        if offset + least > size:
            raise DataError(f"{what}: {info.location} has {size} bytes, not {least} from byte {offset} on")
        with data.open("rb") as f:
            f.seek(offset)
            tensor.raw_data = f.read(-1 if length is None else length)
    except OSError as error:
        raise DataError(f"{what} has its elements in {info.location!r}: {error}") from error
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.DEFAULT
