"""`nf.Trainer`: the trainer of `neoflow.train`, which knows no report, together with the report it may be asked for."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.report.run import report_session
from neoflow.runtime.store import STORE
from neoflow.train import trainer
from neoflow.train.run import Run
from neoflow.train.session import Session

__all__ = ["Trainer"]


class Trainer(trainer.Trainer):
    __doc__ = trainer.Trainer.__doc__

    def report_path(self, report: str | os.PathLike) -> Path:
        """The path, `{model}` in it standing for the name of the user's file."""
        return Path(str(Path(report)).replace("{model}", self._model))

    @property
    def _model(self) -> str:
        return Path(self.loss.where[0]).stem if self.loss.where else self.loss.name

    def write_report(self, run: Run) -> None:
        """Write the report of a run that has ended.

        The step is timed for it, which changes parameters: they get their values back.
        """
        before = {p: STORE.get(p) for p in self.all_parameters}
        try:
            report_session(self._session(run), run.report)
        finally:
            for p, value in before.items():
                STORE.set(p, value)

    def _session(self, run: Run) -> Session:
        epochs = run.history.epochs
        return Session(
            model=self._model,
            data=f"batches of {self.batch}",
            floor=None,
            trainer=self,
            history=run.history,
            records=tuple(run.steps),
            judged=dict(epochs[-1].validation) if epochs else {},
            seconds=run.history.seconds,
            to_first_step=run.history.first_step,
            since="the call of fit",
            sample=run.sample or [np.zeros(t.shape, dt.NUMPY[t.dtype]) for t in self.inputs],
            epoch=run.epoch,
            lr=self.rate or 0.0,
            checkpoint=self.checkpoint,
        )
