"""Numbers: rows of extreme values against PyTorch, and sums so long that a plain loop stops counting."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.nn import functional as F

torch = pytest.importorskip("torch")
T = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.tvm]

ENDS = np.array([0.0, -0.0, 1e-45, -1e-40, 1e-20, 0.3, -1.0, 5.5, 20.0, -20.1, 87.0, -87.5, 88.72, -104.0, 1e4, -1e4,
                 1e38, -3.4e38, np.inf, -np.inf, np.nan], np.float32)  # fmt: skip
ROW_WISE = {
    "softmax": (F.softmax, T.softmax),
    "log_softmax": (F.log_softmax, T.log_softmax),
    "logsumexp": (F.logsumexp, torch.logsumexp),
}


def rows(seed: int, count: int, width: int) -> np.ndarray:
    """Rows of extremes and of ordinary numbers; in half of them nothing is NaN or inf."""
    rng = np.random.default_rng(seed)
    found = np.where(
        rng.random((count, width)) < 0.5, rng.choice(ENDS, (count, width)), rng.normal(0, 20, (count, width))
    )
    tame = rng.random((count, 1)) < 0.5
    tame = tame & (np.isnan(found) | (found == np.inf))
    return np.where(tame, -np.inf, found).astype(np.float32)


def faults(name: str, seed: int, count: int, width: int) -> int:
    """Rows that are NaN or infinite where PyTorch's are not, or further off than a few roundings."""
    ours, theirs = ROW_WISE[name]
    x = rows(seed, count, width)
    t = nf.placeholder(x.shape, name="x")
    found = np.array(nf.compile([ours(t)], inputs=[t])(x)[0], np.float64).reshape(count, -1)
    peer = theirs(torch.from_numpy(x), -1).numpy().astype(np.float64).reshape(count, -1)
    exact = theirs(torch.from_numpy(x.astype(np.float64)), -1).numpy().reshape(count, -1)
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(exact), 1.0 if name == "logsumexp" else 0.0)
        near = (
            np.abs(found - exact)
            <= (2e-5 if name == "softmax" else 2e-6) * size + 1e-6 * (name == "log_softmax") + 1e-43
        )
        same = (np.isnan(found) & np.isnan(peer)) | (found == peer) | near
    return int(np.count_nonzero(~same.all(1)))


@pytest.mark.parametrize("name", ROW_WISE)
def test_rows_of_extremes(name):
    assert faults(name, 0, 300, 7) == 0


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2, 16, 100, 1000])
@pytest.mark.parametrize("name", ROW_WISE)
def test_many_rows_of_extremes(name, width):
    assert sum(faults(name, seed, 2000, width) for seed in range(3)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("order", ["ij", "ji"])
def test_two_to_the_thirty_second_ones(order):
    """One accumulator in a row would stop at 2^24, sixty-four of them at 2^30."""
    n = 1 << 16
    i, j = nf.axis(n, "i"), nf.axis(n, "j")
    x, w = nf.placeholder((n,), name="x"), nf.placeholder((n,), name="w")
    y = nf.compute((), lambda: nf.sum(x[i] + w[j], axis=[i, j] if order == "ij" else [j, i]))
    z = nf.compute((4,), lambda k: nf.sum(x[i] + w[j] * nf.cast(k, "float32"), axis=[i, j]))
    ones, zeros = np.ones(n, np.float32), np.zeros(n, np.float32)
    total, totals = nf.compile([y, z], inputs=[x, w])(ones, zeros)
    assert float(total) == 2.0**32
    np.testing.assert_array_equal(totals, np.full(4, 2.0**32))
    assert float(nf.compile([nf.mean(nf.zeros((n,)) + x)], inputs=[x])(ones)[0]) == 1.0


@pytest.mark.slow
def test_long_contractions_of_equal_terms():
    """Means, norms and products of millions of equal numbers, whose roundings all go one way."""
    n = 1 << 22
    x = nf.placeholder((n,), name="x")
    w = nf.placeholder((n, 8), name="w")
    one = nf.expr("y[j] = sum(x[k] * w[k,j])", x=x, w=w)
    value = np.full(n, 0.1, np.float32)
    found = nf.compile([nf.mean(x), nf.sum(x * x), one], inputs=[x, w])(value, np.ones((n, 8), np.float32))
    term = np.float64(np.float32(0.1))
    exact = [term, n * term * term, np.full(8, n * term)]
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(np.array(a, np.float64), b, rtol=1e-4)
