"""Layers: parameters together with the operator that uses them.

A layer makes its parameters when it is made (`parameters()`, in order), and is called on tensors. What a call changes
besides parameters (running statistics, the step of dropout) `nf.Trainer` finds by itself; for `nf.compile` it is in
`updates()`, and `nn.state(loss)` has it for all layers of a network: pass it in `updates=` with the optimizer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from neoflow.expr import dsl
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.nn import init
from neoflow.nn.attention import multi_head_attention
from neoflow.nn.convolution import capsule_conv, conv2d
from neoflow.nn.form import advanced, make_unique, rename
from neoflow.nn.init import Init
from neoflow.nn.linear import embedding, linear
from neoflow.nn.normalization import batch_norm, batch_norm_inference, layer_norm
from neoflow.nn.random import dropout
from neoflow.nn.recurrent import gru_cell, lstm_cell
from neoflow.nn.summary import Summary, summary
from neoflow.nn.tools import Size, expect, sizes

__all__ = [
    "BatchNorm", "CapsuleConv", "Conv2d", "Dropout", "Embedding", "GRUCell", "LSTMCell", "Layer", "LayerNorm", "Linear",
    "MultiHeadAttention", "Sequential",
]  # fmt: skip


class Layer:
    """Base of all layers. `name` begins the names of its parameters; `dtype` is theirs."""

    has_forms = False
    """Whether a call takes `training`: True for the form in training, False for the one in inference."""
    if TYPE_CHECKING:
        __call__: Callable[..., Any]

    def __init__(self, name: str, dtype: str = "float32"):
        self.name, self.dtype = name, dtype
        self._parameters: list[Parameter] = []
        self._state: list[Parameter] = []
        self._updates: dict[Tensor, Tensor] = {}

    def parameters(self) -> list[Parameter]:
        """What is trained, in order."""
        return list(self._parameters)

    def state(self) -> list[Parameter]:
        """What is kept beside the parameters, in order: running statistics, counters."""
        return list(self._state)

    def leaves(self) -> list[Layer]:
        """The layers it is made of, each once, or itself."""
        return [self]

    def updates(self) -> dict[Tensor, Tensor]:
        """State that calls changed, with its new values."""
        return dict(self._updates)

    def new(
        self, name: str, shape: Sequence[int], init: Init, trained: bool = True, dtype: str | None = None
    ) -> Parameter:
        p = dsl.parameter(shape, dtype or self.dtype, f"{self.name}.{name}", init)
        (self._parameters if trained else self._state).append(p)
        return p

    def summary(self, *inputs: Tensor) -> Summary:
        """Layers, parameters and bytes, and with the inputs of a call the shapes it gives; print it."""
        if not inputs:
            return summary((), self.parameters())
        outputs = self(*inputs, training=False) if self.has_forms else self(*inputs)
        return summary(outputs, self.parameters())

    def rename(self, name: str) -> None:
        """Give the layer, and with it its parameters, another name."""
        for p in (*self._parameters, *self._state):
            rename(p, name + p.name.removeprefix(self.name))
        self.name = name

    def __repr__(self) -> str:
        weights = ", ".join(
            f"{p.name.removeprefix(f'{self.name}.')}{list(p.shape)}" for p in (*self.parameters(), *self.state())
        )
        return f"<{type(self).__name__} {self.name}{f': {weights}' if weights else ''}>"


class Linear(Layer):
    """y = x W^T + b;  x [..., inputs] -> [..., outputs]."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        name: str = "linear",
        dtype: str = "float32",
        gain: float = 1.0,
    ):
        super().__init__(name, dtype)
        self.weight = self.new("weight", (outputs, inputs), init.fan_in(gain))
        self.bias = self.new("bias", (outputs,), init.zeros) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Conv2d(Layer):
    """Convolution, as `functional.conv2d`;  x [B, inputs, H, W] -> [B, outputs, P, Q]."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        name: str = "conv",
        dtype: str = "float32",
        gain: float = 1.0,
    ):
        super().__init__(name, dtype)
        expect(groups >= 1 and inputs % groups == 0, f"Conv2d: {groups} groups do not divide {inputs} channels")
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        shape = (outputs, inputs // groups, *sizes(kernel, 2, "Conv2d: kernel"))
        self.weight = self.new("weight", shape, init.fan_in(gain))
        self.bias = self.new("bias", (outputs,), init.zeros) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class CapsuleConv(Layer):
    """Convolution of capsules, as `functional.capsule_conv`;  x [B, inputs, H, W, I, K] -> [B, outputs, P, Q, I, J]."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Size,
        side: tuple[int, int] = (4, 4),
        stride: Size = 1,
        padding: Size = 0,
        name: str = "capsules",
        dtype: str = "float32",
    ):
        super().__init__(name, dtype)
        self.stride, self.padding = stride, padding
        r, s = sizes(kernel, 2, "CapsuleConv: kernel")
        self.weight = self.new("weight", (outputs, inputs, r, s, *side), init.fan_in(1.0, inputs * r * s * side[0]))

    def __call__(self, x: Tensor) -> Tensor:
        return capsule_conv(x, self.weight, self.stride, self.padding)


