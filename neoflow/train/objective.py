"""What a run is to do, as expressions: the loss in its two forms, metrics, and what a step changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from neoflow.autodiff import grad
from neoflow.errors import ConfigError
from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Parameter, Placeholder, Tensor
from neoflow.nn.form import inference, make_unique, state
from neoflow.nn.optim import Optimizer
from neoflow.train.diagnosis import LARGEST
from neoflow.train.feed import Feed
from neoflow.train.samples import weighted
from neoflow.train.scaling import METRIC, LossScale, all_finite


@dataclass(frozen=True)
class Program:
    """What `compile` takes; of the inputs those of the batch come first."""

    outputs: tuple[Tensor, ...]
    inputs: tuple[Placeholder, ...]
    updates: Mapping[Tensor, Tensor] = field(default_factory=dict)


class Objective:
    """The programs of a run, written down when they are needed.

    updates: the optimizer's, over places that the gradients of each program take, so that all share its state. state:
    that of layers. rates: the placeholder of the learning rate, where a step is fed with one. scaling: of the loss, in
    precision "fp16", whose range gradients would leave.
    """

    def __init__(
        self,
        loss: Tensor,
        parameters: Sequence[Parameter],
        feed: Feed,
        optimizer: Optimizer,
        metrics: Mapping[str, Tensor],
        evaluation: Mapping[str, Tensor],
        given: Mapping[Parameter, Tensor],
        accumulate: int,
        precision: str = "fp32",
    ):
        self.loss, self.parameters, self.feed = loss, tuple(parameters), feed
        self.precision = precision
        self.scaling = LossScale(loss) if precision == "fp16" else None
        self.metrics, self.evaluation = dict(metrics), dict(evaluation)
        if self.scaling is not None:
            self.metrics[METRIC] = self.scaling.scale
        self.is_accumulating = accumulate > 1
        self.weights = dsl.placeholder((feed.size,), loss.dtype, "weights")
        self.gathered = dsl.placeholder((), "float64", "gathered")
        """samples whose gradients are in `sums`"""
        self.count = dsl.placeholder((), "float64", "count")
        """samples of the batch"""
        self.state: dict[Tensor, Tensor] = {**state([loss]), **dict(given.items())}
        make_unique([*self.parameters, *self.state])
        self.gradients = self._gradients(loss)
        self._places = [dsl.placeholder(g.shape, g.dtype, g.name) for g in self.gradients]
        self.updates = optimizer.updates(self.parameters, self._places)
        make_unique([*self.updates, *self.state, *self._scales])
        self.rates = optimizer.inputs
        self.sums = tuple(dsl.parameter(p.shape, p.dtype, f"{p.name}.sum") for p in self.parameters)

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """What a step changes: the parameters, the state of the optimizer and of the layers."""
        changed = dict.fromkeys([*self.updates, *self.state, *self._scales])
        return tuple(p for p in changed if isinstance(p, Parameter))

    @property
    def _scales(self) -> tuple[Parameter, ...]:
        return () if self.scaling is None else self.scaling.parameters

    def step(self, is_partial: bool = False) -> Program:
        """Loss and metrics, then the updates. is_partial: over weighted samples."""
        loss, metrics, kept, gradients = self._over(is_partial)
        extra = [self.weights] if is_partial else []
        if self.is_accumulating:
            extra += [self.gathered, self.count]
            total = self.gathered + self.count
            gradients = [
                self._sum(s, g) * dsl.cast(1.0 / total, g.dtype) for s, g in zip(self.sums, gradients, strict=True)
            ]
        extra += self.rates
        actual: dict[Tensor, Tensor] = dict(zip(self._places, gradients, strict=True))
        values = replaced(list(self.updates.values()), actual.get)
        updates = {**dict(zip(self.updates, values, strict=True)), **kept}
        if self.scaling is not None:
            finite = all_finite(gradients)
            updates = {**_unless(finite, updates), **self.scaling.updates(finite)}
        return self._program([loss, *metrics], loss, updates, extra)

    def gather(self, is_partial: bool = False) -> Program:
        """Loss and metrics of a batch that is not the last of its step: its gradients are added to `sums`."""
        loss, metrics, kept, gradients = self._over(is_partial)
        extra = [self.weights] * is_partial + [self.gathered, self.count]
        sums: dict[Tensor, Tensor] = {s: self._sum(s, g) for s, g in zip(self.sums, gradients, strict=True)}
        if self.scaling is not None:
            kept = _unless(all_finite(gradients), kept)
        return self._program([loss, *metrics], loss, {**sums, **kept}, extra)

    def judge(self, is_weighted: bool, training: bool = False) -> Program:
        """Loss and all metrics without updates, in inference form unless `training`."""
        roots = [self.loss, *self.evaluation.values()]
        roots = roots if training else inference(roots)
        if not is_weighted:
            return Program(tuple(roots), self.feed.inputs)
        return Program(tuple(weighted(roots, self.feed.axes, self.weights)), (*self.feed.inputs, self.weights))

    def _over(self, is_partial: bool) -> tuple[Tensor, list[Tensor], dict[Tensor, Tensor], list[Tensor]]:
        """Loss, metrics, new state and gradients, of a whole batch or of weighted samples."""
        metrics, kept = list(self.metrics.values()), list(self.state.values())
        if not is_partial:
            return self.loss, metrics, dict(self.state), self.gradients
        loss, *others = weighted([self.loss, *metrics, *kept], self.feed.axes, self.weights)
        new = dict(zip(self.state, others[len(metrics) :], strict=True))
        return loss, others[: len(metrics)], new, self._gradients(loss)

    def _gradients(self, loss: Tensor) -> list[Tensor]:
        if self.scaling is None:
            return grad(loss, self.parameters)
        return self.scaling.unscaled(grad(self.scaling.scaled(loss), self.parameters))

    def _sum(self, so_far: Parameter, g: Tensor) -> Tensor:
        """Gradients of the step's samples together, `so_far` being of no account before the first of them."""
        before = dsl.select(self.gathered > 0.0, so_far, 0.0)
        return before + g * dsl.cast(self.count, g.dtype)

    def _program(
        self,
        outputs: Iterable[Tensor],
        loss: Tensor,
        updates: Mapping[Tensor, Tensor],
        extra: Sequence[Placeholder],
    ) -> Program:
        """A loss that is not finite leaves everything as it was."""
        return Program(tuple(outputs), (*self.feed.inputs, *extra), _unless(dsl.abs(loss) <= LARGEST, updates))


def _unless(finite: Tensor, updates: Mapping[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """The updates, or where something is not finite none."""
    return {p: dsl.select(finite, value, p) for p, value in updates.items()}


def checked_loss(loss: Tensor) -> Tensor:
    """Raise `ConfigError` unless the loss is one float."""
    if loss.rank or not dt.is_float(loss.dtype):
        raise ConfigError(f"the loss is one float, but {loss.name} is {loss.dtype}{list(loss.shape)}", loss.where)
    return loss


def checked_metrics(metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Metrics as floats. Raises `ConfigError` for one that is neither one number nor one a sample."""
    for name, t in metrics.items():
        if t.rank > 1 or name == "loss":
            raise ConfigError(
                f"metric {name!r} has shape {t.shape}: a metric has rank 0 or one value a sample; 'loss' is taken",
                t.where,
            )
    return {n: t if dt.is_float(t.dtype) else dsl.cast(t, "float32") for n, t in metrics.items()}
