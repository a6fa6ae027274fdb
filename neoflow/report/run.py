"""A training run told: its summary, and its HTML report with the time of every kernel."""

from __future__ import annotations

import logging
import math
import resource
from dataclasses import dataclass, replace
from pathlib import Path

from neoflow import devices
from neoflow.errors import NeoflowError
from neoflow.measure.roofs import measure_roofs
from neoflow.pipeline import Compiled
from neoflow.report.gpu import gpu_roofs, measure_gpu
from neoflow.report.html import Report, render, write_page
from neoflow.report.kernels import kernel_rows, profile
from neoflow.report.record import Fact, record_of
from neoflow.report.timeline import write_timeline
from neoflow.roofs import Roofs
from neoflow.runtime.bound import KernelTime
from neoflow.target import Target
from neoflow.train.session import Session
from neoflow.tuning import curves_of

log = logging.getLogger("neoflow")


@dataclass(frozen=True)
class Summary:
    """A run's end. Times in seconds, memory in bytes; to_first_step counts from the start of the process.

    built and cached: kernels compiled in this run, and kernels that came from the cache. report: the file written.
    floor: the loss of the best predictor there can be, where the data are known that well.
    """

    model: str
    data: str
    stopped: str
    epochs: int
    steps: int
    accuracy: float
    loss: float
    test_loss: float
    seconds: float
    to_first_step: float
    steps_per_second: float
    built: int
    cached: int
    parameter_bytes: int
    temporary_bytes: int
    peak_bytes: int
    checkpoint: str | None
    report: str | None = None
    floor: float | None = None

    @property
    def floor_note(self) -> str:
        return "" if self.floor is None else f" (at best {self.floor:.4g})"

    def __str__(self) -> str:
        mib = 1 << 20
        lines = [
            f"{self.model} on {self.data}: test accuracy {self.accuracy:.2%} after {self.epochs} epochs "
            f"({self.steps} steps), loss {self.loss:.4g}, test loss {self.test_loss:.4g}{self.floor_note}",
            f"time {self.seconds:.1f} s in all, {self.to_first_step:.1f} s to the first step, "
            f"{self.steps_per_second:.1f} steps/s",
            f"kernels: {self.built} compiled, {self.cached} from the cache",
            f"memory: {self.parameter_bytes / mib:.1f} MiB parameters and optimizer state, "
            f"{self.temporary_bytes / mib:.1f} MiB temporaries, {self.peak_bytes / mib:.0f} MiB the process at most",
        ]
        if self.report is not None:
            lines.append(f"report: {self.report}")
        if self.stopped == "interrupted":
            kept = (
                f"saved in {self.checkpoint}; --resume continues"
                if self.checkpoint
                else "nothing saved: no --checkpoint"
            )
            lines.insert(0, f"interrupted after step {self.steps}: {kept}")
        return "\n".join(lines)


def summarize(session: Session) -> Summary:
    """A run's end in figures."""
    trainer, history = session.trainer, session.history
    plan = trainer.step_function().plan
    compiled = [f.compiled for f in trainer.functions.values()]
    done = len(history.losses)
    stepping = history.seconds - history.first_step
    return Summary(
        model=session.model,
        data=session.data,
        stopped=history.stopped,
        epochs=trainer.position.epoch,
        steps=trainer.position.step,
        accuracy=session.judged.get("accuracy", math.nan),
        loss=history.epochs[-1].training["loss"] if history.epochs else history.losses[-1] if done else float("nan"),
        test_loss=session.judged.get("loss", math.nan),
        seconds=session.seconds,
        to_first_step=session.to_first_step,
        steps_per_second=(done - 1) / stepping if done > 1 else float("nan"),
        built=sum(p.built for p in compiled),
        cached=sum(p.cached for p in compiled),
        parameter_bytes=sum(p.nbytes for p in trainer.all_parameters),
        temporary_bytes=plan.arena_bytes,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        checkpoint=None if session.checkpoint is None else str(session.checkpoint),
        floor=session.floor,
    )


def report_session(session: Session, path: Path | None = None) -> Summary:
    """A run's summary, and its report written to `path`, `{model}` in it standing for the model's name."""
    summary = summarize(session)
    if path is None:
        return summary
    path = Path(str(path).replace("{model}", session.model))
    try:
        report, times = make_report(session, summary)
        write_page(path, render(report))
        write_timeline(path.with_suffix(".trace.json"), report.compiled, times, session.records)
    except (OSError, NeoflowError) as error:  # a run is not lost for want of its report
        log.warning("the report %s was not written: %s", path, error)
        return summary
    return replace(summary, report=str(path))


def _outcome(summary: Summary) -> Fact:
    """What the run came to: the accuracy of the test set where it was judged by one, else the loss."""
    tested = "" if math.isnan(summary.test_loss) else f"test loss {summary.test_loss:.3g}{summary.floor_note}"
    if math.isnan(summary.accuracy):
        return Fact("Loss", f"{summary.loss:.3g}", tested)
    return Fact("Test accuracy", f"{100 * summary.accuracy:.2f} %", f"loss {summary.loss:.3g}, {tested}")


def roofs_of(target: Target, seconds: float = 0.3) -> Roofs:
    """What the machine of a run reaches: a CPU measured, each roof for some seconds; a GPU measured where its code can
    be compiled here."""
    if target.device == "cpu":
        return measure_roofs(target, seconds)
    try:
        return gpu_roofs(target, measure_gpu(devices.gpu()))
    except NeoflowError as error:
        log.warning("the GPU was not measured, its data sheet stands for it: %s", error)
        return gpu_roofs(target, {})


def make_report(session: Session, summary: Summary) -> tuple[Report, list[KernelTime]]:
    """What `neoflow.report.html` shows of a run, and the times of its calls: its step is profiled on the sample, the
    machine measured."""
    trainer = session.trainer
    step = trainer.step_function()
    compiled = step.compiled
    assert isinstance(compiled, Compiled)
    times = profile(step, trainer.step_arrays(session.sample, session.lr))
    mib = 1 << 20
    held = f"{summary.parameter_bytes / mib:.1f} MiB parameters, {summary.temporary_bytes / mib:.1f} temporaries"
    facts = (
        _outcome(summary),
        Fact("Time", f"{summary.seconds:.1f} s", f"{summary.epochs} epochs, {summary.steps:,} steps"),
        Fact("First step after", f"{summary.to_first_step:.1f} s", f"from {session.since}"),
        Fact("Steps a second", f"{summary.steps_per_second:.1f}", f"batches of {trainer.batch}"),
        Fact(
            "Kernels",
            f"{summary.built + summary.cached}",
            f"{summary.built} compiled, {summary.cached} cached; {len(compiled.kernels)} in a step",
        ),
        Fact("Memory", f"{summary.peak_bytes / mib:.0f} MiB", held),
    )
    rows = kernel_rows(compiled, times)
    run = record_of(session, facts, rows, compiled.target.threads)
    curves = (*curves_of(compiled.tuned.choices), *trainer.kernels.curves)
    return Report(run, summary.accuracy, rows, roofs_of(compiled.target), compiled, curves), times
