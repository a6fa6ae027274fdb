"""The windows of adaptive pooling."""

from itertools import product

from neoflow.nn.pooling import longest_window


def test_the_longest_window():
    for n, m in product(range(1, 40), range(1, 60)):
        assert longest_window(n, m) == max(-(-(p + 1) * n // m) - p * n // m for p in range(m))
