"""Activations and losses at the ends of the numbers: compiled values and gradients, in units of the last place.

Exact values are of NumPy and SciPy in float64, by formulas that lose nothing; PyTorch in float32 says which results are
infinite or NaN. `WORST` says how far off they may be.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

import neoflow as nf
from neoflow.nn import functional as F

torch = pytest.importorskip("torch")
T = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.tvm]

Array = np.ndarray
SIZES = [0.0, 1e-45, 1e-40, 1.1754944e-38, 1e-20, 1e-10, 1e-7, 1e-4, 0.01, 0.3, 0.5, 1.0, 3.0, 5.5, 10.0, 16.7, 20.0,
         20.1, 60.0, 86.9, 87.0, 87.5, 88.72, 89.0, 100.0, 103.9, 104.1, 1e4, 1e10, 1e38, np.inf]  # fmt: skip
POINTS = np.array([*SIZES, *(-s for s in SIZES), np.nan], np.float32)
ROWS = np.array(
    [
        [0.0, -0.0, 0.0, 0.0],
        [1e-20, -np.inf, -np.inf, -np.inf],
        [0.3, -20.0, -30.0, -np.inf],
        [1e-40, 1e-45, -1e-45, -1e-40],
        [87.0, -87.0, 87.0, -87.5],
        [1e4, -1e4, 9999.0, 9990.0],
        [-1e4, -1e4, -10001.0, -10003.5],
        [1e38, 1e38, -1e38, 0.0],
        [-3e38, -3e38, -3.4e38, -np.inf],
        [5.5, -np.inf, 5.25, -np.inf],
        [-np.inf, -np.inf, -np.inf, -np.inf],
        [np.inf, 1.0, 2.0, -np.inf],
        [np.inf, np.inf, 0.0, 0.0],
        [np.nan, 1.0, 2.0, 3.0],
        [np.nan, np.inf, -np.inf, 0.0],
    ],
    np.float32,
)
SCALE, ALPHA = 1.0507009873554804934, 1.6732632423543772848


def _mish_slope(x: Array) -> Array:
    t = np.tanh(np.logaddexp(0, x))
    return t + x * special.expit(x) / np.cosh(np.logaddexp(0, x)) ** 2


def _gelu_slope(x: Array) -> Array:
    return special.erfc(-x / np.sqrt(2)) / 2 + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


Function = Callable[[Array], Array]
ELEMENTWISE: dict[str, tuple[Callable, Callable, Function, Function]] = {
    "relu": (F.relu, T.relu, lambda x: np.maximum(x, 0), lambda x: x > 0),
    "leaky_relu": (F.leaky_relu, T.leaky_relu, lambda x: np.where(x > 0, x, np.float32(0.01) * x),
                   lambda x: np.where(x > 0, 1, np.float32(0.01))),
    "elu": (F.elu, T.elu, lambda x: np.where(x > 0, x, np.expm1(x)), lambda x: np.where(x > 0, 1, np.exp(x))),
    "selu": (F.selu, T.selu, lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(x)),
             lambda x: SCALE * np.where(x > 0, 1, ALPHA * np.exp(x))),
    "softplus": (F.softplus, T.softplus, lambda x: np.logaddexp(0, x), special.expit),
    "log_sigmoid": (F.log_sigmoid, T.logsigmoid, lambda x: -np.logaddexp(0, -x), lambda x: special.expit(-x)),
    "sigmoid": (F.sigmoid, torch.sigmoid, special.expit, lambda x: special.expit(x) * special.expit(-x)),
    "tanh": (F.tanh, torch.tanh, np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "silu": (F.silu, T.silu, lambda x: x * special.expit(x),
             lambda x: special.expit(x) * (1 + x * special.expit(-x))),
    "mish": (F.mish, T.mish, lambda x: x * np.tanh(np.logaddexp(0, x)), _mish_slope),
    "gelu": (F.gelu, T.gelu, lambda x: x * special.erfc(-x / np.sqrt(2)) / 2, _gelu_slope),
    "log1p": (nf.log1p, torch.log1p, np.log1p, lambda x: 1 / (1 + x)),
    "expm1": (nf.expm1, torch.expm1, np.expm1, np.exp),
    "exp": (nf.exp, torch.exp, np.exp, np.exp),
    "log": (nf.log, torch.log, np.log, lambda x: 1 / x),
}  # fmt: skip
STEPS = ("relu", "leaky_relu")
"""Their derivatives follow from a comparison, which a NaN fails."""
WORST: dict[str, tuple[float, float, float, float]] = {
    #               value        gradient
    "relu":        (0, 0,        0, 0),
    "leaky_relu":  (1, 0,        1, 0),
    "elu":         (1, 0,        1, 0),
    "selu":        (2, 0,        2, 0),
    "softplus":    (2, 0,        3, 0),
    "log_sigmoid": (2, 0,        3, 0),
    "sigmoid":     (3, 0,        3, 0.25),
    "tanh":        (2, 0,        3, 1),
    "silu":        (4, 1e-36,    16, 0.25),
    "mish":        (4, 1e-36,    6, 0.25),
    "gelu":        (2, 8,        4, 4),
    "log1p":       (1, 0,        2, 0),
    "expm1":       (2, 0,        1, 0),
    "exp":         (1, 0,        1, 0),
    "log":         (1, 0,        1, 0),
}  # fmt: skip
"""Units in the last place of the result, or of the number beside them where the result is smaller: what comes of a
difference is as far off as what it is of."""
LIMITS = 6.0, 8.0
"""The same of rows and losses."""


def units(got: Array, exact: Array, least: float = 0.0) -> Array:
    """Distance in units of the last place of the exact value, or of `least` where it is smaller.

    Infinite where one is a number and the other is not.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(rounded), np.float32(least))).astype(np.float64)
        found = np.abs(got.astype(np.float64) - exact) / unit
    same = (np.isnan(got) & np.isnan(rounded)) | (got == rounded)
    return np.where(same, 0.0, np.where(np.isfinite(found), found, np.inf))


