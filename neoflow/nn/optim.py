"""Optimizers as expressions: from parameters and their gradients to new values, in the same graph as the loss.

`updates` maps each parameter, and each state tensor of the optimizer (itself a parameter, zeros at first), to the
expression of its new value; whoever runs the graph writes them back at the end of a step. A learning rate may be a
number, or a rank-0 tensor: a placeholder then stands in `inputs` and is fed at every step. A `Group` of parameters has
a learning rate and a weight decay of its own.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from neoflow.boundary import publish
from neoflow.caller import caller
from neoflow.errors import ExpressionError
from neoflow.expr import dsl
from neoflow.expr.tensor import Parameter, Placeholder, Tensor

__all__ = ["SGD", "Adam", "AdamW", "Group", "Optimizer", "RMSprop", "clip_by_global_norm", "global_norm"]

Rate = float | Tensor


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all elements of all gradients: rank 0, float32 at least."""
    gradients = list(gradients)
    if not gradients:
        raise ExpressionError("the global norm is that of one gradient at least", caller())
    dtype = "float64" if all(g.dtype == "float64" for g in gradients) else "float32"
    squares = [dsl.sum(g * g) for g in (_as(g, dtype) for g in gradients)]
    total = squares[0]
    for s in squares[1:]:
        total = total + s
    return dsl.sqrt(total)


def clip_by_global_norm(gradients: Sequence[Tensor], limit: float) -> list[Tensor]:
    """The gradients, scaled together so that their global norm is at most `limit`.

    Source: Pascanu et al., On the Difficulty of Training Recurrent Neural Networks, 2013.
    """
    scale = dsl.minimum(limit / (global_norm(gradients) + 1e-6), 1.0)
    return [g * _as(scale, g.dtype) for g in gradients]


def _as(x: Tensor, dtype: str) -> Tensor:
    return x if x.dtype == dtype else dsl.cast(x, dtype)


def _checked_rate(lr: Rate) -> Rate:
    if isinstance(lr, Tensor) and lr.rank:
        raise ExpressionError(f"the learning rate {lr.name} has shape {lr.shape}; it is one number", caller())
    if not isinstance(lr, Tensor) and not lr >= 0:
        raise ExpressionError(f"the learning rate is {lr!r}; it is at least 0", caller())
    return lr