class BatchNorm(Layer):
    """Batch normalisation of x [B, channels, ...]; `layer(x, training=False)` uses the running statistics."""

    has_forms = True

    def __init__(
        self, channels: int, momentum: float = 0.1, eps: float = 1e-5, name: str = "norm", dtype: str = "float32"
    ):
        super().__init__(name, dtype)
        self.momentum, self.eps = momentum, eps
        self.gamma = self.new("gamma", (channels,), init.ones)
        self.beta = self.new("beta", (channels,), init.zeros)
        self.running_mean = self.new("running_mean", (channels,), init.zeros, trained=False)
        self.running_variance = self.new("running_variance", (channels,), init.ones, trained=False)

    def __call__(self, x: Tensor, training: bool = True) -> Tensor:
        if not training:
            return batch_norm_inference(x, self.gamma, self.beta, self.running_mean, self.running_variance, self.eps)
        running = self.running_mean, self.running_variance
        out = batch_norm(x, self.gamma, self.beta, *running, self.momentum, self.eps)
        self._updates = advanced(self._updates, dict(zip(running, (out.mean, out.variance), strict=True)))
        return out.y


class LayerNorm(Layer):
    """Layer normalisation of x [..., size] over its last dimension."""

    def __init__(self, size: int, eps: float = 1e-5, name: str = "norm", dtype: str = "float32"):
        super().__init__(name, dtype)
        self.eps = eps
        self.gamma = self.new("gamma", (size,), init.ones)
        self.beta = self.new("beta", (size,), init.zeros)

    def __call__(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.gamma, self.beta, self.eps)


class Embedding(Layer):
    """A row of a table for each integer;  ids [...] below `count` -> [..., size]."""

    def __init__(self, count: int, size: int, name: str = "embedding", dtype: str = "float32"):
        super().__init__(name, dtype)
        self.weight = self.new("weight", (count, size), init.normal())

    def __call__(self, ids: Tensor) -> Tensor:
        return embedding(self.weight, ids)


