"""The polynomials: at most 4 units in the last place over a million points, and the special values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from neoflow import codegen
from neoflow.loops import default_schedule
from neoflow.runtime.device.cpu import empty
from neoflow.target import cpu_target
from tests.codegen.kernels import loaded

pytestmark = pytest.mark.tvm
POINTS = 1 << 20
REFERENCE = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "erf": special.erf,
    "sin": np.sin,
    "cos": np.cos,
}
NEAR_ZERO = ("log1p", "expm1")
"""With polynomials of float64, too."""
SPECIAL = [
    -1.0,
    np.nextafter(np.float32(-1), 0),
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-40,
    88.7228,
    88.73,
    -87.34,
    -103.9,
    -104.0,
    -110.0,
]


@pytest.fixture(scope="module")
def functions():
    """Every polynomial as a kernel over POINTS floats."""
    return kernels(REFERENCE, "float32")


@pytest.fixture(scope="module")
def doubles():
    """Those that have one of float64."""
    return kernels(NEAR_ZERO, "float64")


def kernels(names, dtype):
    import neoflow as nf
    from neoflow.partition.subgraph import Node, Subgraph, Value

    target = cpu_target(1)
    lowered = []
    for name in names:
        x = nf.placeholder((POINTS,), dtype)
        y = getattr(nf, name)(x)
        s = Subgraph((Value(x.shape, x.dtype),), (Node(y.definition, (0,)),), (1,))
        lowered.append(codegen.lower(s, default_schedule(s, target), target, name))
    return dict(zip(names, loaded(lowered, target), strict=True))


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the wanted value, denormals included."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(want.dtype)
        found = np.abs(got.astype(want.dtype) - want) / unit
    found[np.isnan(got) & np.isnan(want)] = 0
    found[np.isinf(got) & (got == rounded)] = 0
    return np.where(np.isnan(found), np.inf, found)


@pytest.mark.parametrize("domain", ["wide", "unit", "bits"])
@pytest.mark.parametrize("name", REFERENCE)
def test_four_units_in_the_last_place(functions, name, domain):
    rng = np.random.default_rng(1)
    x, y = empty((POINTS,), "float32"), empty((POINTS,), "float32")
    x[...] = {
        "wide": lambda: rng.uniform(-110, 110, POINTS),
        "unit": lambda: rng.uniform(-1.5, 1.5, POINTS),
        "bits": lambda: rng.integers(0, 1 << 32, POINTS, dtype=np.uint64).astype(np.uint32).view(np.float32),
    }[domain]()
    x[: len(SPECIAL)] = SPECIAL
    if name in ("sin", "cos"):
        x[np.abs(x) >= 2.0**30] = 1.0
    functions[name](x, y)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.float64))
    found = errors(y, want)
    worst = int(found.argmax())
    assert found[worst] <= 4.0, f"{name}({x[worst]!r}) = {y[worst]!r}, not {want[worst]!r}"


@pytest.mark.parametrize("domain", ["wide", "unit", "small", "bits"])
@pytest.mark.parametrize("name", NEAR_ZERO)
def test_four_units_in_the_last_place_of_float64(doubles, name, domain):
    """Against 80-bit floats."""
    rng = np.random.default_rng(2)
    x, y = empty((POINTS,), "float64"), empty((POINTS,), "float64")
    x[...] = {
        "wide": lambda: rng.uniform(-800, 800, POINTS),
        "unit": lambda: rng.uniform(-1.5, 1.5, POINTS),
        "small": lambda: rng.uniform(-1, 1, POINTS) * 2.0 ** rng.integers(-1074, 1, POINTS),
        "bits": lambda: rng.integers(0, 1 << 64, POINTS, dtype=np.uint64).view(np.float64),
    }[domain]()
    x[: len(SPECIAL)] = SPECIAL
    x[len(SPECIAL) : len(SPECIAL) + 8] = [5e-324, -5e-324, 709.78, 709.79, -745.2, -1 + 2.0**-53, 1e308, 2.0**53]
    doubles[name](x, y)
    with np.errstate(all="ignore"):
        found = errors(y, REFERENCE[name](x.astype(np.longdouble)))
    worst = int(found.argmax())
    assert found[worst] <= 4.0, f"{name}({x[worst]!r}) = {y[worst]!r}, {found[worst]} units away"


@pytest.mark.parametrize("name", NEAR_ZERO)
def test_the_sign_of_zero_and_the_smallest_numbers_stay(functions, name):
    x, y = empty((POINTS,), "float32"), empty((POINTS,), "float32")
    x[...] = 1.0
    x[:6] = [0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40]
    functions[name](x, y)
    np.testing.assert_array_equal(y[:6].view(np.uint32), x[:6].view(np.uint32))
