"""Whether the cores of this machine are near each other: those of a virtual machine come and go while it runs.

Where they share a cache of the third level, a line goes from one to the other in some 25 ns; where a hypervisor has
them on different chiplets, in 150 and more. The same step of many small kernels takes twice as long then (MI-LSTM of 28
steps on two cores of a Zen 4: 5.5 ms and 10.3 ms, changing every few seconds), and of what is compared each suffers
otherwise, so what is timed while cores are apart says little of what is timed while they are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from neoflow.devices import cpu
from neoflow.machine import cpu_features

T = TypeVar("T")
SOON, PAUSE = 0.02, 0.25
"""Seconds between the first two looks at cores that are apart, and at most between later ones, each twice as long: on
some machines they come back after a twentieth of a second, on others after several."""
NEAR, DISTURBED = 200e-9, 2e-6
"""Seconds to another core and back: 50 to 60 ns within a chiplet of a Zen 4, 320 to 340 from one to another; from the
second on something else had one of them meanwhile."""


def farthest(tries: int = 2) -> float:
    """Seconds in which a line of memory goes from the first core that this process may use to another and back, the
    farthest of them; the faster of so many tries, each a fraction of a millisecond. 0 where there is one core."""
    first, *others = sorted(os.sched_getaffinity(0))
    team = cpu().team
    return max((min(team.round_trip((first, n)) for _ in range(tries)) for n in others), default=0.0)


def are_apart(seconds: float) -> bool:
    """Whether a round trip of so many seconds is one between cores that are apart, and nothing else came between."""
    return NEAR <= seconds < DISTURBED


def are_near() -> bool:
    """Whether cores are not apart now, as far as can be seen; those of a machine that is not virtual stay where they
    are, so that there is nothing to wait for."""
    return "hypervisor" not in cpu_features() or not are_apart(farthest())


@dataclass
class Cores:
    """What is timed between two looks at the cores, once more where they were apart; for how long in all it waits and
    repeats says `patience`, in seconds: a machine whose cores stay apart is timed as it is.

    timed, apart: how many times there were, and how many of these while cores were apart.
    """

    patience: float = 30.0
    look: Callable[[], bool] = field(default_factory=lambda: are_near)
    timed: int = 0
    apart: int = 0

    @property
    def share_apart(self) -> float:
        """Of what was timed, what was so while cores were apart."""
        return self.apart / self.timed if self.timed else 0.0

    def wait(self) -> bool:
        """Whether cores are near, as soon as they are or patience is at its end."""
        begun, pause = time.perf_counter(), SOON
        while not (found := self.look()) and time.perf_counter() - begun < self.patience:
            time.sleep(pause)
            pause = min(PAUSE, 2 * pause)
        self._spend(begun)
        return found

    def between(self, run: Callable[[], T]) -> T:
        """What `run` gives."""
        while True:
            were_near, begun = self.wait(), time.perf_counter()
            found = run()
            is_good = were_near and self.look()
            if not is_good:
                self._spend(begun)
            if is_good or not self.patience:
                self.timed += 1
                self.apart += not is_good
                return found

    def _spend(self, begun: float) -> None:
        self.patience = max(0.0, self.patience - (time.perf_counter() - begun))
