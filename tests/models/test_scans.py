"""Recurrent models as scans: the loss and the gradients they have with every step written out."""

import numpy as np
import pytest

import neoflow as nf
from models import lltm, mi_lstm, nasrnn, ptb_lstm, scrnn, sru_rnntc, sublstm

CELL = {"steps": 4, "inputs": 5, "hidden": 6}
SMALL = {
    lltm: CELL,
    mi_lstm: CELL,
    nasrnn: CELL,
    ptb_lstm: {"steps": 4, "words": 11, "hidden": 6},
    scrnn: CELL,
    sru_rnntc: {"steps": 4, "width": 6},
    sublstm: CELL,
}


def loss_and_gradients(file, loop, dtype=None):
    model = file.build(3, **SMALL[file], **({} if loop is None else {"loop": loop}))
    parameters = list(model.parameters.values())
    feeds = {p: 0.3 * np.random.default_rng(n).standard_normal(p.shape) for n, p in enumerate(parameters)}
    rng = np.random.default_rng(100)
    classes = model.classes
    for t in (model.x, model.labels):
        is_number = t.dtype == "int64"
        feeds[t] = rng.integers(0, classes, t.shape) if is_number else rng.standard_normal(t.shape)
    return [model.loss, *nf.grad(model.loss, parameters)], feeds


@pytest.mark.parametrize("file", SMALL, ids=lambda f: f.__name__.split(".")[-1])
def test_a_model_as_a_scan(file):
    scanned, unrolled = (nf.evaluate(*loss_and_gradients(file, loop), "float64") for loop in (nf.scan, None))
    for a, b in zip(scanned, unrolled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("file", SMALL, ids=lambda f: f.__name__.split(".")[-1])
def test_a_compiled_model_as_a_scan(file):
    outputs, feeds = loss_and_gradients(file, nf.scan)
    inputs = [t for t in feeds if not isinstance(t, nf.Parameter)]
    f = nf.compile(outputs, inputs=inputs)
    for t, value in feeds.items():
        if isinstance(t, nf.Parameter):
            nf.set_value(t, value.astype(np.float32))
    given = [feeds[t].astype(t.dtype) for t in inputs]
    for a, b in zip(f(*given), nf.evaluate(outputs, feeds, "float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
