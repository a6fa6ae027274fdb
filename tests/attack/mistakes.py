"""Calls of everything public with one argument, or all of them, replaced by what no reader of the docs would give.

A row of `calls` is a call that is right. Every argument it has, and every one it leaves out, is replaced by each row
of `WRONG` in turn; arguments are left out, doubled and misnamed. A call ends in a value, or in one of neoflow's errors
that shows no frame of neoflow: what Python, NumPy or a part of neoflow raised is *raw*. What Python itself says of a
call that it does not make (`unsupported operand`, a missing argument) is not.
"""

from __future__ import annotations

import importlib.util
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import neoflow as nf
from neoflow import data
from neoflow.errors import NeoflowError

F, init, optim = nf.nn.functional, nf.nn.init, nf.optim
PACKAGE = str(Path(nf.__file__).parent)

x, y = nf.placeholder((4, 5), name="x"), nf.placeholder((5, 3), name="y")
v, s = nf.placeholder((5,), name="v"), nf.placeholder((), name="s")
c, ids = nf.placeholder((2, 3, 4), name="c"), nf.placeholder((4,), "int64", name="ids")
table = nf.placeholder((4, 5), "int64", name="table")
image, filters = nf.placeholder((2, 4, 6, 6), name="image"), nf.placeholder((4, 4, 3, 3), name="filters")
line, volume = nf.placeholder((2, 4, 6), name="line"), nf.placeholder((1, 2, 4, 4, 4), name="volume")
w, k = nf.parameter((4, 5), name="w"), nf.axis(5, "k")
loss = nf.mean(x * w)

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a text": lambda: "a",
    "an empty text": lambda: "",
    "bytes": lambda: b"a",
    "a complex number": lambda: 1j,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a half": lambda: 1.5,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "minus seven": lambda: -7,
    "a hundred": lambda: 100,
    "2^63": lambda: 2**63,
    "10^30": lambda: 10**30,
    "10^5000": lambda: 10**5000,
    "true": lambda: True,
    "an empty list": list,
    "numbers": lambda: [1, 2],
    "a list of None": lambda: [None],
    "texts": lambda: ["a", "b"],
    "nested lists": lambda: [[1], [[2]]],
    "a list of a tensor": lambda: [x],
    "a tuple of three": lambda: (1, 2, 3),
    "a dict": lambda: {"a": 1},
    "a dict of tensors": lambda: {w: x, x: 1.0},
    "a set": lambda: {1, 2},
    "a generator": lambda: (n for n in range(2)),
    "a function": lambda: lambda: None,
    "a class": lambda: int,
    "an object": object,
    "Ellipsis": lambda: ...,
    "a slice": lambda: slice(0, 2),
    "an array": lambda: np.zeros((2, 3)),
    "an array of texts": lambda: np.array(["a", "b"]),
    "an array of objects": lambda: np.array([None, {}], dtype=object),
    "a date": lambda: np.datetime64("2020-01-01"),
    "a tensor of rank 0": lambda: s,
    "a tensor of rank 2": lambda: x,
    "a tensor of rank 3": lambda: c,
    "a tensor of rank 5": lambda: volume,
    "a tensor of integers": lambda: table,
    "a tensor of booleans": lambda: x > 0,
    "a tensor of float64": lambda: nf.cast(x, "float64"),
    "a parameter": lambda: w,
    "an axis": lambda: k,
    "an expression": lambda: v[k] * 2.0,
    "a condition": lambda: k < 3,
}


@dataclass(frozen=True)
class Call:
    """A call that is right. made: makes what is called. without: rows of `WRONG` that are right for it and long."""

    made: Callable[[], Callable[..., Any]]
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    is_whole: bool = True
    """False where all wrong arguments together leave nothing of neoflow in the call"""


def call(function: Callable[..., Any], *args: Any, **named: Any) -> Call:
    return Call(lambda: function, args, named)


def _beside(function: Callable[..., Any], first: Any, second: Any) -> Call:
    """A function of Python or NumPy whose first argument stays a tensor."""
    return Call(lambda: lambda other: function(first, other), (second,), is_whole=False)


def _alone(function: Callable[..., Any], only: Any) -> Call:
    return Call(lambda: lambda: function(only), is_whole=False)


