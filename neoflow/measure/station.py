"""A core or a GPU of a fleet: one worker process, asked by an actor of Ray in text and bytes."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from neoflow.codegen.keys import compiler_digest
from neoflow.devices import device, gpu
from neoflow.errors import RuntimeFault
from neoflow.measure.here import COMMAND, environment
from neoflow.measure.turn import turn
from neoflow.target import Target, cpu_target
from neoflow.tune.process import Answer, Request
from neoflow.tune.workers import MEMORY, Workers

KEPT = 256
"""Preparations that are remembered, so that each is sent to the worker once."""


class Station:
    """What an actor of Ray is made of."""

    def __init__(self, target: str):
        """target: as text, of what is measured here."""
        self._target = Target.from_text(target)
        self._workers: Workers | None = None
        self._before: OrderedDict[str, Request] = OrderedDict()

    def describe(self) -> dict[str, str]:
        """What decides who may measure here: compiler, target, and the machine, on which alone times are alike."""
        return {"compiler": compiler_digest(), "target": str(self._here()), "machine": self._machine()}

    def answer(self, text: str, data: bytes, before: str, is_timed: bool) -> tuple[str, bytes]:
        """The answer to a request as `packed` writes them. is_timed: with this machine's turn."""
        if self._workers is None:
            self._workers = Workers(COMMAND, 1, MEMORY, environment())
        request = Request(**json.loads(text), data=data, before=self._known(before))
        if is_timed:
            self._workers.settle()
            with turn():
                (answer,) = self._workers.answers([request])
        else:
            (answer,) = self._workers.answers([request])
        return json.dumps({k: v for k, v in asdict(answer).items() if k != "data"}), answer.data

    def close(self) -> None:
        """End the worker."""
        if self._workers is not None:
            self._workers.close()

    def _known(self, text: str) -> Request:
        if text not in self._before:
            self._before[text] = Request(**json.loads(text))
        self._before.move_to_end(text)
        while len(self._before) > KEPT:
            self._before.popitem(last=False)
        return self._before[text]

    def _here(self) -> Target:
        """The target asked for, if its code runs here; this machine's otherwise."""
        if self._target.device == "cpu":
            return cpu_target(self._target.threads)
        try:
            device(self._target)
        except RuntimeFault:
            return cpu_target(1)
        return self._target

    def _machine(self) -> str:
        if self._target.device == "gpu":
            return gpu().driver.gpu.name
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        return names[0].partition(":")[2].strip() if names else "unknown"


def packed(request: Request) -> tuple[str, bytes, str]:
    """A request as text, its bytes, and what comes before it as text."""
    before = request.before
    return _written(request), request.data, "" if before is None else _written(before)


def _written(request: Request) -> str:
    return json.dumps({"message": dict(request.message), "seconds": request.seconds}, sort_keys=True)


def unpacked(text: str, data: bytes) -> Answer:
    """The answer that a station gave."""
    found: Mapping[str, Any] = json.loads(text)
    return Answer(**found, data=data)
