"""`Model`: which of many candidates is likely to be fast, learned from those that were measured, of any subgraph.

Gradient-boosted trees (XGBoost) learn to rank: which of two candidates of one subgraph is faster. So what one subgraph
teaches holds for others, whose times are of another order. What failed ranks last, whatever the reason: that is no
time, but nothing to try again. Trees of earlier runs are kept, and those of this run follow them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neoflow.errors import ConfigError
from neoflow.loops import Problem, Schedule, problem_of
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.describe import Columns
from neoflow.tune.trial import Trial

SCHEMA = 1
"""Of a file; another one is not read."""
TREES, MOST_TREES = 60, 480
"""Trees of a run, and of a file: of more, those of the latest runs make room, the first are what the rest corrects."""
LEAST_ROWS = 16
"""Candidates from which a model is worth asking."""
GROWN, OWN = 1.15, 24
"""Learning again pays when there is so much more to learn from, or so many more candidates of one subgraph."""
LEAST_SHARE, LEVELS = -6.0, 4
"""The logarithm to 2 of a candidate's share of the best speed, at least: what is 64 times as slow is not worth telling
apart, and what failed is below. Levels of each factor of 2: what is as fast but for less, neither is to come first."""
PARAMETERS = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 8,
    "max_depth": 6,
    "eta": 0.15,
    "subsample": 0.9,
    "colsample_bytree": 0.7,
    "min_child_weight": 1,
    "max_bin": 64,
    "tree_method": "hist",
    "nthread": 1,  # the other cores measure, and one thread gives the same trees each time
    "seed": 0,
    "verbosity": 0,
}


MISSING = (
    "the model of a search needs XGBoost, which is not installed: pip install xgboost-cpu, or search without a model "
    "(model=None)"
)


class ModelWarning(UserWarning):
    """A file of a model that is of no use."""


def is_available() -> bool:
    """Whether XGBoost is installed."""
    try:
        return importlib.util.find_spec("xgboost") is not None
    except ValueError:  # somebody has put something else in its place
        return False


def _xgboost() -> Any:
    """Imported when there is something to learn or to ask: it takes a second or two. Raises `ConfigError` where that
    fails."""
    try:
        import xgboost
    except ImportError:
        raise ConfigError(MISSING) from None
    return xgboost


class Model:
    """Scores of candidates of one device. Raises `ConfigError` where XGBoost is not installed."""

    def __init__(self, device: str = "cpu") -> None:
        if not is_available():
            raise ConfigError(MISSING)
        self.device, self.columns = device, Columns(device)
        self._rows: dict[tuple[str, str], list[NDArray[np.float32]]] = {}
        """by subgraph and target, as the seconds"""
        self._log_seconds: dict[tuple[str, str], list[float]] = {}
        self._prior: Any = None
        """the trees of earlier runs"""
        self._booster: Any = None
        self._learned = 0
        """candidates that the trees have been made from in this run"""
        self._own: dict[tuple[str, str], int] = {}
        """of these, those of each subgraph"""

    @property
    def count(self) -> int:
        """Candidates of this run."""
        return sum(map(len, self._rows.values()))

    @property
    def is_trained(self) -> bool:
        return self._booster is not None

    @property
    def trees(self) -> int:
        """Trees of all runs."""
        return self._booster.num_boosted_rounds() if self.is_trained else 0

    def learn(self, subgraph: Subgraph, target: Target, trials: Sequence[Trial]) -> None:
        """Remember what became of candidates; the trees are made anew when that is much more than they know."""
        key, problem = (subgraph.digest, str(target)), problem_of(subgraph)
        rows, seconds = self._rows.setdefault(key, []), self._log_seconds.setdefault(key, [])
        for trial in trials:
            rows.append(self.columns.row(problem, trial.schedule, target))
            is_timed = trial.outcome == "ok" and trial.seconds is not None
            seconds.append(math.log2(trial.seconds) if is_timed and trial.seconds else math.inf)
        is_more = self.count >= GROWN * self._learned or len(rows) >= self._own.get(key, 0) + OWN
        if self.count >= LEAST_ROWS and is_more:
            self.fit()

    def fit(self) -> None:
        """Make this run's trees, after those of earlier ones."""
        if not self.count:
            return
        rows = np.stack([row for group in self._rows.values() for row in group])
        ranks = np.concatenate([_ranks(np.array(group)) for group in self._log_seconds.values()])
        groups = np.repeat(np.arange(len(self._rows)), [len(group) for group in self._rows.values()])
        xgboost = _xgboost()
        data = xgboost.DMatrix(rows, label=ranks, qid=groups, feature_names=self.columns.names, nthread=1)
        self._booster = xgboost.train(PARAMETERS, data, TREES, xgb_model=self._prior)
        self._learned, self._own = self.count, {key: len(group) for key, group in self._rows.items()}

    def scores(self, problem: Problem, target: Target, schedules: Sequence[Schedule]) -> NDArray[np.float32]:
        """A number for each, the greater the faster it is likely to be; zeros before it is trained."""
        if not self.is_trained or not schedules:
            return np.zeros(len(schedules), np.float32)
        rows = np.stack([self.columns.row(problem, s, target) for s in schedules])
        data = _xgboost().DMatrix(rows, feature_names=self.columns.names, nthread=1)
        return self._booster.predict(data)

    def take(self, trees: bytes) -> None:
        """Begin with the trees of an earlier run, as UBJSON that is known to be whole."""
        booster = _xgboost().Booster(PARAMETERS)
        booster.load_model(bytearray(trees))
        self._booster = booster
        kept = MOST_TREES - TREES
        self._prior = booster[:kept] if booster.num_boosted_rounds() > kept else booster

    def trees_as_bytes(self) -> bytes:
        """UBJSON, nothing of one that is not trained."""
        return bytes(self._booster.save_raw("ubj")) if self.is_trained else b""

    def to_bytes(self) -> bytes:
        """A line of JSON (schema, device, columns, checksum), then the trees as UBJSON."""
        trees = self.trees_as_bytes()
        head = {"schema": SCHEMA, "device": self.device, "columns": self.columns.names, "sha256": _checksum(trees)}
        return json.dumps(head).encode() + b"\n" + trees


