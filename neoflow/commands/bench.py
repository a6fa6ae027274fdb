"""`neoflow bench`: a model's step beside its peers'."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from neoflow.commands.options import (
    AsJson,
    Memory,
    Mode,
    ModelName,
    Rounding,
    TargetName,
    Threads,
    Tune,
    print_json,
    use_threads,
)
from neoflow.errors import ConfigError


def bench(
    model: ModelName,
    batch: Annotated[int, typer.Option(min=1, help="Samples a step.")] = 16,
    mode: Annotated[Mode, typer.Option(help="A training step, or inference.")] = Mode.train,
    against: Annotated[
        str, typer.Option(help="Peers, separated by commas; there are torch, torch-expert, inductor and jax.")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Also compare gradients and 50 SGD steps with each peer.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0, help="How long to measure.")] = 20.0,
    tune: Tune = None,
    rounding: Rounding = None,
    memory: Memory = None,
    target: TargetName = "cpu",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Time a model's step beside the same step in other frameworks: same parameters, same inputs, in turn."""
    from neoflow.contest.bench import bench as measure
    from neoflow.contest.contenders import chosen
    from neoflow.report import agreement

    use_threads(threads)
    peers = [p for p in against.split(",") if p]
    if check and not peers:
        raise ConfigError("--check compares with a peer: add --against torch")
    if check and target != "cpu":
        raise ConfigError(f"--check compares on the CPU: leave it out, or --target {target}")
    frameworks = dict.fromkeys(c.framework for c in chosen(peers)) if check else {}
    checks = [agreement.check(model, batch, framework) for framework in frameworks]
    result = measure(model, batch, mode.value, peers, seconds, tune or 0.0, memory, rounding, target=target)
    if as_json:
        checked = {"check": [{**asdict(c), "agrees": c.is_close} for c in checks]} if check else {}
        print_json({**asdict(result), **checked})
    else:
        print(*(str(c) for c in checks), result, sep="\n")
    if not all(c.is_close for c in checks) or result.missing:
        raise typer.Exit(1)
