"""`Model`: which of many candidates is likely to be fast, learned from those that were measured, of any subgraph.

Gradient-boosted trees (XGBoost) learn, of each candidate, its share of the best speed of its subgraph: so what is said
of one subgraph holds for others, whose times are of another order. What failed has the least share, whatever the
reason: that is no time, but nothing to try again. Trees of earlier runs are kept, and those of this run follow them.
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
GROWN = 1.15
"""Learning again pays when there is so much more to learn from."""
LEAST_SHARE = -4.0
"""The logarithm to 2 of the share of what failed; what is 16 times as slow as the best is not worth telling apart."""
PARAMETERS = {
    "objective": "reg:squarederror",
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


class ModelWarning(UserWarning):
    """A file of a model that is of no use."""


def is_available() -> bool:
    """Whether XGBoost is installed."""
    try:
        return importlib.util.find_spec("xgboost") is not None
    except ValueError:  # somebody has put something else in its place
        return False


def _xgboost() -> Any:
    """Imported when it is used: it takes a second. Raises `ConfigError` where it is not installed."""
    try:
        import xgboost
    except ImportError:
        raise ConfigError(
            "the model of a search needs XGBoost, which is not installed: pip install xgboost-cpu, or search without "
            "a model (model=None)"
        ) from None
    return xgboost


class Model:
    """Scores of candidates of one device. Raises `ConfigError` where XGBoost is not installed."""

    def __init__(self, device: str = "cpu") -> None:
        self._xgboost = _xgboost()
        self.device, self.columns = device, Columns(device)
        self._rows: dict[tuple[str, str], list[NDArray[np.float32]]] = {}
        """by subgraph and target, as the shares"""
        self._log_seconds: dict[tuple[str, str], list[float]] = {}
        self._prior: Any = None
        """the trees of earlier runs"""
        self._booster: Any = None
        self._learned = 0
        """candidates that the trees have been made from in this run"""

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
        if self.count >= max(LEAST_ROWS, GROWN * self._learned):
            self.fit()

    def fit(self) -> None:
        """Make this run's trees, after those of earlier ones."""
        if not self.count:
            return
        rows = np.stack([row for group in self._rows.values() for row in group])
        shares = np.concatenate([_shares(np.array(group)) for group in self._log_seconds.values()])
        data = self._xgboost.DMatrix(rows, label=shares, feature_names=self.columns.names, nthread=1)
        self._booster = self._xgboost.train(PARAMETERS, data, TREES, xgb_model=self._prior)
        self._learned = self.count

    def scores(self, problem: Problem, target: Target, schedules: Sequence[Schedule]) -> NDArray[np.float32]:
        """The logarithm to 2 of the share of the best speed that each is likely to reach; zeros before it is
        trained."""
        if not self.is_trained or not schedules:
            return np.zeros(len(schedules), np.float32)
        rows = np.stack([self.columns.row(problem, s, target) for s in schedules])
        data = self._xgboost.DMatrix(rows, feature_names=self.columns.names, nthread=1)
        return self._booster.predict(data)

    def take(self, trees: bytes) -> None:
        """Begin with the trees of an earlier run, as UBJSON that is known to be whole."""
        booster = self._xgboost.Booster(PARAMETERS)
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


def _shares(log_seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    timed = log_seconds[np.isfinite(log_seconds)]
    best = timed.min() if timed.size else 0.0
    return np.maximum(best - log_seconds, LEAST_SHARE)


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