def _ranks(log_seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of one subgraph's candidates: the higher the faster, 0 for what has no time."""
    timed = np.isfinite(log_seconds)
    best = log_seconds[timed].min() if timed.any() else 0.0
    shares = np.maximum(best - log_seconds, LEAST_SHARE)
    return np.where(timed, 1 + np.round(LEVELS * (shares - LEAST_SHARE)), 0.0)


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def load(path: Path, device: str = "cpu") -> Model:
    """The model of an earlier run, or a new one: where there is no file, or, with one `ModelWarning`, where it is
    damaged, of another version or of other knobs. Raises `ConfigError` where XGBoost is not installed."""
    model = Model(device)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return model
    except OSError as error:
        warnings.warn(f"the model {path} cannot be read: {error}; learning begins anew", ModelWarning, stacklevel=2)
        return model
    reason = _read(model, data)
    if reason is not None:
        warnings.warn(f"the model {path} {reason}; learning begins anew", ModelWarning, stacklevel=2)
    return model


def _read(model: Model, data: bytes) -> str | None:
    """Give a model the trees of a file; why not, where it does not take them."""
    head, _, trees = data.partition(b"\n")
    try:
        found = json.loads(head)
        said = {name: found[name] for name in ("schema", "device", "columns", "sha256")}
    except (ValueError, TypeError, LookupError, RecursionError):
        return "is damaged: it does not begin with what it is of"
    if said["schema"] != SCHEMA:
        return f"is of version {said['schema']!r}, not {SCHEMA}"
    if said["device"] != model.device or said["columns"] != model.columns.names:
        return "is of other templates or knobs than there are now"
    if said["sha256"] != _checksum(trees):
        return "is damaged: its checksum is another"
    if trees:
        model.take(trees)
    return None
