"""What a machine reaches: the first level that holds the bytes, the longer of arithmetic and memory, and a text."""

import pytest

import neoflow as nf
from neoflow.roofs import STATED, Level, Roofs

ROOFS = Roofs(100.0, (Level("L1", 1000, 50.0), Level("memory", None, 10.0)), start=1e-6)


def test_a_kernel_takes_the_longer_of_memory_and_arithmetic_and_its_start():
    assert ROOFS.kernel_seconds(0, 1000) == pytest.approx(1000 / 50 / 1e9 + 1e-6)
    assert ROOFS.kernel_seconds(0, 1001) == pytest.approx(1001 / 10 / 1e9 + 1e-6)
    assert ROOFS.kernel_seconds(10_000, 1000) == pytest.approx(2 * 10_000 / 100 / 1e9 + 1e-6)
    assert ROOFS.kernel_seconds(0, 5000, near=400, row_bytes=40) == pytest.approx((5000 / 10 + 400 / 50) / 1e9 + 1e-6)


def test_the_text_of_roofs_reads_back():
    assert Roofs.from_text(STATED.to_text()) == STATED and Roofs.from_text(ROOFS.to_text()) == ROOFS
    with pytest.raises(nf.TextError):
        Roofs.from_text(STATED.to_text().replace("gflops", "flops"))


def test_noise_does_not_change_what_is_rounded():
    noisy = Roofs(101.0, (Level("L1", 1000, 51.0), Level("memory", None, 9.8)), start=1.02e-6)
    assert noisy.rounded() == ROOFS.rounded() == ROOFS.rounded().rounded() != ROOFS
    assert Roofs(64.0, (Level("memory", None, 2**3.25),), start=0.0).rounded().levels[0].gb_s == 2**3.25
    assert Roofs(120.0, ROOFS.levels).rounded().gflops > ROOFS.rounded().gflops
