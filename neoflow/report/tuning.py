"""A model's kernels tuned: each beside its default and its floor, the step before and after."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from neoflow.models import build_model
from neoflow.nn import Model
from neoflow.pipeline import Compiled, bind, compile_program
from neoflow.report.compare import measure
from neoflow.runtime.function import Elsewhere
from neoflow.train.progress import compiling, reporter
from neoflow.train.step import program, reset
from neoflow.tune import Limits
from neoflow.tuning import Choice

SECONDS = 2.0
"""For which the step is timed, with the schedules of before and after in turn."""


@dataclass(frozen=True)
class TunedKernel:
    """Microseconds of a call: with the default schedule, with the best one, at least (None: not measured). curve: of a
    `tuning.Choice`."""

    name: str
    calls: int
    trials: int
    default_us: float | None
    us: float | None
    floor_us: float | None
    schedule: str
    curve: tuple[tuple[float, int, float], ...] = ()


@dataclass(frozen=True)
class TunedModel:
    """What a search did for a model: seconds of it, candidates, why it ended; milliseconds of a step before and after
    (None: it cannot run here)."""

    model: str
    batch: int
    mode: str
    target: str
    seconds: float
    trials: int
    stopped: str
    before_ms: float | None
    after_ms: float | None
    kernels: tuple[TunedKernel, ...]

    def __str__(self) -> str:
        lines = [f"{self.model} batch {self.batch} {self.mode} for {self.target}"]
        lines.append(f"{self.trials} candidates in {self.seconds:.0f} s, until {self.stopped}")
        for k in self.kernels:
            if k.us is not None and k.trials:
                before = "" if not k.default_us else f"{k.default_us:10.1f} us"
                floor = "" if not k.floor_us else f"{k.floor_us / k.us:6.0%} of its floor's speed"
                lines.append(f"{k.calls:4} x {k.name[:32]:32} {before:>13} -> {k.us:10.1f} us {floor}")
        untouched = sum(not k.trials for k in self.kernels)
        if untouched:
            lines.append(f"{untouched} kernels were left as they are: more was to be gained elsewhere")
        if self.before_ms is not None and self.after_ms is not None:
            gain = self.before_ms / self.after_ms
            lines.append(f"a step: {self.before_ms:.3f} -> {self.after_ms:.3f} ms ({gain:.2f}x)")
        return "\n".join(lines)


def tune(
    name: str,
    batch: int | None,
    mode: str,
    limits: Limits,
    target: str = "cpu",
    precision: str = "fp32",
    show: bool = True,
    fleet: str | None = None,
) -> TunedModel:
    """Search for the schedules of a model's training step (SGD), or of inference; time it before and after, in turn.

    show: say on standard error how far it is. fleet: whose machines measure. Raises what `nf.compile` raises.
    """
    model = build_model(name, batch)
    build = partial(compile_program, *program(model, mode), target, precision)
    before = build()
    with compiling(reporter(show), "step") if show else nullcontext():
        after = build(tune=limits, fleet=fleet)
    times = _times(model, before, after, mode)
    kernels = tuple(_row(c) for c in sorted(after.tuned.choices, key=_weight, reverse=True))
    found, samples = after.tuned, model.x.shape[model.batch_axis]
    return TunedModel(
        model.name,
        samples,
        mode,
        str(after.target),
        found.seconds,
        found.trials,
        found.stopped,
        times[0],
        times[1],
        kernels,
    )


def _times(model: Model, before: Compiled, after: Compiled, mode: str) -> tuple[float | None, float | None]:
    """Milliseconds of a step by the schedules of before and after."""
    steps = [bind(before), bind(after)]
    if any(isinstance(s, Elsewhere) for s in steps):
        return None, None
    x, labels = model.example()
    reset(model)
    arrays = (x, labels) if mode == "train" else (x,)
    a, b = measure([partial(s, *arrays) for s in steps], SECONDS)
    return a, b


def _weight(choice: Choice) -> float:
    return choice.use.calls * (choice.seconds or 0.0)


def _row(choice: Choice) -> TunedKernel:
    def us(seconds: float | None) -> float | None:
        return None if seconds is None else 1e6 * seconds

    return TunedKernel(
        choice.use.name,
        choice.use.calls,
        choice.trials,
        us(choice.default_seconds),
        us(choice.seconds),
        us(choice.floor),
        str(choice.schedule),
        choice.curve,
    )
