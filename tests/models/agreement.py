"""A model of `models/` against figures from an independent float64 implementation (tests/data/expected_*.json)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import neoflow as nf
from neoflow.nn import Model

DATA = Path(__file__).parents[1] / "data"


def expected(file: str, key: str) -> dict:
    return json.loads((DATA / f"expected_{file}.json").read_text())[key]


def interpreted(model: Model, roots: list) -> list:
    """Values of the roots on the model's example, in float64."""
    x, labels = model.example()
    return nf.evaluate(roots, {**model.initial(), model.x: x, model.labels: labels}, dtype="float64")


def compiled(model: Model, roots: list) -> list:
    """The same through the compiler, in float32."""
    for p, value in model.initial().items():
        nf.set_value(p, value)
    return nf.compile(roots, list(model.inputs))(*model.example())


def assert_agrees(model: Model, figures: dict, gradients: bool = True, rel: float = 1e-8, run=interpreted) -> None:
    """Names, shapes and the loss; with `gradients` also sampled entries, norm and sum of every gradient.

    Entries agree to 100 * rel of the tensor's largest.
    """
    shapes = {n: list(p.shape) for n, p in model.parameters.items()}
    assert shapes == {n: entry["shape"] for n, entry in figures["parameters"].items()}
    wanted = list(model.parameters.values()) if gradients else []
    loss, *values = run(model, [model.loss, *nf.grad(model.loss, wanted)])
    np.testing.assert_allclose(loss, figures["loss"], rtol=rel)
    for name, value in zip(model.parameters, values, strict=False):
        gradient, largest = figures["parameters"][name]["gradient"], np.abs(value).max()
        entries = value.reshape(-1)[np.linspace(0, value.size - 1, min(8, value.size)).astype(int)]
        tolerance = {"rtol": 0, "err_msg": name}
        np.testing.assert_allclose(entries, gradient["entries"], atol=100 * rel * largest + 1e-12, **tolerance)
        np.testing.assert_allclose(
            value.sum(), gradient["sum"], atol=100 * rel * np.abs(value).sum() + 1e-12, **tolerance
        )
        np.testing.assert_allclose(np.linalg.norm(value), gradient["norm"], rtol=100 * rel, atol=1e-12, err_msg=name)