_ONE = "abs ceil cos erf exp expm1 floor log log1p relu round rsqrt sigmoid sign sin sqrt stop_gradient tanh"
_TWO = "equal maximum minimum not_equal pow"
_BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift"
_OVER = "sum mean max min prod argmax argmin var std"
_ROWS = "gelu log_sigmoid mish selu silu softplus elu leaky_relu log_softmax logsumexp softmax squash relu sigmoid tanh"
_INFIX = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift lt le gt ge eq ne getitem contains"
_MANY = ("a hundred", "2^63", "10^30", "10^5000")
_PREFIX = "neg invert abs truth index"


def _trainer(**options: Any) -> nf.Trainer:
    return nf.Trainer(loss, [w], inputs=[x], progress=False, **options)


def _function() -> nf.pipeline.Function:
    return nf.compile([loss], [x])


def calls() -> dict[str, Call]:
    """Every call, by the name of what is called."""
    a = np.zeros((4, 5), np.float32)
    samples = data.Dataset(np.zeros((8, 1, 4, 4), np.float32), np.arange(8) % 2, 2)
    g, bias = nf.placeholder((4,), name="g"), nf.placeholder((4,), name="bias")
    found = {f"nf.{n}": call(getattr(nf, n), x) for n in _ONE.split()}
    found |= {f"nf.{n}": call(getattr(nf, n), x, v) for n in _TWO.split()}
    found |= {f"nf.{n}": call(getattr(nf, n), table, 1) for n in _BITS.split()}
    found |= {f"nf.{n}": call(getattr(nf, n), x, 1) for n in _OVER.split()}
    found |= {f"nf.{n}": call(getattr(nf, n), x > 0, 1) for n in ("any", "all")}
    found |= {f"nf.{n} of axes": call(getattr(nf, n), v[k], [k]) for n in ("sum", "mean", "argmax")}
    found |= {f"operator.{n}": _beside(getattr(operator, n), table, 1) for n in _INFIX.split()}
    found |= {f"operator.{n} of an axis": _beside(getattr(operator, n), k, 1) for n in _INFIX.split()}
    found |= {f"operator.{n}": _alone(getattr(operator, n), x) for n in _PREFIX.split()}
    found |= {f"F.{n}": call(getattr(F, n), x) for n in _ROWS.split()}
    found |= {
        f"np.{n}": _beside(getattr(np, n), x, 1) for n in ("add", "maximum", "sum", "take", "expand_dims", "roll")
    }
    found |= {
        f"np.{n} and more": _beside(lambda a, more, n=n: getattr(np, n)(a, 1, keepdims=more), x, False)
        for n in ("sum", "mean", "var")
    }
    found |= {
        # tensors
        "nf.placeholder": call(nf.placeholder, (4, 5)),
        "nf.parameter": call(nf.parameter, (4, 5)),
        "nf.constant": call(nf.constant, a),
        "nf.axis": call(nf.axis, 5),
        "nf.arange": call(nf.arange, 5),
        "nf.eye": call(nf.eye, 3),
        "nf.full": call(nf.full, (2, 3), 1.0),
        "nf.full_like": call(nf.full_like, x, 1.0),
        "nf.ones": call(nf.ones, (2, 3)),
        "nf.ones_like": call(nf.ones_like, x),
        "nf.zeros": call(nf.zeros, (2, 3)),
        "nf.zeros_like": call(nf.zeros_like, x),
        "nf.compute": call(nf.compute, (5,), lambda i: v[i]),
        "nf.scatter": call(nf.scatter, (4,), [k], [k % 4], v[k]),
        "nf.expr": call(nf.expr, "y[i] = sum(x[i,j] * v[j])", x=x, v=v),
        # functions
        "nf.bitwise_not": call(nf.bitwise_not, table),
        "nf.logical_not": call(nf.logical_not, x > 0),
        "nf.logical_and": call(nf.logical_and, x > 0, x < 1),
        "nf.logical_or": call(nf.logical_or, x > 0, x < 1),
        "nf.cast": call(nf.cast, x, "float64"),
        "nf.clip": call(nf.clip, x, 0.0, 1.0),
        "nf.select": call(nf.select, x > 0, x, 0.0),
        "nf.where": call(nf.where, x > 0, x, 0.0),
        "nf.einsum": call(nf.einsum, "ij,jk->ik", x, y),
        "nf.matmul": call(nf.matmul, x, y),
        "nf.argsort": call(nf.argsort, x),
        "nf.sort": call(nf.sort, x),
        "nf.top_k": call(nf.top_k, x, 2),
        "nf.broadcast_to": call(nf.broadcast_to, v, (4, 5)),
        "nf.concat": call(nf.concat, [x, x]),
        "nf.cumsum": call(nf.cumsum, x, 1),
        "nf.diagonal": call(nf.diagonal, x),
        "nf.expand_dims": call(nf.expand_dims, x, 0),
        "nf.flip": call(nf.flip, x, 0),
        "nf.gather": call(nf.gather, x, table),
        "nf.moveaxis": call(nf.moveaxis, x, 0, 1),
        "nf.one_hot": call(nf.one_hot, ids, 3),
        "nf.pad": call(nf.pad, x, 1),
        "nf.ravel": call(nf.ravel, x),
        "nf.repeat": call(nf.repeat, x, 2, 0),
        "nf.reshape": call(nf.reshape, x, (2, 10)),
        "nf.reshape of more": call(nf.reshape, x, 2, 10),
        "nf.mapping.pattern": call(
            nf.mapping.pattern, "own", {"x": "BH"}, lambda x: (x + x,), {}, lambda x: (2.0 * x,), {}, ()
        ),
        "nf.mapping.remove": call(nf.mapping.remove, "none"),
        "nf.scan": call(nf.scan, lambda old, row: (old, row), v, x),
        "nf.scan of more": call(nf.scan, lambda old, row: (old, row), v, x, 4, True, lambda old: nf.max(old) > 1),
        "nf.roll": call(nf.roll, x, 1, 0),
        "nf.split": call(nf.split, x, 2),
        "nf.squeeze": call(nf.squeeze, nf.placeholder((1, 4)), 0),
        "nf.stack": call(nf.stack, [x, x]),
        "nf.swapaxes": call(nf.swapaxes, x, 0, 1),
        "nf.take": call(nf.take, x, ids),
        "nf.take_along_axis": call(nf.take_along_axis, x, table),
        "nf.tile": call(nf.tile, x, 2),
        "nf.transpose": call(nf.transpose, x, (1, 0)),
        "nf.tril": call(nf.tril, x),
        "nf.triu": call(nf.triu, x),
        # programs
        "nf.count_ops": call(nf.count_ops, loss),
        "nf.evaluate": call(nf.evaluate, [loss], {x: a, w: a}),
        "nf.grad": call(nf.grad, loss, [w]),
        "nf.vjp": call(nf.vjp, x * 2.0, [x], x),
        "nf.check_grad": Call(lambda: nf.check_grad, (loss, [w]), {}, ("a hundred",)),
        "nf.mixed_precision": call(nf.mixed_precision, [loss], "bf16"),
        "nf.compile": call(nf.compile, [loss], [x], {w: w * 0.5}),
        "nf.get_value": call(nf.get_value, w),
        "nf.set_value": call(nf.set_value, w, a),
        "nf.load": call(nf.load, "digits.nflib"),
        "nf.save_parameters": call(nf.save_parameters, "parameters", [w]),
        "nf.load_parameters": call(nf.load_parameters, "parameters", [w]),
        "function": Call(_function, (a,)),
        "function.profile": Call(lambda: _function().profile, (a,), {"runs": 1}, _MANY),
        "function.source": Call(lambda: _function().source),
        "function.explain": Call(lambda: _function().explain),
        "function.results": Call(lambda: _function().results),
        # operators of networks
        "F.adaptive_avg_pool": call(F.adaptive_avg_pool, image, 2),
        "F.adaptive_max_pool": call(F.adaptive_max_pool, image, 2),
        "F.avg_pool": call(F.avg_pool, image, 2),
        "F.max_pool": call(F.max_pool, image, 2),
        "F.global_avg_pool": call(F.global_avg_pool, image),
        "F.global_max_pool": call(F.global_max_pool, image),
        "F.batch_norm": call(F.batch_norm, image, g, bias, g, bias),
        "F.batch_norm_inference": call(F.batch_norm_inference, image, g, bias, g, bias),
        "F.group_norm": call(F.group_norm, image, 2),
        "F.instance_norm": call(F.instance_norm, image),
        "F.layer_norm": call(F.layer_norm, x),
        "F.binary_cross_entropy_with_logits": call(F.binary_cross_entropy_with_logits, x, x),
        "F.cross_entropy": call(F.cross_entropy, x, ids),
        "F.margin_loss": call(F.margin_loss, x, ids),
        "F.mse_loss": call(F.mse_loss, x, x),
        "F.block_circulant": call(F.block_circulant, nf.placeholder((2, 6)), nf.placeholder((2, 3, 2))),
        "F.capsule_conv": call(F.capsule_conv, nf.placeholder((1, 2, 4, 4, 2, 2)), nf.placeholder((3, 2, 2, 2, 2, 2))),
        "F.conv1d": call(F.conv1d, line, nf.placeholder((3, 4, 2))),
        "F.conv2d": call(F.conv2d, image, filters),
        "F.conv3d": call(F.conv3d, volume, nf.placeholder((3, 2, 2, 2, 2))),
        "F.conv_transpose1d": call(F.conv_transpose1d, line, nf.placeholder((4, 3, 2))),
        "F.conv_transpose2d": call(F.conv_transpose2d, image, filters),
        "F.conv_transpose3d": call(F.conv_transpose3d, volume, nf.placeholder((2, 3, 2, 2, 2))),
        "F.depthwise_conv2d": call(F.depthwise_conv2d, image, nf.placeholder((4, 1, 3, 3))),
        "F.masked_conv2d": call(F.masked_conv2d, image, filters),
        "F.shift_conv2d": call(F.shift_conv2d, nf.placeholder((2, 9, 6, 6)), nf.placeholder((4, 9))),
        "F.im2col": call(F.im2col, image, 3),
        "F.dropout": call(F.dropout, x, 0.5, nf.parameter((), "int64")),
        "F.random_bits": call(F.random_bits, (4, 5), nf.parameter((), "int64")),
        "F.uniform": call(F.uniform, (4, 5), nf.parameter((), "int64")),
        "F.embedding": call(F.embedding, x, ids),
        "F.linear": call(F.linear, x, nf.placeholder((3, 5))),
        "F.matmul": call(F.matmul, x, y),
        "F.mttkrp": call(F.mttkrp, c, nf.placeholder((3, 2)), nf.placeholder((4, 2))),
        "F.one_hot": call(F.one_hot, ids, 3),
        "F.gru_cell": call(F.gru_cell, x, nf.placeholder((4, 2)), nf.placeholder((6, 5)), nf.placeholder((6, 2))),
        "F.lstm_cell": call(
            F.lstm_cell,
            x,
            nf.placeholder((4, 2)),
            nf.placeholder((4, 2)),
            nf.placeholder((8, 5)),
            nf.placeholder((8, 2)),
        ),
        "F.unrolled": call(F.unrolled, lambda old, row: (old, row), v, x),
        "F.lstm_gates": call(
            F.lstm_gates, nf.placeholder((4, 8)), nf.placeholder((4, 2)), {"i": 0, "f": 1, "g": 2, "o": 3}
        ),
        "F.scaled_dot_product_attention": call(F.scaled_dot_product_attention, line, line, line),
        "F.multi_head_attention": call(
            F.multi_head_attention,
            line,
            nf.placeholder((18, 6)),
            nf.placeholder((18,)),
            nf.placeholder((6, 6)),
            nf.placeholder((6,)),
            2,
        ),
        # layers
        "nn.BatchNorm": call(nf.nn.BatchNorm, 4),
        "nn.CapsuleConv": call(nf.nn.CapsuleConv, 2, 3, 2),
        "nn.Conv2d": call(nf.nn.Conv2d, 4, 3, 2),
        "nn.Dropout": call(nf.nn.Dropout, 0.5),
        "nn.Embedding": call(nf.nn.Embedding, 4, 5),
        "nn.GRUCell": call(nf.nn.GRUCell, 5, 2),
        "nn.LSTMCell": call(nf.nn.LSTMCell, 5, 2),
        "nn.Layer": call(nf.nn.Layer, "layer"),
        "nn.LayerNorm": call(nf.nn.LayerNorm, 5),
        "nn.Linear": call(nf.nn.Linear, 5, 3),
        "nn.MultiHeadAttention": call(nf.nn.MultiHeadAttention, 6, 2),
        "nn.Parameters": call(nf.nn.Parameters, "model"),
        "nn.Parameters()": Call(lambda: nf.nn.Parameters("model"), ("w", 4, 5)),
        "nn.Sequential": call(nf.nn.Sequential, nf.nn.Linear(5, 3), nf.relu),
        "nn.Sequential()": Call(lambda: nf.nn.Sequential(nf.nn.Linear(5, 3), nf.relu), (x,)),
        "nn.Sequential.summary": Call(lambda: nf.nn.Sequential(nf.nn.Linear(5, 3)).summary, (x,)),
        "nn.Sequential.rename": Call(lambda: nf.nn.Sequential(nf.nn.Linear(5, 3)).rename, ("net",)),
        "nn.Linear()": Call(lambda: nf.nn.Linear(5, 3), (x,)),
        "nn.Linear.new": Call(lambda: nf.nn.Linear(5, 3).new, ("b", (3,), init.zeros)),
        "nn.Conv2d()": Call(lambda: nf.nn.Conv2d(4, 3, 2), (image,)),
        "nn.BatchNorm()": Call(lambda: nf.nn.BatchNorm(4), (image,)),
        "nn.LayerNorm()": Call(lambda: nf.nn.LayerNorm(5), (x,)),
        "nn.Dropout()": Call(lambda: nf.nn.Dropout(0.5), (x,)),
        "nn.Embedding()": Call(lambda: nf.nn.Embedding(4, 5), (ids,)),
        "nn.GRUCell()": Call(lambda: nf.nn.GRUCell(5, 2), (x, nf.placeholder((4, 2)))),
        "nn.LSTMCell()": Call(lambda: nf.nn.LSTMCell(5, 2), (x, nf.placeholder((4, 2)), nf.placeholder((4, 2)))),
        "nn.MultiHeadAttention()": Call(lambda: nf.nn.MultiHeadAttention(6, 2), (line,)),
        "nn.Model": call(nf.nn.Model, "model", x, ids, {"w": w}, loss, x * w, 5),
        "nn.conv_norm": call(nf.nn.conv_norm, nf.nn.Parameters("model"), "conv", image, 3, 3),
        "nn.inference": call(nf.nn.inference, loss),
        "nn.state": call(nf.nn.state, loss),
        "nn.summary": call(nf.nn.summary, loss),
        "nn.training_form": call(nf.nn.training_form, x, lambda: x),
        "init.constant": call(init.constant, 1.0),
        "init.uniform": call(init.uniform, 0.0, 1.0),
        "init.normal": call(init.normal),
        "init.fan_in": call(init.fan_in),
        "init.filled": call(init.filled, "model", "w"),
        "init.seeded": call(init.seeded, init.zeros, 3),
        "init.initial_value": call(init.initial_value, w),
        # optimizers
        "optim.SGD": call(optim.SGD, 0.1),
        "optim.Adam": call(optim.Adam, 0.1),
        "optim.AdamW": call(optim.AdamW, 0.1),
        "optim.RMSprop": call(optim.RMSprop, 0.1),
        "optim.Optimizer": call(optim.Optimizer, 0.1),
        "optim.Group": call(optim.Group, [w]),
        "optim.clip_by_global_norm": call(optim.clip_by_global_norm, [x], 1.0),
        "optim.global_norm": call(optim.global_norm, [x]),
        "optim.SGD.updates": Call(lambda: optim.SGD(0.1).updates, ([w], [x])),
        "optim.Adam.updates": Call(lambda: optim.Adam(0.1, clip=1.0).updates, ([w], [x])),
        # training
        "nf.EarlyStopping": call(nf.EarlyStopping),
        "nf.Trainer": call(nf.Trainer, loss, [w], inputs=[x]),
        "trainer.fit": Call(
            lambda: _trainer().fit,
            ([(a,)],),
            {"steps": 1, "epochs": 1},
            ("a class", *_MANY),  # `int` is a function that raises an error of its own
        ),
        "trainer.evaluate": Call(lambda: _trainer().evaluate, ([(a,)],)),
        "trainer.predict": Call(lambda: _trainer().predict, (x * w, a)),
        "trainer.resume": Call(lambda: _trainer(checkpoint="run").resume),
        "trainer.save": Call(lambda: _trainer(checkpoint="run").save),
        "trainer.summary": Call(lambda: _trainer().summary),
        # data
        "data.Batches": call(data.Batches, samples, 4),
        "data.Dataset": call(data.Dataset, samples.images, samples.labels, 2),
        "data.read_idx": call(data.read_idx, "none.idx", 3),
        "data.load_mnist": call(data.load_mnist, "none"),
        "data.load_cifar10": call(data.load_cifar10, "none"),
        "data.load_digits": Call(lambda: data.load_digits, (), {"size": 8}, ("a hundred",)),
        "data.resize_bilinear": call(data.resize_bilinear, samples.images, 3),
        "data.stratified_split": call(data.stratified_split, samples, 2, 0),
        "data.chain": Call(lambda: data.chain, (10, 5, 8, 4)),
        "data.characters": Call(lambda: data.characters, (10, 5, 8)),
    }
    for extra, rows in (("onnx", _of_onnx), ("torch", _of_torch), ("jax", _of_jax)):
        if importlib.util.find_spec(extra) is not None:
            found |= rows()
    return found


