"""A model's faster equal graph."""

from __future__ import annotations

from pathlib import Path

from neoflow.devices import resolve_target
from neoflow.graph import make_graph
from neoflow.models import build_model
from neoflow.pipeline import compile_program
from neoflow.rewriting import divided
from neoflow.superopt import Optimized, rules_in
from neoflow.trace import Trace
from neoflow.train.step import program
from neoflow.trials import optimizer_of


def optimized(
    name: str,
    batch: int | None = None,
    mode: str = "train",
    seconds: float = 60.0,
    seed: int = 0,
    rules: Path | None = None,
    target: str = "cpu",
) -> tuple[Optimized, ...]:
    """What a search of so many seconds finds for a step (SGD) or for inference: for each part of a
    program that has recurrences.

    rules: a file of proved ones, besides those that come along. Raises `ConfigError`, `TextError`.
    """
    model = build_model(name, batch)
    outputs, inputs, updates = program(model) if mode == "train" else ([model.scores], [model.x], None)
    more = () if rules is None else rules_in(rules).rules
    device = resolve_target(target)
    if device.device == "cpu":
        compiled = compile_program(outputs, inputs, updates, target, optimize=seconds, rules=more, seed=seed)
        assert compiled.optimizer is not None
        return tuple(compiled.optimizer.found.values())
    optimizer = optimizer_of(device, seconds, rules=more, seed=seed)
    assert optimizer is not None
    divided(make_graph(outputs, inputs, updates), Trace(), device, "fp32", None, None, optimizer)
    return tuple(optimizer.found.values())
