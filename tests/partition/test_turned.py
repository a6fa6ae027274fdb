"""Row kernels whose rows are not the first dimensions of what they write, or are blocks of neighbours in memory."""

from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import PartitionError
from neoflow.graph import make_graph, optimize
from neoflow.partition import LOSES, Node, Subgraph, Value, object_for_gpu, object_to, order_calls, partition
from neoflow.partition.turned import Turn
from tests.partition.test_fuse import run
from tests.partition.test_overwrite import check as check_places


def norm(shape):
    """Normalisation by channels, with what it gives its parameters: [N, C, P]."""
    x, dy = nf.placeholder(shape, name="x"), nf.placeholder(shape, name="dy")
    gamma = nf.parameter((shape[1],), name="gamma", init=1.0)
    mean = nf.mean(x, (0, 2))
    centred = nf.compute(shape, lambda b, c, p: x[b, c, p] - mean[c], name="centred")
    scale = nf.rsqrt(nf.mean(centred * centred, (0, 2)) + 1e-3)
    y = nf.compute(shape, lambda b, c, p: centred[b, c, p] * scale[c] * gamma[c], name="y")
    return x, dy, gamma, [y, *nf.vjp(y, [x, gamma], dy)]


def columns(shape):
    """Sums over the first dimension of what they share, which is computed: [N, C]."""
    x, y = nf.placeholder(shape, name="x"), nf.placeholder(shape, name="y")
    t = nf.sin(x)
    return x, y, [nf.sum(t, 0), nf.sum(t * y, 0), nf.sum(y * nf.exp(t), 0), t]


def divided(roots, fed, **options):
    graph = optimize(make_graph(roots, fed))
    return graph, partition(graph, **options)


def agree(graph, parts, feeds):
    values = run(parts, feeds)
    for t, wanted in zip(graph.outputs, nf.evaluate(list(graph.outputs), feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(values[t], wanted, rtol=1e-9, atol=1e-9)


def feeds(*tensors):
    rng = np.random.default_rng(0)
    return {t: rng.uniform(-1, 1, t.shape) for t in tensors}


def objections(roots, fed, **options):
    return {d.verdict.reason for d in divided(roots, fed, **options)[1].decisions if not d.verdict.ok}


@pytest.mark.parametrize("width", [40, 49, 130])
def test_a_norm_of_one_image_is_one_kernel_forward_and_backward(width):
    x, dy, gamma, roots = norm((1, 12, width))
    graph, parts = divided(roots, [x, dy])
    (call,) = parts.calls
    assert call.subgraph.rows == 1 and (1, 0, 2) in call.subgraph.orders
    agree(graph, parts, feeds(x, dy, gamma))
    without = divided(roots, [x, dy], without=["row kernels"])[1]
    assert len(without.calls) > 3


def test_rows_in_pieces_are_one_kernel_where_that_saves():
    x, dy, gamma, roots = norm((4, 12, 40))
    unrewarded = objections(roots, [x, dy], choose=partial(object_to, besides=(LOSES,)))
    assert any("lies in 4 pieces: memory is faster from one end" in reason for reason in unrewarded)
    assert not any("pieces" in reason for reason in objections(roots, [x, dy]))
    graph, parts = divided(roots, [x, dy])
    assert len(parts.calls) == 1
    agree(graph, parts, feeds(x, dy, gamma))


def test_on_a_gpu_rows_come_first():
    x, dy, _, roots = norm((1, 300, 40))
    wanted = "its rows are not the first dimensions of what it writes, which a block of threads writes at once"
    assert wanted in objections(roots, [x, dy], choose=object_for_gpu)


@pytest.mark.parametrize(("extent", "rows"), [(1024, 16), (96 * 5, 15), (16 * 9, 9)])
def test_sums_of_columns_are_one_kernel_by_blocks_of_them(extent, rows):
    x, y, roots = columns((40, extent))
    graph, parts = divided(roots, [x, y])
    _, call = parts.calls
    assert call.subgraph.row_shape == (rows,) and len(call.outputs) == 3
    agree(graph, parts, feeds(x, y))


def test_columns_of_which_no_vectors_divide_the_number_stay_apart():
    x, y, roots = columns((40, 1000))
    assert len(divided(roots, [x, y])[1].calls) == 4
    assert "a row would be a column in memory: loops across rows are faster" in objections(roots, [x, y])


def test_what_is_written_over_a_parameter_comes_behind_all_that_reads_it():
    x, dy, gamma, roots = norm((1, 12, 40))
    graph = optimize(make_graph(roots[:2], [x, dy], {gamma: gamma - 0.1 * roots[2]}))
    parts = partition(graph)
    assert len(parts.calls) == 1
    assert order_calls(graph, parts)[1] == {gamma}


@pytest.mark.parametrize("extent", [96, 1024])
def test_an_output_takes_the_place_of_what_lies_as_it_does(extent):
    x, y, roots = columns((8, extent))
    start = nf.placeholder((extent,), name="start")
    subgraph = divided([start - roots[0], *roots[1:]], [x, y, start])[1].calls[-1].subgraph
    assert subgraph.rows == 1 and check_places(subgraph) == 3
    x, dy, _, roots = norm((1, 12, 40))
    subgraph = divided(roots, [x, dy])[1].calls[0].subgraph
    assert check_places(subgraph) >= 1


def turned_twice():
    """v1[c, b] = 2 x[b, c] in the order of x, by rows c."""
    x = nf.placeholder((3, 32), name="x")
    t = nf.compute((32, 3), lambda c, b: x[b, c] * 2.0)
    return Subgraph((Value((3, 32), "float32"),), (Node(t.definition, (0,)),), (1,), 1, ((1, 0),))


def test_what_would_be_written_across_memory_is_no_kernel():
    with pytest.raises(PartitionError, match="a row of v1 would be written across memory, not along it"):
        turned_twice().check()


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (((0, 0),), "v1 does not lie in an order of its dimensions"),
        (((0, 2),), "v1 does not lie in an order of its dimensions"),
        (((0, 1), (0, 1)), "some outputs have an order and others none"),
    ],
)
def test_orders_are_those_of_dimensions(orders, message):
    found = turned_twice()
    with pytest.raises(PartitionError, match=message):
        Subgraph(found.inputs, found.nodes, found.outputs, 1, orders).check()