def _of_onnx() -> dict[str, Call]:
    def there(function: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
        def made() -> Callable[..., Any]:
            nf.onnx.save("model.onnx", x * 2.0, x)
            return function

        return made

    return {
        "nf.onnx.load": Call(there(nf.onnx.load), ("model.onnx", {"x": (4, 5)})),
        "nf.onnx.save": Call(there(nf.onnx.save), ("written.onnx", [x * 2.0], [x])),
        "nf.onnx model": Call(lambda: there(nf.onnx.load)()("model.onnx"), (np.zeros((4, 5), np.float32),)),
    }


def _expression(a: nf.Tensor, b: nf.Tensor) -> nf.Tensor:
    return a * b


def _of_torch() -> dict[str, Call]:
    return {
        "nf.torch.operator": call(nf.torch.operator, _expression),
        "nf.torch.module": call(nf.torch.module, nf.nn.Linear(5, 3)),
    }


def _of_jax() -> dict[str, Call]:
    return {"nf.jax.operator": call(nf.jax.operator, _expression)}


def variants(row: Call) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """What is wrong, and the arguments: one replaced, all replaced, too few, too many, an unknown one."""
    signature = inspect.signature(row.made())
    wrong = {name: make for name, make in WRONG.items() if name not in row.without}
    for what, make in wrong.items():
        for name, kind in ((p.name, p.kind) for p in signature.parameters.values()):
            bound = signature.bind(*row.args, **row.named)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given = bound.arguments.get(name, ())
                for n in range(len(given)):
                    bound.arguments[name] = (*given[:n], make(), *given[n + 1 :])
                    yield f"{name}[{n}] {what}", bound.args, bound.kwargs
            elif kind is inspect.Parameter.VAR_KEYWORD:
                for key in dict(bound.arguments.get(name, {})):
                    bound.arguments[name] = {**row.named, key: make()}
                    yield f"{key} {what}", bound.args, bound.kwargs
            else:
                bound.arguments[name] = make()
                yield f"{name} {what}", bound.args, bound.kwargs
        if row.is_whole:
            yield f"all {what}", tuple(make() for _ in row.args), {key: make() for key in row.named}
        yield f"one more, {what}", (*row.args, make()), row.named
    for n in range(len(row.args)):
        yield f"without argument {n}", row.args[:n] + row.args[n + 1 :], row.named
    yield "no argument", (), {}
    yield "many more", (*row.args, *(1,) * 20), row.named
    yield "an unknown name", row.args, {**row.named, "bogus": 1}


def ended(function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> str:
    """How a call ends: "taken", "refused", "Python's", or the raw error."""
    try:
        function(*args, **named)
    except (NeoflowError, OSError) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]
        return f"frames of neoflow: {type(error).__name__}" if frames else "refused"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, TypeError) and all(f.filename == __file__ for f in frames):
            return "Python's"
        last = frames[-1]
        return f"{type(error).__name__}: {str(error)[:150]!r} in {Path(last.filename).name}:{last.lineno}"
    return "taken"
