"""`neoflow bench`: a model's step here, in turn with the same step of peers in processes of their own."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from neoflow.contest.contenders import OURS, chosen
from neoflow.contest.hall import TOLERANCE, Hall, distance
from neoflow.contest.sides import Neoflow, Side, Task, block
from neoflow.contest.turns import Timed, in_turn, median_ratio
from neoflow.devices import device, resolve_target
from neoflow.measure.near import Cores
from neoflow.models import build_model, peer_file
from neoflow.pipeline import compile
from neoflow.train.step import reset

BLOCK = 0.3
"""Seconds of a block."""
PATIENCE = 10.0
"""Seconds waited for cores that are apart."""


@dataclass(frozen=True)
class Bench:
    """Median milliseconds of a step; loss: of the first step, before its update (infer: of the inputs).

    ratios: the median over rounds of our time over a peer's. missing: why a peer was not measured. tune: seconds of the
    search before, in which so many candidates were tried. nbytes: that neoflow's step has in memory; memory: what
    became of a limit to them. target: what it was compiled for.
    """

    model: str
    batch: int
    mode: str
    neoflow_ms: float
    peers: dict[str, float]
    loss: float
    ratios: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    tune: float = 0.0
    trials: int = 0
    nbytes: int = 0
    memory: str = ""
    target: str = "cpu"

    def __str__(self) -> str:
        where = "" if self.target == "cpu" else f" on {self.target}"
        lines = [f"{self.model} batch {self.batch} {self.mode}{where}, loss {self.loss:.8f}"]
        if self.tune:
            lines.append(f"{self.trials} candidates in a search of {self.tune:.0f} s")
        if self.memory:
            lines.append(f"memory: {self.memory}")
        width = max(map(len, (OURS.key, *self.peers)))
        lines.append(f"{OURS.key:{width}} {self.neoflow_ms:8.2f} ms")
        for name, ms in self.peers.items():
            lines.append(f"{name:{width}} {ms:8.2f} ms  (neoflow takes {self.ratios[name]:.2f} of its time)")
        lines += [f"{name:{width}} not measured: {why}" for name, why in self.missing.items()]
        return "\n".join(lines)


class Here:
    """A step of this process, as one that is timed in turn."""

    def __init__(self, side: Side) -> None:
        self.side, self.pid = side, os.getpid()

    def block(self, seconds: float) -> float:
        """Seconds of a step."""
        return block(self.side, seconds)


def bench(
    name: str,
    batch: int,
    mode: str,
    against: Sequence[str],
    seconds: float,
    tune: float = 0.0,
    memory: str | None = None,
    rounding: float | None = None,
    make: Callable[[Task], Neoflow] = Neoflow,
    target: str = "cpu",
) -> Bench:
    """Time a model and its peers over about `seconds` seconds, after a search of `tune` seconds.

    memory: a limit to that of neoflow's step, see `nf.compile`; rounding: what algorithms may round there, see
    `nf.tune.Limits` (None: what is usual). target: what it is compiled for; peers run on the same device. A step on a
    GPU is fed from the host and gives its loss to it, all of its kernels done.

    Raises `ConfigError` for a target that there is not, and for a peer that there is not, that is not installed or that
    the model has not; `RuntimeFault` where the target's GPU is not here.
    """
    machine = resolve_target(target)
    device(machine)  # before anything is compiled for it
    peers, task = chosen(against, machine.device != "cpu"), Task(name, batch, mode, tune, memory, rounding, target)
    for peer in peers:
        peer_file(peer.framework, name)
    side = make(task)
    loss = side.values[0] if mode == "train" else _loss(name, batch, target)
    with Hall(peers) as hall:
        workers, ready, missing = hall.load(Task(name, batch, mode)) if peers else ({}, {}, {})
        for key, told in ready.items():
            if (error := distance(told["values"], side.values)) > TOLERANCE:
                missing[key] = f"its values are off by {error:.1e} of the largest: it computes something else"
        timed: Mapping[str, Timed] = {OURS.key: Here(side), **{k: w for k, w in workers.items() if k not in missing}}
        cores = Cores(PATIENCE)
        blocks, ended = in_turn(timed, seconds, min(BLOCK, seconds), cores)
    milliseconds = {key: 1e3 * statistics.median(times) for key, times in blocks.items()}
    own = milliseconds.pop(OURS.key)
    ratios = {key: median_ratio(blocks[OURS.key], blocks[key]) for key in milliseconds}
    fitted = side.compiled.explain("memory").partition("\n")[0] if memory else ""
    missing |= ended
    trials, nbytes = side.compiled.tuned.trials if tune else 0, side.compiled.plan.nbytes
    return Bench(
        side.model.name, batch, mode, own, milliseconds, loss, ratios, missing, tune, trials, nbytes, fitted, target
    )


def _loss(name: str, batch: int, target: str) -> float:
    """Of a model's first values."""
    model = build_model(name, batch)
    reset(model)
    return float(compile([model.loss], model.inputs, target=target)(*model.example())[0])
