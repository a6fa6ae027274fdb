"""What the JAX peers share: parameters by name, losses and gradients as NumPy arrays, a jitted step of SGD.

A network is a pure function of its parameters and its statistics; a step gets both as donated buffers and gives the
new ones, so that they change in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.float32]]
Tensors = dict[str, Array]


class Network(ABC):
    """A network with its parameters on JAX's side, under the model's names; `step` trains them in place.

    A peer gives `scores` and, where it is not the cross entropy, `criterion`. Sizes follow from the parameters' shapes.
    Parameters in float64 make everything float64.
    """

    def __init__(self, parameters: Arrays) -> None:
        self.wide = any(value.dtype == np.float64 for value in parameters.values())
        with jax.enable_x64(self.wide):
            self.tensors = {n: jnp.array(value) for n, value in parameters.items()}  # a copy
            self.state = self.statistics()
        self._step = jax.jit(self._trained, donate_argnums=(0, 1))
        self._gradients = jax.jit(jax.value_and_grad(self._loss, has_aux=True))
        self._infer = jax.jit(partial(self.scores, training=False))

    @abstractmethod
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """Forward: [..., classes], and the new statistics."""

    def statistics(self) -> Tensors:
        """What a step changes besides parameters, at first."""
        return {}

    def criterion(self, scores: Array, labels: Array) -> Array:
        """Cross entropy, the mean over all labels."""
        chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[..., None], axis=-1)
        return -chosen.mean()

    def _loss(self, p: Tensors, state: Tensors, x: Array, labels: Array) -> tuple[Array, Tensors]:
        scores, fresh = self.scores(p, state, x, training=True)
        return self.criterion(scores, labels), fresh

    def _trained(
        self, p: Tensors, state: Tensors, x: Array, labels: Array, lr: float
    ) -> tuple[Array, Tensors, Tensors]:
        (loss, fresh), gradients = jax.value_and_grad(self._loss, has_aux=True)(p, state, x, labels)
        return loss, {n: value - lr * gradients[n] for n, value in p.items()}, fresh

    def reset(self, parameters: Arrays) -> None:
        """Take these values."""
        with jax.enable_x64(self.wide):
            self.tensors = {n: jnp.array(value) for n, value in parameters.items()}

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        return {name: np.array(tensor) for name, tensor in self.tensors.items()}

    def loss_and_grads(self, x: NDArray, labels: NDArray[np.int64]) -> tuple[float, dict[str, NDArray[np.float32]]]:
        """The loss and the gradient of every parameter, without an update."""
        with jax.enable_x64(self.wide):
            (loss, _), gradients = self._gradients(self.tensors, self.state, x, labels)
        return float(loss), {name: np.asarray(g) for name, g in gradients.items()}

    def step(self, x: Any, labels: Any, lr: float = 0.01) -> float:
        """One SGD step, `p -= lr * dp` in place; returns the loss before it. x, labels: NumPy's or JAX's arrays."""
        with jax.enable_x64(self.wide):
            loss, self.tensors, self.state = self._step(self.tensors, self.state, x, labels, lr)
            jax.block_until_ready((self.tensors, self.state))
        return float(loss)

    def infer(self, x: Any) -> NDArray[np.float32]:
        """The scores; the largest is the prediction."""
        with jax.enable_x64(self.wide):
            return np.asarray(self._infer(self.tensors, self.state, x)[0])


class Operator(Network):
    """An operator alone: its loss is the mean of weighted scores; a step differentiates x too, and updates nothing."""

    def __init__(self, parameters: Arrays) -> None:
        super().__init__(parameters)
        self._every = jax.jit(jax.value_and_grad(self._loss, argnums=(0, 2), has_aux=True))

    def criterion(self, scores: Array, labels: Array) -> Array:
        return (scores * labels).mean()

    def every_gradient(self, x: Any, labels: Any) -> tuple[Array, Tensors]:
        """The loss, and the gradients of the parameters and of `x` by name."""
        with jax.enable_x64(self.wide):
            (loss, _), (gradients, of_x) = self._every(self.tensors, self.state, x, labels)
            return jax.block_until_ready((loss, {**gradients, "x": of_x}))

    def step(self, x: Any, labels: Any, lr: float = 0.01) -> float:
        """Gradients alone."""
        return float(self.every_gradient(x, labels)[0])


def linear(x: Array, w: Array, b: Array) -> Array:
    """x w^T + b."""
    return x @ w.T + b


def convolution(x: Array, w: Array, stride: int = 1, is_padded: bool = True) -> Array:
    """x [B, H, W, C], w [O, C / groups, R, S]; padded by half of the kernel, or not at all."""
    pads = [(n // 2, n // 2) if is_padded else (0, 0) for n in w.shape[2:]]
    return lax.conv_general_dilated(
        x,
        w.transpose(2, 3, 1, 0),
        (stride, stride),
        pads,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // w.shape[1],
    )


class ConvNet(Network):
    """A network of convolutions with batch normalisation, and its running statistics; x [B, H, W, C] inside."""

    eps = 1e-5

    def statistics(self) -> Tensors:
        gammas = {n.removesuffix(".gamma"): t for n, t in self.tensors.items() if n.endswith(".gamma")}
        means = {f"{n}.mean": jnp.zeros_like(g) for n, g in gammas.items()}
        return means | {f"{n}.variance": jnp.ones_like(g) for n, g in gammas.items()}

    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [B, 3, H, W] -> logits [B, classes]."""
        forward = Forward(p, dict(state), training, self.eps)
        y = self.features(forward, x.transpose(0, 2, 3, 1))
        return linear(y.mean((1, 2)), p["fc.weight"], p["fc.bias"]), forward.state

    @abstractmethod
    def features(self, forward: Forward, x: Array) -> Array:
        """x [B, H, W, 3] -> [B, P, Q, channels]."""


class Forward:
    """One pass through a `ConvNet`; `state` has the new statistics at its end."""

    def __init__(self, p: Tensors, state: Tensors, training: bool, eps: float) -> None:
        self.p, self.state, self.training, self.eps = p, state, training, eps

    def conv(self, x: Array, name: str, stride: int = 1, is_padded: bool = True) -> Array:
        """Convolution (padded by half of its kernel; groups by the weights' shape), batch normalisation."""
        return self.normalised(convolution(x, self.p[f"{name}.0.weight"], stride, is_padded), f"{name}.1")

    def normalised(self, y: Array, name: str) -> Array:
        """By the batch's mean and variance in training, by the running ones in inference."""
        mean, variance = self.state[f"{name}.mean"], self.state[f"{name}.variance"]
        if self.training:
            count = y.shape[0] * y.shape[1] * y.shape[2]
            old, mean, variance = (mean, variance), y.mean((0, 1, 2)), y.var((0, 1, 2))
            self.state[f"{name}.mean"] = 0.9 * old[0] + 0.1 * mean
            self.state[f"{name}.variance"] = 0.9 * old[1] + 0.1 * variance * (count / (count - 1))
        scale = self.p[f"{name}.gamma"] * lax.rsqrt(variance + self.eps)
        return (y - mean) * scale + self.p[f"{name}.beta"]


def pool(x: Array, start: float, combine: Any, stride: int = 2, pad: int = 1) -> Array:
    """Windows of 3x3: x [B, H, W, C]."""
    pads = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    return lax.reduce_window(x, start, combine, (1, 3, 3, 1), (1, stride, stride, 1), pads)