def ours(function: Callable, *arrays: Array) -> list[Array]:
    """The value and the gradient of its sum by the first argument, compiled."""
    inputs = [nf.placeholder(a.shape, a.dtype, f"x{n}") for n, a in enumerate(arrays)]
    y = function(*inputs)
    cotangent = nf.ones(y.shape)
    f = nf.compile([y, *nf.vjp(y, [inputs[0]], cotangent)], inputs=inputs)
    return [np.array(v) for v in f(*arrays)]


def theirs(function: Callable, *arrays: Array) -> list[Array]:
    first, *rest = (torch.from_numpy(a.copy()) for a in arrays)
    first.requires_grad_(True)
    y = function(first, *rest)
    y.sum().backward()
    return [y.detach().numpy(), first.grad.numpy()]


def compare(name: str, mine: list[Array], peer: list[Array], exact: list[Array]) -> list[float]:
    """The worst of value and gradient; NaN where PyTorch has it or the exact result is."""
    worst = []
    for what, limit, a, b, e in zip(("value", "gradient"), LIMITS, mine, peer, exact, strict=True):
        found, known = units(a, e), units(b, e)
        wrong = (found > limit) & (found > known) & ~(np.isnan(a) & np.isnan(b))
        at = tuple(np.argwhere(wrong)[0]) if wrong.any() else ()
        assert not wrong.any(), f"{what} of {name} at {at}: {a[at]}, exactly {e[at]}, PyTorch {b[at]}"
        worst.append(float(found[np.isfinite(e) & (found <= limit)].max(initial=0.0)))
    return worst


def drawn() -> Array:
    """The ends of the numbers, and a thousand between them."""
    rng = np.random.default_rng(0)
    small = rng.uniform(-1, 1, 400) * 2.0 ** rng.integers(-120, 20, 400)
    return np.concatenate([POINTS, rng.uniform(-110, 110, 300), rng.standard_normal(300), small]).astype(np.float32)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    mine, peer, value, slope = ELEMENTWISE[name]
    points = drawn()
    with np.errstate(all="ignore"):
        wide = points.astype(np.float64)
        exact = [np.asarray(f(wide), np.float64) for f in (value, slope)]
    if name not in STEPS:
        exact[1][np.isnan(wide)] = np.nan
    limits = WORST[name][:2], WORST[name][2:]
    results = zip(("value", "gradient"), limits, ours(mine, points), theirs(peer, points), exact, strict=True)
    for what, (limit, least), a, b, e in results:
        found = units(a, e, least)
        wrong = (found > limit) & ~(np.isnan(a) & np.isnan(b))
        worst = int(np.argmax(np.where(wrong, found, 0)))
        assert not wrong.any(), f"{what} of {name}({points[worst]}): {a[worst]}, exactly {e[worst]}, PyTorch {b[worst]}"


def _softmax(x: Array) -> Array:
    return special.softmax(x, -1)


ROW_WISE = {
    "softmax": (F.softmax, lambda x: T.softmax(x, -1), _softmax),
    "log_softmax": (F.log_softmax, lambda x: T.log_softmax(x, -1), lambda x: special.log_softmax(x, -1)),
    "logsumexp": (F.logsumexp, lambda x: torch.logsumexp(x, -1), lambda x: special.logsumexp(x, -1)),
}


@pytest.mark.parametrize("name", ROW_WISE)
def test_row_wise(name):
    """Gradients are of the sum of a row: of a softmax 0, of a log-softmax 1 - n p, of a logsumexp p."""
    mine, peer, value = ROW_WISE[name]
    with np.errstate(all="ignore"):
        wide = ROWS.astype(np.float64)
        p = _softmax(wide)
        slope = {"softmax": None, "log_softmax": 1 - wide.shape[1] * p, "logsumexp": p}[name]
        exact = value(wide)
    found, known = ours(mine, ROWS), theirs(peer, ROWS)
    if name != "logsumexp":  # what cancels leaves an error of a few units of what it cancels from
        regular = np.isfinite(known[1])
        np.testing.assert_array_equal(np.isnan(found[1]), ~regular)
        np.testing.assert_allclose(found[1][regular], 0 if slope is None else slope[regular], atol=2e-6)
        found[1] = known[1]
    compare(name, found, known, [exact, known[1].astype(np.float64) if name != "logsumexp" else _where(known[1], p)])


