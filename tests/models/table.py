"""The models of `models/` in one table: which figures each is held against, when, and sizes small enough for NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from models import inception_v3
from neoflow.models import build_model, find_model
from neoflow.nn import Model
from tests.models.agreement import expected

QUICK, SLOW = "quick", "slow"


@dataclass(frozen=True)
class Row:
    """A variant and batch. numpy, compiled: whether it runs there in the default suite, or in the slow tests, or not.

    kinked: it is deep, with a million relus, so that compiled it is judged beside what float32 costs: NumPy, or where
    that takes long, its PyTorch twin (`large`).
    """

    key: str
    numpy: str | None = SLOW
    compiled: str | None = SLOW
    kinked: bool = False
    large: bool = False


ROWS = (
    Row("capsnet/1", None, QUICK),
    Row("capsnet/16", None),
    Row("mi_lstm_mnist/64", QUICK, QUICK),
    Row("mi_lstm_ptb/64", QUICK),
    Row("ptb_lstm/20", QUICK),
    Row("bert_layer/1", QUICK),
    Row("bert/1"),
    *(Row(f"{cell}_{size}/64") for cell in ("scrnn", "sublstm", "lltm") for size in ("mnist", "ptb")),
    Row("nasrnn/64"),
    Row("sru_rnntc/64"),
    Row("resnet18/1", QUICK, kinked=True),
    Row("resnet18/16", None, kinked=True, large=True),
    Row("resnet50/1", kinked=True, large=True),
    Row("shufflenet/1", QUICK, kinked=True),
    Row("shufflenet/16", None, kinked=True, large=True),
    Row("mobilenet/1", kinked=True),
    Row("mobilenet/16", None, kinked=True, large=True),
    Row("squeezenet/1", kinked=True),
    Row("resnext50/1", kinked=True),
    Row("inception_v3/1", kinked=True),
    Row("nasnet_a/1", kinked=True),
)
CELL = {"steps": 3, "inputs": 4, "hidden": 6, "classes": 3}
SMALL_SIZES: dict[str, dict[str, Any]] = {
    "mi_lstm_mnist": {"steps": 3, "inputs": 4, "hidden": 5, "classes": 3},
    "ptb_lstm": {"words": 7, "hidden": 4, "steps": 3},
    "bert": {"layers": 2, "length": 5, "width": 8, "heads": 2, "inner": 6},
    "resnet18": {"image": 32, "classes": 5},
    "resnet50": {"image": 16, "classes": 5, "depths": (1, 1)},
    "shufflenet": {"image": 32, "classes": 5, "stages": ((240, 2), (480, 1))},
    "scrnn_mnist": CELL,
    "sublstm_mnist": CELL,
    "lltm_mnist": CELL,
    "nasrnn": CELL,
    "sru_rnntc": {"steps": 3, "width": 5, "classes": 3},
    "mobilenet": {"image": 32, "classes": 5, "blocks": ((64, 1), (128, 2))},
    "squeezenet": {"image": 32, "classes": 5, "fires": ((4, 8), None, (4, 8))},
    "inception_v3": {"image": 75, "classes": 5, "blocks": (inception_v3.SHRINK_D,)},
    "nasnet_a": {"image": 32, "classes": 5, "stages": 1, "normal_cells": 1, "channels": 4},
}
"""Arguments of `build`, by variant."""


def cases(where: str, **wanted: bool) -> list[Any]:
    """Keys for a column of the table, marked; wanted: what else the rows are."""
    rows = [r for r in ROWS if getattr(r, where) and all(getattr(r, name) == value for name, value in wanted.items())]
    return [r.key if getattr(r, where) == QUICK else pytest.param(r.key, marks=pytest.mark.slow) for r in rows]


def make(key: str) -> tuple[Model, dict]:
    """A model at its own size, and its figures."""
    variant, batch = key.split("/")
    return build_model(variant, int(batch)), expected(find_model(variant)[0].stem, key)