@dataclass(frozen=True)
class Group:
    """Parameters with a learning rate, or a weight decay, of their own; None: the optimizer's.

    `nf.Trainer` takes both rates as numbers, and keeps their ratio when a schedule sets the optimizer's.
    """

    parameters: tuple[Parameter, ...]
    lr: Rate | None = None
    weight_decay: float | None = None

    def __init__(
        self, parameters: Iterable[Parameter], lr: Rate | None = None, weight_decay: float | None = None
    ) -> None:
        for name, value in (
            ("parameters", tuple(parameters)),
            ("lr", None if lr is None else _checked_rate(lr)),
            ("weight_decay", weight_decay),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        own = [f"{n}={v!r}" for n in ("lr", "weight_decay") if (v := getattr(self, n)) is not None]
        return f"Group({', '.join([f'{len(self.parameters)} parameters', *own])})"


class Optimizer:
    """What all optimizers share: the learning rate, clipping, decay, groups and state.

    lr: a float, or a rank-0 float tensor. weight_decay: of the squared norm of the parameters. clip: the largest global
    norm of the gradients, None for no limit. groups: parameters for which other rates and decays hold, each in one at
    most. After `updates`, `state` lists the state parameters made.
    """

    def __init__(self, lr: Rate, weight_decay: float = 0.0, clip: float | None = None, groups: Sequence[Group] = ()):
        self.lr, self.weight_decay, self.clip = _checked_rate(lr), weight_decay, clip
        self.groups = tuple(groups)
        listed = [p for g in self.groups for p in g.parameters]
        for p, number in Counter(listed).items():
            if number > 1:
                raise ExpressionError(f"parameter {p.name} is in {number} groups of the optimizer", caller())
        self._group = {p: g for g in self.groups for p in g.parameters}
        self.state: list[Parameter] = []

    def __repr__(self) -> str:
        signature = inspect.signature(type(self)).parameters
        told = {n: getattr(self, n, p.default) for n, p in signature.items()}
        changed = [f"{n}={v!r}" for n, v in told.items() if n == "lr" or v != signature[n].default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def rate_of(self, p: Parameter) -> Rate:
        """The learning rate of a parameter, as a factor of its dtype."""
        group = self._group.get(p)
        lr = self.lr if group is None or group.lr is None else group.lr
        return _as(lr, p.dtype) if isinstance(lr, Tensor) else lr

    def fed_by(self, lr: Tensor) -> Optimizer:
        """The same optimizer with a tensor for its learning rate, so far a number; those of groups keep their ratio."""
        other = copy.copy(self)
        groups = []
        for g in self.groups:
            if g.lr is not None and (isinstance(g.lr, Tensor) or isinstance(self.lr, Tensor) or not self.lr):
                raise ExpressionError(
                    f"a group has the learning rate {g.lr!r} beside the optimizer's {self.lr!r}: give numbers, the "
                    "optimizer's above 0, whose ratio a schedule keeps",
                    caller(),
                )
            groups.append(g if g.lr is None else replace(g, lr=lr * (g.lr / self.lr)))
        other.lr, other.groups = lr, tuple(groups)
        other._group = {p: g for g in groups for p in g.parameters}
        return other

    def decay_of(self, p: Parameter) -> float:
        """The weight decay of a parameter."""
        group = self._group.get(p)
        return self.weight_decay if group is None or group.weight_decay is None else group.weight_decay

    @property
    def inputs(self) -> tuple[Placeholder, ...]:
        """Placeholders to be fed at every step."""
        rates = [self.lr, *(g.lr for g in self.groups)]
        fed = (r for r in rates if isinstance(r, Placeholder) and not isinstance(r, Parameter))
        return tuple(dict.fromkeys(fed))

    def updates(self, parameters: Sequence[Parameter], gradients: Sequence[Tensor]) -> dict[Tensor, Tensor]:
        """Parameters and state mapped to the expressions of their new values; one gradient for each parameter."""
        parameters, gradients = list(parameters), list(gradients)
        for p, g in zip(parameters, gradients, strict=False):
            if p.shape != g.shape or p.dtype != g.dtype:
                raise ExpressionError(
                    f"parameter {p.name} is {p.dtype}{list(p.shape)}, its gradient {g.dtype}{list(g.shape)}", caller()
                )
        if len(parameters) != len(gradients) or not parameters:
            raise ExpressionError(
                f"{len(parameters)} parameters and {len(gradients)} gradients; give one each", caller()
            )
        for p in self._group.keys() - set(parameters):
            raise ExpressionError(f"parameter {p.name} of a group is not among those that are trained", caller())
        if self.clip is not None:
            gradients = clip_by_global_norm(gradients, self.clip)
        self.state = []
        result: dict[Tensor, Tensor] = {}
        self.prepare(result)
        for p, g in zip(parameters, gradients, strict=True):
            self.update(p, g, result)
        return result

    def prepare(self, result: dict[Tensor, Tensor]) -> None:
        """State shared by all parameters."""

    def update(self, p: Parameter, g: Tensor, result: dict[Tensor, Tensor]) -> None:
        """Enter the new value of `p`, and of its state, given its gradient."""
        raise NotImplementedError

    def new_state(self, shape: tuple[int, ...], dtype: str, name: str) -> Parameter:
        state = dsl.parameter(shape, dtype, name)
        self.state.append(state)
        return state


class SGD(Optimizer):
    """v = momentum v + g,  p = p - lr v;  nesterov: p = p - lr (g + momentum v).  g includes weight_decay p.

    Source: Sutskever et al., On the Importance of Initialization and Momentum in Deep Learning, 2013.
    """

    def __init__(
        self,
        lr: Rate = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        clip: float | None = None,
        groups: Sequence[Group] = (),
    ):
        super().__init__(lr, weight_decay, clip, groups)
        if nesterov and not momentum:
            raise ExpressionError("nesterov needs a momentum above 0", caller())
        self.momentum, self.nesterov = momentum, nesterov

    def update(self, p: Parameter, g: Tensor, result: dict[Tensor, Tensor]) -> None:
        if decay := self.decay_of(p):
            g = g + decay * p
        if self.momentum:
            v = self.new_state(p.shape, p.dtype, f"{p.name}.momentum")
            result[v] = velocity = self.momentum * v + g
            g = g + self.momentum * velocity if self.nesterov else velocity
        result[p] = p - self.rate_of(p) * g


class Adam(Optimizer):
    """Adam with bias correction; weight decay is added to the gradient.

    m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,  p = p - lr m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)
    Source: Kingma and Ba, 2014, algorithm 1.
    """

    decoupled = False

    def __init__(
        self,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip: float | None = None,
        groups: Sequence[Group] = (),
    ):
        super().__init__(lr, weight_decay, clip, groups)
        self.betas, self.eps = betas, eps

    def prepare(self, result: dict[Tensor, Tensor]) -> None:
        """The step counter, and from it the corrections; in float64, since 1 - b2^t cancels at first."""
        step = self.new_state((), "int64", "adam.step")
        result[step] = counted = step + 1
        t = dsl.cast(counted, "float64")
        self.first, self.second = (1.0 / (1.0 - dsl.exp(t * math.log(b))) for b in self.betas)

    def update(self, p: Parameter, g: Tensor, result: dict[Tensor, Tensor]) -> None:
        lr, decay, (b1, b2) = self.rate_of(p), self.decay_of(p), self.betas
        if decay and not self.decoupled:
            g = g + decay * p
        m, v = (self.new_state(p.shape, p.dtype, f"{p.name}.{n}") for n in ("m", "v"))
        result[m] = mean = b1 * m + (1.0 - b1) * g
        result[v] = square = b2 * v + (1.0 - b2) * (g * g)
        step = lr * _as(self.first, p.dtype)
        kept = p - (lr * decay) * p if decay and self.decoupled else p
        result[p] = kept - step * (mean / (dsl.sqrt(square * _as(self.second, p.dtype)) + self.eps))


class AdamW(Adam):
    """Adam with decoupled weight decay: p shrinks by lr weight_decay p, apart from the gradient.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2017.
    """

    decoupled = True

    def __init__(
        self,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        clip: float | None = None,
        groups: Sequence[Group] = (),
    ):
        super().__init__(lr, betas, eps, weight_decay, clip, groups)


class RMSprop(Optimizer):
    """v = a v + (1-a) g^2,  p = p - lr g / (sqrt(v) + eps).  g includes weight_decay p.

    Source: Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5, 2012.
    """

    def __init__(
        self,
        lr: Rate = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip: float | None = None,
        groups: Sequence[Group] = (),
    ):
        super().__init__(lr, weight_decay, clip, groups)
        self.alpha, self.eps = alpha, eps

    def update(self, p: Parameter, g: Tensor, result: dict[Tensor, Tensor]) -> None:
        if decay := self.decay_of(p):
            g = g + decay * p
        v = self.new_state(p.shape, p.dtype, f"{p.name}.square")
        result[v] = square = self.alpha * v + (1.0 - self.alpha) * (g * g)
        result[p] = p - self.rate_of(p) * (g / (dsl.sqrt(square) + self.eps))


publish(globals(), __all__)
