"""What a model file gives, so that one command trains, measures and explains any of them.

A file `models/NAME.py` has `build(batch=..., **sizes) -> Model`, `VARIANTS` (name of each named size -> arguments of
`build`, the first being the default) and `main()`; it may have `SMALL`, the sizes that suit the data
`neoflow train` has, where its own are meant for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from numpy.typing import NDArray

from neoflow import fill
from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Parameter, Placeholder, Tensor
from neoflow.nn import init
from neoflow.nn.summary import Summary, summary

__all__ = ["Model", "Parameters"]


@dataclass(frozen=True)
class Model:
    """A network for training and for inference, over one set of parameters.

    x, labels: the inputs; labels are integers below `classes`, and x below `vocabulary` where it is of integers. Labels
    that are floats are weights of the scores, of an operator alone.
    parameters: by name, in order. loss: rank 0, in training form. scores: [..., classes], the largest predicts, in
    inference form. state: what a training step changes besides parameters (running statistics) and its new values.
    batch_axis: the dimension of x that counts samples. trained: whether a step of SGD changes the parameters.
    """

    name: str
    x: Placeholder
    labels: Placeholder
    parameters: Mapping[str, Parameter]
    loss: Tensor
    scores: Tensor
    classes: int
    vocabulary: int | None = None
    state: Mapping[Parameter, Tensor] = field(default_factory=dict)
    batch_axis: int = 0
    trained: bool = True

    def __repr__(self) -> str:
        values = sum(p.size for p in self.parameters.values())
        return f"<Model {self.name}: {len(self.parameters)} parameters ({values:,} values), x {self.x!r}>"

    def summary(self) -> Summary:
        """Layers, shapes, parameters and bytes; print it."""
        return summary(self.loss, self.parameters.values())

    @property
    def inputs(self) -> tuple[Placeholder, Placeholder]:
        """What a step is fed, in order."""
        return self.x, self.labels

    def initial(self) -> dict[Parameter, NDArray]:
        """First values of every parameter and of the state."""
        return {p: init.initial_value(p) for p in (*self.parameters.values(), *self.state)}

    def values(self) -> dict[str, NDArray]:
        """First values of the parameters by name, without the state."""
        return {name: init.initial_value(p) for name, p in self.parameters.items()}

    def example(self) -> tuple[NDArray, NDArray]:
        """x and labels from the uniform fill: the same in every framework."""
        if dt.is_float(self.x.dtype):
            x: NDArray = fill.inputs(self.name, self.x.shape)
        else:
            assert self.vocabulary is not None
            x = fill.labels(self.name, self.x.shape, self.vocabulary, "x")
        if dt.is_float(self.labels.dtype):
            return x, fill.fill(f"{self.name}/g", self.labels.shape, 1, 0)
        return x, fill.labels(self.name, self.labels.shape, self.classes)


class Parameters(dict[str, Parameter]):
    """The parameters of a model as it is written down: asking for a name makes it, asking again gives the same.

    Values are the uniform fill of (model, name). `state` holds running statistics and their new values.
    """

    def __init__(self, model: str, gain: float = 1.0):
        super().__init__()
        self.model, self.gain = model, gain
        self.state: dict[Parameter, Tensor] = {}
        self._statistics: dict[str, Parameter] = {}

    def __repr__(self) -> str:
        return f"<Parameters of {self.model}: {', '.join(f'{n}{list(p.shape)}' for n, p in self.items())}>"

    def __call__(self, name: str, *shape: int, fan_in: int | None = None) -> Parameter:
        if name not in self:
            self[name] = dsl.parameter(shape, name=name, init=init.filled(self.model, name, fan_in, self.gain))
        return self[name]

    def statistic(self, name: str, shape: tuple[int, ...], value: float) -> Parameter:
        """A tensor that training keeps beside the parameters, `value` everywhere at first."""
        if name not in self._statistics:
            self._statistics[name] = dsl.parameter(shape, name=name, init=init.constant(value))
        return self._statistics[name]
