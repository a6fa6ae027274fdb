"""Minimal filtering: F(m, r) is a correlation of r taps, in exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoflow.graph.algorithms.points import filtering

NUMBERS = st.integers(-100, 100).map(lambda n: Fraction(n, 7))
FILTERINGS = ((2, 3), (4, 3), (3, 2), (3, 4), (1, 3), *((m, r) for r in (2, 5, 7) for m in (2, 4)), (7, 4), (4, 6))


def times(matrix, vector):
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


@pytest.mark.parametrize(("m", "r"), FILTERINGS)
@given(data=st.data())
@settings(max_examples=5, deadline=None, derandomize=True)
def test_it_is_a_correlation(m, r, data):
    f = filtering(m, r)
    x = data.draw(st.lists(NUMBERS, min_size=m + r - 1, max_size=m + r - 1))
    w = data.draw(st.lists(NUMBERS, min_size=r, max_size=r))
    products = [a * b for a, b in zip(times(f.data, x), times(f.taps, w), strict=True)]
    assert times(f.results, products) == [sum(x[i + k] * w[k] for k in range(r)) for i in range(m)]


def test_the_data_of_a_filter_and_of_its_gradient_are_transformed_alike():
    assert filtering(4, 3).data == filtering(3, 4).data and filtering(2, 3).data == filtering(3, 2).data


def test_growth():
    """Of a tile of three taps as worked out by hand; of others less than with whole numbers as points, as is stated."""
    assert [filtering(m, r).growth for m, r in ((2, 3), (3, 2))] == [Fraction(8, 3), Fraction(3)]
    stated = {(4, 3): 7.34, (3, 4): 6.26, (2, 5): 5.91, (4, 5): 15.9, (2, 7): 14.5, (4, 7): 38.8}
    assert all(most - 0.1 < filtering(m, r).growth <= most for (m, r), most in stated.items())
    assert filtering(2, 3).length == 4


def test_there_are_only_so_many_points():
    with pytest.raises(AssertionError, match="takes more points than there are"):
        filtering(6, 6)
