"""How the kernels of a program are put into modules."""

from itertools import pairwise

import pytest

from neoflow.building import module_sizes


@pytest.mark.parametrize("workers", [1, 2, 16])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 77, 348, 2000])
def test_modules_are_small_at_first_and_at_last(count, workers):
    sizes = list(module_sizes(count, workers))
    assert sum(sizes) == count and all(s > 0 for s in sizes)
    assert all(s <= 2 for s in (*sizes[:1], *sizes[-1:]))
    assert all(s <= 2 * before for before, s in pairwise(sizes))
    left = count
    for size in sizes:
        assert size <= max(2, -(-left // (2 * workers)))
        left -= size


def test_the_modules_of_a_large_program():
    assert list(module_sizes(40, 2)) == [2, 4, 8, 7, 5, 4, 3, 2, 2, 2, 1]