class LSTMCell(Layer):
    """One LSTM step, gates in the order i, f, g, o;  x [B, inputs], h and c [B, size] -> (h', c')."""

    def __init__(self, inputs: int, size: int, name: str = "lstm", dtype: str = "float32"):
        super().__init__(name, dtype)
        self.size = size
        self.weights = _cell_weights(self, 4, inputs, size)

    def __call__(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        wx, wh, bx, bh = self.weights
        return lstm_cell(x, h, c, wx, wh, bx, bh)


class GRUCell(Layer):
    """One GRU step, gates in the order r, z, n;  x [B, inputs], h [B, size] -> h'."""

    def __init__(self, inputs: int, size: int, name: str = "gru", dtype: str = "float32"):
        super().__init__(name, dtype)
        self.size = size
        self.weights = _cell_weights(self, 3, inputs, size)

    def __call__(self, x: Tensor, h: Tensor) -> Tensor:
        wx, wh, bx, bh = self.weights
        return gru_cell(x, h, wx, wh, bx, bh)


def _cell_weights(cell: Layer, gates: int, inputs: int, size: int) -> tuple[Parameter, ...]:
    """wx, wh, bx, bh of a recurrent cell, all with variance 1 / (3 size)."""
    expect(size >= 1, f"{type(cell).__name__}: size {size} is not at least 1")
    bound = size**-0.5
    shapes = {"wx": (gates * size, inputs), "wh": (gates * size, size), "bx": (gates * size,), "bh": (gates * size,)}
    return tuple(cell.new(name, shape, init.uniform(-bound, bound)) for name, shape in shapes.items())


class MultiHeadAttention(Layer):
    """Self-attention of x [B, S, width] -> [B, S, width], as `functional.multi_head_attention`."""

    def __init__(self, width: int, heads: int, name: str = "attention", dtype: str = "float32"):
        super().__init__(name, dtype)
        expect(heads >= 1 and width % heads == 0, f"MultiHeadAttention: {heads} heads do not divide a width of {width}")
        self.heads = heads
        self.qkv_w = self.new("qkv_w", (3 * width, width), init.fan_in())
        self.qkv_b = self.new("qkv_b", (3 * width,), init.zeros)
        self.o_w = self.new("o_w", (width, width), init.fan_in())
        self.o_b = self.new("o_b", (width,), init.zeros)

    def __call__(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        return multi_head_attention(x, self.qkv_w, self.qkv_b, self.o_w, self.o_b, self.heads, mask, causal)


class Dropout(Layer):
    """Dropout, as `functional.dropout`; `layer(x, training=False)` is x.

    By itself it counts steps: its state, which begins with a random number that follows from its name and the seed of
    the training; each call drops other elements. With a `seed` of one's own (a rank-0 integer tensor, new for each
    step) the masks follow from it and from `stream`, one a layer.
    """

    has_forms = True

    def __init__(self, rate: float, seed: Tensor | None = None, stream: int = 0, name: str = "dropout"):
        super().__init__(name)
        expect(0.0 <= rate < 1.0, f"Dropout: rate {rate!r} is not in [0, 1)")
        self.rate, self.stream = rate, stream
        self._calls, self._counted = 0, dict[Tensor, Tensor]()
        if seed is None:
            seed = self.new("step", (), init.counter, trained=False, dtype="int64")
            self._counted = {seed: seed + 1}
        self.seed = seed

    def __call__(self, x: Tensor, training: bool = True) -> Tensor:
        if not training or not self.rate:
            return x
        if not self._state:
            return dropout(x, self.rate, self.seed, self.stream)
        self._calls, self._updates = self._calls + 1, dict(self._counted)
        return dropout(x, self.rate, self.seed, self.stream + self._calls - 1, self._counted)

    def __repr__(self) -> str:
        return f"<Dropout {self.name}: rate {self.rate}>"


class Sequential(Layer):
    """Layers, and functions of one tensor, one after another.

    Of layers of one name all but the first get a number: of two `linear` the second becomes `linear2`.
    """

    has_forms = True

    def __init__(self, *layers: Layer | Callable[[Tensor], Tensor], name: str = "sequential"):
        super().__init__(name)
        self.layers = layers
        _name_apart(self.leaves())

    def _parts(self) -> list[Layer]:
        return [f for f in self.layers if isinstance(f, Layer)]

    def parameters(self) -> list[Parameter]:
        return list(dict.fromkeys(p for f in self._parts() for p in f.parameters()))

    def state(self) -> list[Parameter]:
        return list(dict.fromkeys(p for f in self._parts() for p in f.state()))

    def leaves(self) -> list[Layer]:
        return list(dict.fromkeys(leaf for f in self._parts() for leaf in f.leaves()))

    def updates(self) -> dict[Tensor, Tensor]:
        return {t: new for f in self._parts() for t, new in f.updates().items()}

    def __call__(self, x: Tensor, training: bool = True) -> Tensor:
        for f in self.layers:
            x = f(x, training) if isinstance(f, Layer) and f.has_forms else f(x)
        return x

    def __repr__(self) -> str:
        parts = [repr(f) if isinstance(f, Layer) else getattr(f, "__name__", repr(f)) for f in self.layers]
        lines = "".join(f"\n    {line}" for part in parts for line in part.splitlines())
        return f"<{type(self).__name__} {self.name}:{lines}>"


def _name_apart(layers: Iterable[Layer]) -> None:
    """Give layers whose names are taken a number."""
    taken: set[str] = set()
    every = list(layers)
    for layer in every:
        name, number = layer.name, 2
        while name in taken and (layer.parameters() or layer.state()):
            name, number = f"{layer.name}{number}", number + 1
        taken.add(name)
        if name != layer.name:
            layer.rename(name)
    make_unique([p for layer in every for p in (*layer.parameters(), *layer.state())])
