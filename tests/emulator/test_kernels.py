"""Kernels without a fault: the machine finds none, in any order of blocks, and NumPy's values."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.emulator import Program, emulate
from tests.emulator.kernels import AMPERE, CASES, launches, source, text


@cache
def everything() -> str:
    return source(*(text(name) for name in CASES))


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "plain"])
@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_without_a_fault_is_as_numpy(name, seed, checked):
    rng = np.random.default_rng(0)
    arrays = CASES[name].arrays(rng)
    expected = CASES[name].expected(*[a.copy() for a in arrays])
    if name == "scatter" and seed is not None:  # which index is met first follows the order
        del expected[4]
    emulate(everything(), launches(name, arrays), checked=checked, seed=seed)
    for i, value in expected.items():
        np.testing.assert_allclose(arrays[i].astype(float), value.astype(float), atol=CASES[name].tolerance, rtol=0)


def test_launches_follow_each_other_and_share_arrays():
    rng = np.random.default_rng(0)
    a, sums, mean = rng.standard_normal((8, 32)).astype(np.float32), np.zeros(4, np.float32), np.zeros(1, np.float32)
    shared = [("partial", 8, 32, 0, [a, sums]), ("average", 1, 1, 0, [sums, mean])]
    emulate(everything(), shared, unwritten=[mean])
    np.testing.assert_allclose(mean[0], a.sum() / 4, rtol=1e-5)


def test_all_kernels_are_there():
    assert set(Program(everything()).kernels) == {*CASES, "average"}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(
    "architecture", [pytest.param(75, marks=pytest.mark.slow), 80, pytest.param(90, marks=pytest.mark.slow)]
)
def test_nvcc_compiles_every_kernel(architecture, tmp_path):
    names = [name for name in CASES if architecture >= 80 or name not in AMPERE]
    path = Path(tmp_path) / "kernels.cu"
    path.write_text(source(*(text(name) for name in names)))
    command = ["nvcc", f"-arch=sm_{architecture}", "-cubin", "-o", str(path.with_suffix(".cubin")), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
