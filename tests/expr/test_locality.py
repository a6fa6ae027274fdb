"""Axes in the order in which they go through memory."""

import neoflow as nf
from neoflow.expr.ir import Axis
from neoflow.expr.locality import axes_met, memory_order

I, J, K = (Axis(n, 4) for n in range(3))
X, IDS = nf.placeholder((8, 4, 4), name="x"), nf.placeholder((4,), "int64", name="ids")


def test_axes_are_met_in_the_order_of_the_text():
    assert axes_met([X[J, I, 0] * X[K, J, 0]]) == [J, I, K] and axes_met([K + 0, J + I]) == [K, J, I]


def test_an_axis_that_goes_further_comes_first():
    assert memory_order([K, J, I], [X[I + 2, J, K]]) == (I, J, K)
    assert memory_order([I, J, K], [X[K, J, I]]) == (K, J, I)


def test_an_axis_goes_as_far_as_the_furthest_of_its_reads():
    assert memory_order([I, J], [X[0, J, I] + X[0, 0, J] + X[I, 0, 0]]) == (I, J)


def test_an_index_from_data_goes_as_far_as_what_it_chooses():
    """ids[k] is next to ids[k + 1], x[ids[k]] anywhere."""
    assert memory_order([I, K], [X[0, I, 0] * X[IDS[K], 0, 0]]) == (K, I)


def test_what_is_written_counts_and_what_moves_nothing_comes_last():
    assert memory_order([I, J, K], [nf.cast(I, "float32")], [((4, 4), (K, J))]) == (K, J, I)


def test_axes_that_go_equally_far_stay_in_their_order():
    assert memory_order([K, I, J], [X[2 * I + K, 0, J]]) == (K, I, J)
