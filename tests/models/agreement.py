"""A model of `models/` against figures from an independent float64 implementation (tests/data/expected_*.json)."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np

import neoflow as nf
from neoflow.nn import Model

DATA = Path(__file__).parents[1] / "data"


def expected(file: str, key: str) -> dict:
    return json.loads((DATA / f"expected_{file}.json").read_text())[key]


def interpreted(model: Model, roots: list, dtype: str | None = "float64", noise: float = 0.0, seed: int = 0) -> list:
    """Values of the roots on the model's example; None is the types as written.

    noise: every float of the parameters and of x is first multiplied by 1 + noise * u, u uniform in [-1, 1).
    """
    x, labels = model.example()
    generator = np.random.default_rng(seed)
    feeds = {**model.initial(), model.x: x}
    if noise:
        feeds = {t: v * (1 + noise * generator.uniform(-1, 1, v.shape)) for t, v in feeds.items()}
    return nf.evaluate(roots, {**feeds, model.labels: labels}, dtype=dtype)


def by_pytorch(
    model: Model, roots: list, dtype: str | None = "float64", noise: float = 0.0, seed: int = 0, *, file: str
) -> list:
    """The same by the model's twin of `benchmarks/peers`, where the roots are the loss and the gradients of all
    parameters: in a hundredth of the time, of images."""
    assert roots[0] is model.loss and len(roots) == 1 + len(model.parameters)
    x, labels = model.example()
    generator = np.random.default_rng(seed)
    arrays = {n: v * (1 + noise * generator.uniform(-1, 1, v.shape)) for n, v in {**model.values(), "x": x}.items()}
    arrays = {n: v.astype(dtype or "float32") for n, v in arrays.items()}
    x = arrays.pop("x")
    loss, gradients = importlib.import_module(f"benchmarks.peers.torch_{file}").Peer(arrays).loss_and_grads(x, labels)
    return [np.float64(loss), *(gradients[n] for n in model.parameters)]


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
    assert_gradients(dict(zip(model.parameters, values, strict=False)), figures, rel)


def assert_gradients(gradients: dict, figures: dict, rel: float) -> None:
    """Sampled entries, norm and sum of gradients by name."""
    for name, value in gradients.items():
        gradient, largest = figures["parameters"][name]["gradient"], np.abs(value).max()
        entries = value.reshape(-1)[np.linspace(0, value.size - 1, min(8, value.size)).astype(int)]
        tolerance = {"rtol": 0, "err_msg": name}
        np.testing.assert_allclose(entries, gradient["entries"], atol=100 * rel * largest + 1e-12, **tolerance)
        np.testing.assert_allclose(
            value.sum(), gradient["sum"], atol=100 * rel * np.abs(value).sum() + 1e-12, **tolerance
        )
        np.testing.assert_allclose(np.linalg.norm(value), gradient["norm"], rtol=100 * rel, atol=1e-12, err_msg=name)


def assert_as_good_as_float32(model: Model, figures: dict, factor: float = 3.0, run=interpreted) -> None:
    """The compiled loss to 1e-5, and the error of every compiled gradient bounded by what float32 has to cost.

    A relu whose argument is within rounding of zero may come out on its other side, and then single entries of the
    gradients before it are off by thousandths, however well everything is computed. So an error (of a whole gradient,
    as a norm, against float64) is held against the largest of three: that of float32, by `run` as the others, and those
    of float64 from values changed by a millionth, twice.
    """
    roots = [model.loss, *nf.grad(model.loss, list(model.parameters.values()))]
    loss, *found = compiled(model, roots)
    np.testing.assert_allclose(loss, figures["loss"], rtol=1e-5)
    exact = run(model, roots)[1:]

    def errors(values: list) -> list:
        return [np.linalg.norm(value - wanted) for value, wanted in zip(values, exact, strict=True)]

    references = [run(model, roots, None)[1:]]
    references += [run(model, roots, noise=1e-6, seed=seed)[1:] for seed in range(2)]
    bounds = np.max([errors(values) for values in references], axis=0)
    for name, error, bound in zip(model.parameters, errors(found), bounds, strict=True):
        assert error <= factor * bound, f"{name}: {error:.2e}, which is {error / bound:.1f} times the bound"
