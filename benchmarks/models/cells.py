"""The cells of the model table: a model at a batch size in a mode, and what was measured of it, a file each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from neoflow.contest.contenders import OURS, PEERS
from neoflow.contest.sides import Task

CPU = "cpu"
"""The target of this machine's CPU."""
BATCHES = {
    "capsconv": (1, 16),
    "capsconv8": (1, 16),
    "capsnet": (1, 16),
    "mi_lstm_mnist": (64,),
    "mi_lstm_ptb": (64,),
    "scrnn_mnist": (64,),
    "scrnn_ptb": (64,),
    "sublstm_mnist": (64,),
    "sublstm_ptb": (64,),
    "lltm_mnist": (64,),
    "lltm_ptb": (64,),
    "nasrnn": (64,),
    "sru_rnntc": (64,),
    "ptb_lstm": (20, 64),
    "bert_layer": (1, 8),
    "bert": (1, 8),
    "resnet18": (1, 16),
    "resnet50": (1, 16),
    "resnext50": (1, 16),
    "mobilenet": (1, 16),
    "shufflenet": (1, 16),
    "squeezenet": (1, 16),
    "inception_v3": (1, 16),
    "nasnet_a": (1, 16),
}
"""Batch sizes of training, by model."""
PAPERS = (
    *("capsnet", "shufflenet", "resnet50", "mobilenet", "bert_layer"),
    *(f"{cell}_{size}" for cell in ("mi_lstm", "scrnn", "sublstm", "lltm") for size in ("mnist", "ptb")),
)
"""The nine models of the paper, recurrent cells in both sizes."""


def tasks(tune: float = 0.0, target: str = CPU) -> list[Task]:
    """All: training at every batch size, inference at batch 1."""
    found = []
    for model, batches in BATCHES.items():
        found += [Task(model, batch, "train", tune, target=target) for batch in batches]
        found.append(Task(model, 1, "infer", tune, target=target))
    return found


@dataclass(frozen=True)
class Cell:
    """What became of a task. seconds: of a step, the median over rounds, by contender's key. ratios: the median over
    rounds of neoflow's time over a contender's. missing: why a contender is not there. told: by neoflow when it was
    compiled. versions: of the frameworks. foreign: the share of the machine that other work took. kernels: of neoflow,
    beside their floors (fields of `KernelGap`). revision: of the sources. apart: the share of blocks that were timed
    while cores were apart (`neoflow.measure.near`); 1 before anybody looked. target: what neoflow was compiled for,
    "cpu" or "cuda:sm_90" and the like, on whose device the peers ran; on: that GPU and its driver."""

    model: str
    batch: int
    mode: str
    tune: float
    date: str
    revision: str = ""
    rounds: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    foreign: float = 0.0
    kernels: tuple[Mapping[str, Any], ...] = ()
    roofs: Mapping[str, Any] = field(default_factory=dict)
    apart: float = 1.0
    target: str = CPU
    on: str = ""

    @property
    def task(self) -> Task:
        return Task(self.model, self.batch, self.mode, self.tune, target=self.target)

    @property
    def is_done(self) -> bool:
        """Whether neoflow was measured: a cell without it is worth another run."""
        return OURS.key in self.seconds

    @property
    def floor(self) -> float:
        """Seconds that the kernels take at least."""
        return sum(k["floor"] for k in self.kernels)

    def best(self) -> str | None:
        """The key of the fastest peer."""
        peers = [(self.seconds[p.key], p.key) for p in PEERS if p.key in self.seconds]
        return min(peers)[1] if peers else None

    def gain(self, key: str | None) -> float | None:
        """How many times faster than this contender neoflow is."""
        return 1 / self.ratios[key] if key in self.ratios else None


def path_of(folder: Path, task: Task) -> Path:
    """The file of a cell; cells of other searches and other targets lie beside it."""
    search = f"-tuned{task.tune:g}" if task.tune else ""
    return folder / f"{_step(task)}{search}{_place(task)}.json"


def _step(task: Task) -> str:
    return f"{task.model}-{task.batch}-{task.mode}"


def _place(task: Task) -> str:
    """What the file of a cell of a GPU has at its end."""
    return "" if task.target == CPU else "-on-" + task.target.replace(":", "-")


def read(folder: Path, task: Task) -> Cell | None:
    """What is kept of a task; None where nothing is, or the file is of another form, or of another task."""
    try:
        said = json.loads(path_of(folder, task).read_text())
        cell = Cell(**{**said, "kernels": tuple(said["kernels"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return cell if cell.task == task else None


def read_shorter(folder: Path, task: Task) -> Cell | None:
    """What is kept of the same step after the longest search that was shorter; None where there was none."""
    name = re.compile(rf"{re.escape(_step(task))}-tuned([0-9.]+){re.escape(_place(task))}")
    found = (name.fullmatch(p.stem) for p in folder.glob("*.json"))
    seconds = sorted((s for m in found if m and (s := float(m[1])) < task.tune), reverse=True)
    cells = (read(folder, replace(task, tune=s)) for s in seconds)
    return next((c for c in cells if c is not None and c.is_done), None)


def keep(folder: Path, cell: Cell) -> None:
    """Write a cell's file, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, cell.task)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(cell), indent=1) + "\n")
    part.replace(path)