def test_the_order_is_in_the_text_the_family_and_the_digest():
    x, dy, _, roots = norm((1, 12, 40))
    found = divided(roots, [x, dy])[1].calls[0].subgraph
    again = Subgraph.from_text(found.to_text())
    assert again == found and again.digest == found.digest
    assert " as 1 0 2" in found.to_text() and " as 1 0 2" in str(found.family)
    assert "-> out as [" in str(found)
    plain = Subgraph(found.inputs, found.nodes, found.outputs, found.rows)
    assert plain.digest != found.digest


@pytest.mark.parametrize("turn", [Turn((1,)), Turn((2, 0)), Turn((1,), 2), Turn((2, 1), 2), Turn((0,), 5)])
def test_a_turned_tensor_has_every_element_once(turn):
    shape = (5, 4, 6)
    t = np.arange(120).reshape(shape)
    x = nf.placeholder(shape, "int64", name="x")
    moved = nf.compute(turn.shape(shape), lambda *at: x[tuple(_at(turn, shape, at))])
    (found,) = nf.evaluate([moved], {x: t})
    lying = found.transpose(turn.order(3)).reshape(-1)
    np.testing.assert_array_equal(lying, t.reshape(-1))


def _at(turn, shape, axes):
    """The point of the tensor at a point of the turned one, by arithmetic of its own."""
    lead, rest = list(axes[: len(turn.rows)]), list(axes[len(turn.rows) :])
    for d in range(len(shape)):
        if d not in turn.rows:
            yield rest.pop(0)
        elif turn.width > 1 and d == turn.rows[-1]:
            yield lead[turn.rows.index(d)] * turn.width + rest.pop(0)
        else:
            yield lead[turn.rows.index(d)]
