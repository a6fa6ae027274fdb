"""One contender in a process of its own, for one step after another: `python -m neoflow.contest.serving KIND`.

Questions come on standard input and answers go to standard output, JSON, a line each: "load" a task (the one before is
dropped), "block" of so many seconds; of neoflow also "kernels" beside their floors, and the roofs of the machine.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

from neoflow.contest.kinds import KINDS
from neoflow.contest.sides import Neoflow, Side, Task, block
from neoflow.roofs import Roofs


class Serving:
    """What a process keeps between two questions."""

    def __init__(self, kind: str) -> None:
        self.kind = KINDS[kind]
        self.side: Side | None = None
        self.roofs: Roofs | None = None
        importlib.import_module(getattr(self.kind, "framework", "neoflow"))

    def load(self, **task: Any) -> dict[str, Any]:
        """Prepare a step, and make the first: seconds of that, with all that comes before."""
        self.side = None
        gc.collect()
        start = time.perf_counter()
        self.side = self.kind(Task(**task))
        return {"first": time.perf_counter() - start, "values": self.side.values, **self.side.told}

    def block(self, seconds: float) -> dict[str, Any]:
        """The time of a step."""
        assert self.side is not None
        return {"step": block(self.side, seconds)}

    def kernels(self, seconds: float) -> dict[str, Any]:
        """Each kernel's time and floor, measured for about so long."""
        from neoflow.report.gaps import kernel_gaps
        from neoflow.report.kernels import profile
        from neoflow.report.run import roofs_of

        assert isinstance(self.side, Neoflow)
        compiled = self.side.compiled
        self.roofs = self.roofs or roofs_of(compiled.target, 1.0)
        times = profile(self.side.function, self.side.arrays, seconds)
        return {"kernels": [asdict(k) for k in kernel_gaps(compiled, times, self.roofs)], "roofs": asdict(self.roofs)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is no answer

    def answer(what: dict[str, Any]) -> None:
        print(json.dumps(what), file=answers, flush=True)

    serving = Serving(json.loads(sys.argv[1])["kind"])
    answer({})
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer(getattr(serving, question.pop("do", "block"))(**question))
        except Exception as failure:  # the table says so, and the others go on
            said = str(failure).splitlines()
            answer({"failure": f"{type(failure).__name__}: {said[0] if said else ''}"})


if __name__ == "__main__":
    main()