def _where(peer: Array, exact: Array) -> Array:
    """The exact value, and what PyTorch says where there is none."""
    return np.where(np.isfinite(exact), exact, peer)


def test_cross_entropy():
    """Of every row and label: log(sum(exp(x - x[label]))), the gradient p - 1 at the label."""
    labels = np.arange(ROWS.shape[1])
    logits = nf.placeholder((1, 4), name="logits")
    label = nf.placeholder((1,), "int64", name="label")
    y = F.cross_entropy(logits, label)
    f = nf.compile([y, *nf.grad(y, [logits])], inputs=[logits, label])
    for row in ROWS:
        for k in labels:
            mine = [np.array(v) for v in f(row[None], np.array([k]))]
            peer = theirs(lambda x, t: T.cross_entropy(x, t), row[None], np.array([k]))
            with np.errstate(all="ignore"):
                wide = row.astype(np.float64)
                exact = _where(peer[0], special.logsumexp(wide - wide[k]))
            np.testing.assert_array_equal(np.isnan(mine[1]), np.isnan(peer[1]), f"{row} {k}")
            np.testing.assert_allclose(mine[1], peer[1], atol=5e-7)
            both = [np.reshape(v, 1) for v in (mine[0], peer[0], exact)]
            near = np.isfinite(exact) and abs(both[0] - both[2]) < 2e-7  # of the 1 in the sum
            assert near or units(both[0], both[2]) <= min(LIMITS[0], units(both[1], both[2]) + 2), f"{row} {k}: {both}"
            assert not mine[0] < 0


@pytest.mark.parametrize("target", [0.0, 0.25, 1.0])
def test_binary_cross_entropy_with_logits(target):
    x, t = nf.placeholder((1,), name="x"), nf.placeholder((1,), name="t")
    y = F.binary_cross_entropy_with_logits(x, t)
    f = nf.compile([y, *nf.grad(y, [x])], inputs=[x, t])
    for point in POINTS:
        a, b = np.array([point]), np.array([target], np.float32)
        mine = [np.reshape(np.array(v), 1) for v in f(a, b)]
        peer = [np.reshape(v, 1) for v in theirs(T.binary_cross_entropy_with_logits, a, b)]
        wide = a.astype(np.float64)
        with np.errstate(all="ignore"):
            linear = np.zeros(1) if target == 1.0 and np.isfinite(wide) else (1 - target) * wide
            value = _where(peer[0], linear + np.logaddexp(0, -wide))
            slope = special.expit(wide) - target if 0 < target < 1 else None
            slope = slope if slope is not None else special.expit(wide) if target == 0 else -special.expit(-wide)
        compare(f"binary_cross_entropy({point}, {target})", mine, peer, [value, _absolute(mine[1], slope, peer[1])])


def _absolute(mine: Array, exact: Array, peer: Array) -> Array:
    """The exact difference of a sigmoid and its target, which cancel; ours where it is within a rounding of 1."""
    return np.where(np.abs(mine - exact) < 2e-7, mine.astype(np.float64), _where(peer, exact))


def test_other_losses():
    points = np.array([0.0, -0.0, 1e-45, 1e-20, 1.0, -3.0, 1e4, -1e10, 1e19, 1e38, np.inf, -np.inf, np.nan], np.float32)
    for a in points:
        for b in points:
            arrays = np.array([a]), np.array([b])
            mine, peer = ours(F.mse_loss, *arrays), theirs(T.mse_loss, *arrays)
            for m, p in zip(mine, peer, strict=True):
                np.testing.assert_array_equal(m, p, f"mse_loss({a}, {b})")
    x, label = nf.placeholder((1, 1), name="x"), nf.placeholder((1,), "int64", name="label")
    y = F.margin_loss(x, label)
    f = nf.compile([y, *nf.grad(y, [x])], inputs=[x, label])

    def peer_of(v, t):
        hit = T.relu(0.9 - v) ** 2 if t.item() == 0 else 0.5 * T.relu(v - 0.1) ** 2
        return hit.sum()

    for a in points:
        mine, peer = f(np.array([[a]]), np.array([0])), theirs(peer_of, np.array([[a]]), np.array([0]))
        np.testing.assert_allclose(mine[0], peer[0], rtol=1e-6, err_msg=f"margin_loss({a})")
        if not np.isnan(a):  # relu' follows from a comparison
            np.testing.assert_allclose(mine[1], peer[1], rtol=1e-6, err_msg=f"gradient of margin_loss({a})")
