"""`nf.torch.module`: a layer or a model of neoflow as a module of PyTorch, which has its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch

from neoflow.caller import caller
from neoflow.errors import ArgumentError, RuntimeFault
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.interop.family import LIMIT
from neoflow.interop.signature import Argument, Signature, hints_of, identifier, returned
from neoflow.interop.torch.operator import NAMES, Operator
from neoflow.nn.form import inference, make_unique, state
from neoflow.nn.layers import Layer
from neoflow.nn.model import Model
from neoflow.runtime.parameters import get_value, set_value
from neoflow.tune import Limits

Expression = Callable[..., tuple[Sequence[Tensor], Mapping[Any, Tensor], Mapping[Any, Tensor]]]
"""From the inputs to results, new values of state, and what stands for placeholders in both of these."""


@dataclass(frozen=True)
class _Written:
    """An expression closed in its parameters: called with the inputs, then a tensor for each parameter; gives results,
    then new values of `kept`."""

    expression: Expression
    parameters: tuple[Parameter, ...]
    kept: tuple[Parameter, ...]

    __name__ = "module"

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) - len(self.parameters)
        roots, new, given = self.expression(*tensors[:count])
        instead = {**given, **dict(zip(self.parameters, tensors[count:], strict=True))}
        return tuple(replaced([*roots, *(new.get(p, p) for p in self.kept)], instead.get))


class _Source:
    """The parameters of a layer beside those of PyTorch. It stays one however often the module is copied."""

    def __init__(self, what: str, parameters: Sequence[Parameter]):
        self.what, self.parameters = what, tuple(parameters)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Source:
        return self

    def __reduce__(self) -> str:
        raise ArgumentError(
            f"the module of {self.what} holds expressions, which are not pickled: save its state_dict(), and make the "
            "module again",
            caller(),
        )


@dataclass(frozen=True)
class _Form:
    """operator: takes the inputs and all parameters. kept: how many of its last results are new values of the last
    parameters. is_single: whether what is left is one tensor, not a tuple."""

    operator: Operator
    kept: int
    is_single: bool


class Module(torch.nn.Module):
    """What `nf.torch.module` makes. `state_dict()` has the names that the parameters have in neoflow, so that files of
    safetensors go both ways; `pull()` and `push()` copy the values from there and back.

    In `train()` its training form computes, and sets what that keeps (running statistics, steps of dropout), which is
    in buffers; in `eval()` its inference form does.
    """

    def __init__(self, source: _Source, trained: int, forms: dict[tuple[bool, int], _Form]):
        super().__init__()
        self._source, self._forms = source, forms
        self._places: list[tuple[torch.nn.Module, str]] = []
        for n, p in enumerate(source.parameters):
            value = torch.from_numpy(get_value(p))
            *path, leaf = p.name.split(".")
            home: torch.nn.Module = self
            for part in path:
                if part not in home._modules:
                    home.add_module(part, torch.nn.Module())
                home = home.get_submodule(part)
            if n < trained:
                home.register_parameter(leaf, torch.nn.Parameter(value, requires_grad=value.is_floating_point()))
            else:
                home.register_buffer(leaf, value)
            self._places.append((home, leaf))

    def forward(self, *inputs: torch.Tensor) -> Any:
        form = self._forms.get((self.training, len(inputs)))
        if form is None:
            counts = " or ".join(str(n) for n in sorted({n for _, n in self._forms}))
            raise ArgumentError(
                f"the module of {self._source.what} takes {counts} tensors, got {len(inputs)}", caller()
            )
        values = [getattr(home, leaf) for home, leaf in self._places]
        if form.kept:
            old = values[-form.kept :]
            values[-form.kept :] = [v.clone() for v in old]  # what a backward pass may read is not overwritten
            found = form.operator(*inputs, *values)
            with torch.no_grad():
                for kept, new in zip(old, found[-form.kept :], strict=True):
                    kept.copy_(new)
            found = found[: -form.kept]
            return found[0] if form.is_single else found
        return form.operator(*inputs, *values)

    def extra_repr(self) -> str:
        return self._source.what

    def pull(self) -> None:
        """Set every parameter to the value that it has in neoflow."""
        with torch.no_grad():
            for (home, leaf), p in zip(self._places, self._source.parameters, strict=True):
                getattr(home, leaf).copy_(torch.from_numpy(get_value(p)))

    def push(self) -> None:
        """Set every parameter of neoflow to the value that it has here."""
        for (home, leaf), p in zip(self._places, self._source.parameters, strict=True):
            set_value(p, getattr(home, leaf).detach().cpu().numpy())


def module(
    layer: Layer | Model,
    *,
    target: str | None = None,
    tune: float | Limits | None = None,
    limit: int = LIMIT,
    autocast: torch.dtype | None = torch.float32,
    **options: Any,
) -> Module:
    """A layer or a model as a `torch.nn.Module`: its parameters begin with the values that they have.

    A layer takes and gives what its call does; options are further arguments of it. A model takes x and gives scores,
    or x and labels and gives the loss, for batches of the size that it was built for. target, tune, limit, autocast: as
    in `nf.torch.operator`.
    """
    if isinstance(layer, Model) and options:
        raise ArgumentError(f"module of model {layer.name} takes no {next(iter(options))}", caller())
    what = f"{type(layer).__name__} {layer.name}"
    trained, kept, uses = _of_model(layer) if isinstance(layer, Model) else _of_layer(layer, options)
    parameters = (*trained, *kept)
    make_unique(parameters)
    forms: dict[tuple[bool, int], _Form] = {}
    for use in uses:
        names = (*use.inputs, *(f"p{n}_{identifier(p.name)}" for n, p in enumerate(parameters)))
        outputs = (use.outputs or 1) + len(kept) if use.keeps and kept else use.outputs
        name = NAMES.unique(
            f"{identifier(layer.name)}_{'training' if use.is_training else 'inference'}_{len(use.inputs)}"
        )
        signature = Signature(name, tuple(Argument(n) for n in names), outputs)
        held = tuple(kept) if use.keeps else ()
        operator = Operator(_Written(use.expression, parameters, held), signature, target, tune, limit, autocast)
        forms[use.is_training, len(use.inputs)] = _Form(operator, len(held), not use.outputs)
    return Module(_Source(what, parameters), len(trained), forms)


@dataclass(frozen=True)
class _Use:
    """An expression, the names of its inputs, how many tensors it gives (as `Signature.outputs`), in which mode it is
    called, and whether it has new values of state."""

    expression: Expression
    inputs: tuple[str, ...]
    outputs: int
    is_training: bool
    keeps: bool


def _of_layer(layer: Layer, options: dict[str, Any]) -> tuple[list[Parameter], list[Parameter], list[_Use]]:
    """Parameters and state of a layer, and its call with as many tensors as it takes at least, and with more."""
    hints = hints_of(type(layer).__call__)
    signature = [p for p in inspect.signature(layer).parameters.values() if p.name not in (*options, "training")]
    names = [p.name for p in signature if p.default is p.empty or Tensor in get_args(hints.get(p.name))]
    least = sum(p.default is p.empty for p in signature)

    def training(*tensors: Tensor) -> Any:
        roots = _listed(layer(*tensors, **options))
        return roots, state(roots), {}

    def evaluation(*tensors: Tensor) -> Any:
        return inference(_listed(layer(*tensors, **options))), {}, {}

    uses = []
    for n in range(least, len(names) + 1):
        inputs, outputs = tuple(names[:n]), returned(hints, layer.name)
        uses += [_Use(training, inputs, outputs, True, True), _Use(evaluation, inputs, outputs, False, False)]
    return layer.parameters(), layer.state(), uses


def _listed(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _of_model(model: Model) -> tuple[list[Parameter], list[Parameter], list[_Use]]:
    """Parameters and state of a model, its scores, which are in inference form, and its loss, which is in training
    form."""

    def given(*tensors: Tensor) -> dict[Any, Tensor]:
        for own, t in zip(model.inputs, tensors, strict=False):
            if (own.shape, own.dtype) != (t.shape, t.dtype):
                raise RuntimeFault(
                    f"model {model.name} was built for {own.name} {own.dtype}{list(own.shape)}, got {t.dtype}"
                    f"{list(t.shape)}: build it for such batches"
                )
        return dict(zip(model.inputs, tensors, strict=False))

    def scores(*tensors: Tensor) -> Any:
        return [model.scores], {}, given(*tensors)

    def loss(*tensors: Tensor) -> Any:
        return [model.loss], model.state, given(*tensors)

    uses = [_Use(scores, ("x",), 0, is_training, False) for is_training in (True, False)]
    uses += [_Use(loss, ("x", "labels"), 0, is_training, is_training) for is_training in (True, False)]
    return list(model.parameters.values()), list(model.state), uses
