"""The process that searches while a program runs: `python -m neoflow.tuning.explorer`, of `neoflow.train.dynamic`.

    in      one line of JSON: what to tune; on a CPU a second one: what kernels take in the program, seconds of a call
            by digest; afterwards `pause`, `resume`; the end of the input ends it
    out     a line of JSON for each event: {"better": ...} a kernel that is faster than the one in use, compiled and in
            the cache; {"told": ...} how far it is; {"stopped": ...} why it has ended

It shares the machine with the program: it takes `share` of the cores' time, and sleeps for the rest. So it does nothing
twice: what kernels take now is timed in the program, and what the machine reaches is not measured, as the program takes
most of it. What is timed is slowed down by the program, so a candidate is better only when it was so beside the one in
use, in turns.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import psutil

from neoflow import config, tuning
from neoflow.building import find_kernels
from neoflow.errors import NeoflowError
from neoflow.loops import Schedule
from neoflow.loops.template import schedule_from_json
from neoflow.machine import available_cores
from neoflow.measure import Measurer
from neoflow.measure.here import Here
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune import Limits, Trial

GAIN = 0.03
"""Part of its time by which a kernel must be faster to take another's place: more than what noise makes of equals."""
ROUNDS = 9
"""In which it is timed beside the other."""
NICENESS = 5
"""Of the process and its workers: whoever trains comes first. (At 10 steps were no faster.)"""
HEARD = 30.0
"""Seconds waited for what kernels take in the program."""


class Explorer:
    """A tuning whose results are told as they come."""

    def __init__(self, asked: dict[str, Any], out: TextIO):
        self.out = out
        self.target = Target.from_text(asked["target"])
        self.folder, self.seed, self.share = Path(asked["folder"]), int(asked["seed"]), float(asked["share"])
        self.limits = Limits(**asked["limits"])
        rows = asked["uses"]
        self.uses = tuple(tuning.Use(Subgraph.from_text(r["subgraph"]), r["calls"], r["name"]) for r in rows)
        self.used = {u.subgraph.digest: schedule_from_json(r["schedule"]) for u, r in zip(self.uses, rows, strict=True)}
        self.going = threading.Event()
        self.going.set()
        self.paused, self._since = 0.0, 0.0
        """seconds of all pauses that are over, and when the latest began: none of it is time that a share is of"""
        self.heard = threading.Event()
        """whether it is known what kernels take in the program, or nobody will say"""
        count = math.ceil(self.share * available_cores()) if self.target.device == "cpu" else None
        if count is None:
            self.heard.set()
        self.measurer = Measurer(partial(Here, count=count, going=self.going), self.seed)

    def hear(self, seconds: Mapping[str, float]) -> None:
        """What a call takes in the program, by digest."""
        there = {digest: (self.used[digest], s) for digest, s in seconds.items()}
        self.uses = tuple(replace(u, there=there.get(u.subgraph.digest)) for u in self.uses)
        self.heard.set()

    def listen(self, lines: Iterable[str]) -> None:
        """Do as is said, to the end."""
        for line in lines:
            if line.startswith("{"):
                self.hear(json.loads(line))
            elif line.strip() == "pause":
                self._pause()
            else:
                self._resume()

    def _pause(self) -> None:
        if self.going.is_set():
            self._since = time.monotonic()
            self.going.clear()

    def _resume(self) -> None:
        if not self.going.is_set():
            self.paused += time.monotonic() - self._since
            self.going.set()

    def run(self) -> None:
        """Tune until the limits, telling of every kernel that is better."""
        spared, roofs = Spared(self.measurer, self), tuning.machine_roofs(self.target, self.folder)
        with self.measurer:
            self.measurer.warm(self.target)
            self.heard.wait(HEARD)
            found = tuning.tune(
                self.uses, self.target, self.limits, self.folder, self.seed, self._watch, spared, roofs=roofs
            )
            for choice in found.choices:
                self._offer(choice)
        self.tell(stopped=found.stopped, trials=found.trials)

    def tell(self, **event: Any) -> None:
        """A line to whoever reads."""
        self.out.write(json.dumps(event) + "\n")
        self.out.flush()

    def _watch(self, choices: Sequence[tuning.Choice], number: int, text: str) -> None:
        """Tell of a batch; what a step takes is measured by who runs it, not added up from kernels as in the text."""
        choice, made = choices[number], sum(c.trials for c in choices)
        curve = {"name": choice.use.name, "calls": choice.use.calls, "floor": choice.floor}
        self.tell(
            told=tuning.told_of(made, choice),
            curve={**curve, "points": choice.curve[-1:]},
            of=choice.use.subgraph.digest,
        )
        self._offer(choices[number])

    def _offer(self, choice: tuning.Choice) -> None:
        """Have a kernel swapped, where the search's best one is better than the one in use, side by side."""
        digest, used = choice.use.subgraph.digest, self.used[choice.use.subgraph.digest]
        if choice.seconds is None or choice.schedule == used:
            return
        now, new = self.measurer.interleaved(choice.use.subgraph, self.target, [used, choice.schedule], ROUNDS)
        if now.seconds is None or new.seconds is None or new.seconds > (1 - GAIN) * now.seconds:
            return
        find_kernels([choice.use.subgraph], [choice.schedule], self.target, config.load())
        self.used[digest] = choice.schedule
        self.tell(
            better={
                "subgraph": digest,
                "name": choice.use.name,
                "schedule": choice.schedule.to_json(),
                "seconds": new.seconds,
                "before": now.seconds,
            }
        )


class Spared:
    """Measures when the machine can spare it: so much of the cores' time, and not while paused."""

    def __init__(self, measure: Measurer, explorer: Explorer):
        self._measure, self._explorer = measure, explorer
        self._begun, self._cores = time.monotonic(), available_cores()

    def __call__(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], deadline: float | None = None
    ) -> list[Trial]:
        self._explorer.going.wait()
        self._rest()
        return self._measure(subgraph, target, schedules, deadline)

    def interleaved(self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule]) -> list[Trial]:
        self._explorer.going.wait()
        self._rest()
        return self._measure.interleaved(subgraph, target, schedules)

    def _rest(self) -> None:
        """Sleep until what was spent is no more than the share."""
        allowed = self._explorer.share * self._cores
        over = _spent() / allowed - (time.monotonic() - self._begun - self._explorer.paused)
        if over > 0:
            time.sleep(over)


def _spent() -> float:
    """Seconds of processors that this process and its workers have taken."""
    own = psutil.Process()
    total = sum(own.cpu_times()[:2]) + sum(own.cpu_times()[2:4])
    for child in own.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def main() -> None:
    """Explore what the first line of the input says."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints does not print among the events
    os.nice(NICENESS)
    explorer = Explorer(json.loads(sys.stdin.readline()), out)

    def listen() -> None:
        explorer.listen(sys.stdin)
        os._exit(0)  # nobody is there any more; the workers see that this process is not

    threading.Thread(target=listen, name="neoflow-listen", daemon=True).start()
    try:
        explorer.run()
    except NeoflowError as error:
        explorer.tell(stopped=f"error: {error.message}", trials=0)


if __name__ == "__main__":
    main()
