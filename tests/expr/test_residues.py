"""Residue classes: after which step an expression repeats, and what is laid side by side."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.check import values_at
from neoflow.expr.ir import Axis
from neoflow.expr.residues import interleaved, member, members, period


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda z: z, 1),
        (lambda z: 3 * z + 2, 1),
        (lambda z: z // 4, 4),
        (lambda z: 6 * z % 4, 2),
        (lambda z: z // 2 + z % 3, 6),
        (lambda z: z // 2 % 3, 6),
        (lambda z: (2 * z + 1) // 4, 2),
    ],
)
def test_after_a_period_an_expression_has_grown_by_a_constant(write, expected):
    z = Axis(0, 48)
    e = write(z)
    assert period(e, z) == expected
    values = values_at(e, {z: np.arange(48)}, 48)
    assert len(set((values[expected:] - values[:-expected]).tolist())) == 1


@pytest.mark.parametrize(("extent", "modulus"), [(7, 3), (6, 3), (2, 4), (5, 1)])
def test_every_value_is_in_one_class(extent, modulus):
    found = []
    for residue in range(min(modulus, extent)):
        axis = Axis(0, members(extent, modulus, residue))
        found += values_at(member(modulus, residue, axis), {axis: np.arange(axis.extent)}, axis.extent).tolist()
    assert sorted(found) == list(range(extent))


def test_classes_lie_side_by_side_and_others_are_zero():
    even, last = nf.placeholder((4, 2), "float64", name="even"), nf.placeholder((2, 2), "float64", name="last")
    z, j = Axis(0, 8), Axis(1, 2)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape) for t in (even, last)}
    (both,) = nf.evaluate([interleaved((z, j), {z: 2}, [({z: 0}, even)], "y", "float64")], feeds)
    expected = np.zeros((8, 2))
    expected[::2] = feeds[even]
    np.testing.assert_array_equal(both, expected)
    (of_four,) = nf.evaluate([interleaved((z, j), {z: 4}, [({z: 3}, last)], "y", "float64")], feeds)
    expected[:] = 0
    expected[3::4] = feeds[last]
    np.testing.assert_array_equal(of_four, expected)
    nothing = interleaved((z, j), {z: 2}, [], "y", "float64")
    assert not nf.evaluate([nothing], {})[0].any()
