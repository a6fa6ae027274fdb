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
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "erf": special.erf,
    "sin": np.sin,
    "cos": np.cos,
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 88.7228, 88.73, -87.34, -103.9, -104.0, -110.0]


@pytest.fixture(scope="module")
def functions():
    """Every polynomial as a kernel over POINTS floats."""
    import neoflow as nf
    from neoflow.partition.subgraph import Node, Subgraph, Value

    target = cpu_target(1)
    lowered = []
    for name in REFERENCE:
        x = nf.placeholder((POINTS,), "float32")
        y = getattr(nf, name)(x)
        s = Subgraph((Value(x.shape, x.dtype),), (Node(y.definition, (0,)),), (1,))
        lowered.append(codegen.lower(s, default_schedule(s, target), target, name))
    return dict(zip(REFERENCE, loaded(lowered, target), strict=True))


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the wanted value, denormals included."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        unit = np.maximum(np.spacing(np.abs(rounded)).astype(np.float64), 2.0**-149)
        found = np.abs(got.astype(np.float64) - want) / unit
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
