"""Algorithms beside direct sums: what is compared, what is made of it, and a contraction from end to end."""

import pytest

from benchmarks import algorithms
from benchmarks.algorithms import Beside, cases
from neoflow.graph.algorithms import DIRECT


def test_products_and_convolutions_are_compared():
    names = [row.name for row in cases()]
    assert "matmul 2048 A B" in names and "matmul 4096x768x768 A B" in names
    assert sum(name.startswith("conv 3x3") for name in names) == 4 * 2 * 3 + 3 * 2
    strided = [name for name in names if " stride 2 " in name]
    assert len(strided) == 2 * 3 * 2 + 3 + 1 and all(name.endswith(", dx") for name in strided)
    assert names == [row.name for row in cases(dry=True)]


def test_a_line_an_algorithm_and_its_mean(monkeypatch, capsys):
    def measured(row, rounds):
        fast = 0.4 if "2048" in row.name else 1.6
        direct = Beside(DIRECT, 2e-3, (1.0, 1.0, 1.0), 4e-7, 1.0)
        return [direct, Beside("strassen", 1e-3, (fast, 0.9 * fast, 1.1 * fast), 8e-7, 6.0)]

    monkeypatch.setattr(algorithms, "measured", measured)
    algorithms.main(["--only", "^matmul (2048|1024) "])
    said = capsys.readouterr().out
    assert "| matmul 2048 A B | direct | 2.000 |  | 4.0e-07 | 1 |" in said
    assert "| matmul 2048 A B | strassen | 1.000 | 0.40 (0.36 to 0.44) | 8.0e-07 | 6 |" in said
    assert "- strassen: 0.80 of the direct sum's time (geometric mean); faster in 1 of 2." in said


@pytest.mark.tvm
def test_a_convolution_by_all_that_fits(tmp_path, monkeypatch):
    monkeypatch.setattr(algorithms, "block", lambda run: run() and 1e-3)
    row = next(r for r in cases(dry=True) if r.name == "conv 3x3 64->64 56x56 b1, dx")
    direct, *others = algorithms.measured(row, 1)
    assert direct.name == DIRECT and direct.share == 1 and direct.error < 1e-6
    assert "im2col" in {o.name for o in others}
    for each in others:
        assert 0 < each.error < 1e-6 * each.rounding and each.shares == (1.0,)


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("conv 3x3 stride 2 128->128 56x56 b1, dx", {"zeros"}),
        ("conv 1x1 stride 2 256->512 56x56 b16, dx", {"zeros"}),
        ("depthwise 3x3 stride 2 60 56x56 b16, dx", {"zeros"}),
        ("conv 2x2 stride 2 96->192 56x56 b16, dx", {"residues", "zeros"}),
    ],
)
def test_strided_gradients_by_all_that_fits(name, others, monkeypatch):
    monkeypatch.setattr(algorithms, "block", lambda run: run() and 1e-3)
    row = next(r for r in cases(dry=True) if r.name == name)
    direct, *found = algorithms.measured(row, 1)
    assert {f.name for f in found} >= others and all(f.error < 1e-6 for f in (direct, *found))
