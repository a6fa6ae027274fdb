"""One model's contenders: how long each takes to its first step, and their steps' times in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.steps.contenders import ROOT, contenders, root_of
from neoflow.contest.contenders import Contender, build_expert, environment
from neoflow.contest.process import Usage, Worker, WorkerFailure, wait_until_quiet
from neoflow.measure.near import Cores
from neoflow.models import find_model
from neoflow.report.roofline import Work
from neoflow.roofs import Level, Roofs

LEAST_ROUNDS = 3
PROGRAM = (str(Path(__file__).with_name("worker.py")),)
Say = Callable[[str], None]


@dataclass
class Comparison:
    """Of one model and batch. blocks: seconds of a step, by contender, a block of each in every round.

    first, again: seconds to the end of the first step from when the framework is imported, with nothing cached and
    with all. error: of the worst gradient. missing: why a contender is not there. floor: seconds no kernels get below.
    foreign: the share of the machine that other work took meanwhile. peer: the class in the peers' files.
    """

    model: str
    batch: int
    floor: float = 0.0
    foreign: float = 0.0
    first: dict[str, float] = field(default_factory=dict)
    again: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, list[float]] = field(default_factory=dict)
    peer: str = "Peer"

    def seconds(self, name: str) -> float | None:
        """The median over blocks."""
        return statistics.median(self.blocks[name]) if self.blocks.get(name) else None

    def ratio(self, name: str, other: str | None) -> float | None:
        """The median over rounds of one's time over another's."""
        if other is None or not (self.blocks.get(name) and self.blocks.get(other)):
            return None
        return statistics.median(a / b for a, b in zip(self.blocks[name], self.blocks[other], strict=True))

    def best(self, peers: Sequence[str]) -> str | None:
        """The fastest of these."""
        there = [(self.seconds(p), p) for p in peers]
        return min(((s, p) for s, p in there if s is not None), default=(0.0, None))[1]

    def share(self, name: str) -> float | None:
        """The sum of the floors over the time: 1 would be a step of nothing but work at the machine's roofs."""
        seconds = self.seconds(name)
        return None if seconds is None else self.floor / seconds

    def to_json(self) -> dict[str, Any]:
        """Everything measured."""
        return asdict(self)


def ask(*arguments: str) -> Any:
    """What `benchmarks.steps.reference` prints."""
    command = [sys.executable, "-m", "benchmarks.steps.reference", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure_machine() -> Roofs:
    """This machine's roofs, measured in a process of its own."""
    found = ask("roofs")
    return Roofs(found["gflops"], tuple(Level(**level) for level in found["levels"]))


def rounds(workers: dict[str, Worker], seconds: float, block: float) -> dict[str, list[float]]:
    """Blocks of steps in turn, only one process running at a time; each round begins with another."""

    def quiet_block(name: str) -> float:
        wait_until_quiet(workers.values())
        return workers[name].block(block)

    cores = Cores()
    found: dict[str, list[float]] = {name: [] for name in workers}
    names = list(workers)
    count = max(LEAST_ROUNDS, int(seconds / (block * len(names))))
    for n in range(count):
        for name in [*names[n % len(names) :], *names[: n % len(names)]]:
            found[name].append(cores.between(partial(quiet_block, name)))
    return found


def compare(
    model: str,
    batch: int,
    roofs: Roofs,
    before: Path | None,
    seconds: float,
    block: float,
    only: Sequence[str],
    say: Say,
    peer: str = "Peer",
) -> Comparison:
    """Start every contender, one after the other, then measure all in turn over about so many seconds.

    peer: the class in the peers' files.
    """
    found = Comparison(model, batch, peer=peer)
    with tempfile.TemporaryDirectory(prefix="neoflow-steps-") as name:
        folder = Path(name)
        arrays = folder / "arrays.npz"
        found.floor = sum(Work(**work).floor(roofs) for work in ask(model, str(batch), str(arrays)))
        library = build_expert(folder)
        workers: dict[str, Worker] = {}
        try:
            for contender in contenders(before):
                if only and contender.name not in only:
                    continue
                if contender.expert and isinstance(library, str):
                    found.missing[contender.name] = library
                    continue
                expert = library if isinstance(library, Path) else None
                try:
                    workers[contender.name] = start(
                        contender, root_of(contender, before), found, folder, arrays, expert
                    )
                except WorkerFailure as failure:
                    found.missing[contender.name] = str(failure)
                say(f"{model}/{batch} {contender.name}: " + said(found, contender.name))
            pids = [os.getpid(), *(w.pid for w in workers.values())]
            begun = Usage.now(pids)
            found.blocks = rounds(workers, seconds, block)
            found.foreign = begun.foreign_until(Usage.now(pids))
        finally:
            for worker in workers.values():
                worker.close()
    return found


def start(
    contender: Contender, root: Path, found: Comparison, folder: Path, arrays: Path, expert: Path | None
) -> Worker:
    """A contender's worker, ready; where it keeps what it compiled it is started twice, the second time to stay."""
    path, variant = find_model(found.model)
    request: dict[str, Any] = {"kind": contender.kind, "root": str(root), "arrays": str(arrays)}
    request |= {"file": path.stem, "variant": variant, "batch": found.batch, "peer": found.peer}
    values = environment(contender, folder / "caches", expert)
    worker = Worker(request, values, PROGRAM)
    found.first[contender.name] = worker.ready["first_step"]
    found.errors[contender.name], found.versions[contender.name] = worker.ready["error"], worker.ready["version"]
    if contender.is_cached:
        worker.close()
        worker = Worker(request, values, PROGRAM)
        found.again[contender.name] = worker.ready["first_step"]
    return worker


def said(found: Comparison, name: str) -> str:
    """How a contender's start went, in a line."""
    if name in found.missing:
        return f"missing, {found.missing[name]}"
    cached = f", {found.again[name]:.1f} s cached" if name in found.again else ""
    return f"first step after {found.first[name]:.1f} s{cached}, gradients off by {found.errors[name]:.1e} at most"
