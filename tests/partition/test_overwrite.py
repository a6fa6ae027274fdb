"""An output takes the place of an input only where nothing reads the input too late: shown by doing it, in NumPy."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Compute
from neoflow.nn import functional as F
from neoflow.partition import Node, Subgraph, Value, can_overwrite
from neoflow.partition.overwrite import is_shared, replacements
from tests.partition.test_fuse import kernels, stored
from tests.partition.test_fuse import run as run_kernels
from tests.strategies import random_program


def run(subgraph, arrays, seed):
    """The kernel with these places for inputs and outputs, which may share memory.

    Row by row and in each the nodes in order, or else some points first and then the others. What is not stored is
    computed again from memory wherever it is read.
    """
    first = len(subgraph.inputs)
    written = {o: turned(subgraph, o, a) for o, a in zip(subgraph.outputs, arrays[first:], strict=True)}
    memory = dict(enumerate(arrays[:first])) | written

    def current(number):
        inputs = {n: nf.placeholder(a.shape, subgraph.value(n).dtype) for n, a in memory.items() if n != number}
        values = dict(inputs)
        for n, node in enumerate(subgraph.nodes[: number - first + 1], first):
            if n not in values:
                values[n] = Compute(node.definition, tuple(values[i] for i in node.inputs), "t")
        return nf.evaluate([values[number]], {t: np.array(memory[n]) for n, t in inputs.items()})[0]

    if subgraph.rows is None:
        mask = np.random.default_rng(seed).random(arrays[-1].shape) < 0.5
        for points in (mask, ~mask):
            written = set(subgraph.outputs)
            kept = {o: memory.pop(o) for o in written}  # an output's value at a point is not read from memory
            for o, value in [(o, current(o)) for o in kept]:
                kept[o][points] = value[points]
            memory |= kept
        return [memory[o] for o in subgraph.outputs]
    reducing = [n for n, s in enumerate(subgraph.nodes, first) if s.definition.has_reduction and subgraph.depends(n)]
    for n in reducing:
        memory.setdefault(n, np.zeros(subgraph.value(n).shape, subgraph.value(n).dtype))
    for row in np.ndindex(*subgraph.row_shape):
        for n in sorted({*reducing, *subgraph.outputs}):
            memory[n][row] = current(n)[row]
    return arrays[first:]


def turned(subgraph, output, array):
    """The memory of an output by the dimensions that its kernel has."""
    order = subgraph.order(output)
    lying = array.reshape(subgraph.lying(output).shape)
    return lying.transpose([order.index(d) for d in range(len(order))])


def subgraphs(outputs, inputs):
    _, parts = kernels(outputs, inputs)
    return parts.subgraphs


def check(subgraph, start=None, seed=0):
    """Each allowed pair of places, against the kernel with memory of its own; start: the inputs' values."""
    rng = np.random.default_rng(seed)
    inputs, outputs = subgraph.tensors()
    if start is None:
        start = [rng.standard_normal(t.shape).astype(t.dtype) for t in inputs]
    wanted = nf.evaluate(list(outputs), dict(zip(inputs, start, strict=True)))
    pairs = 0
    for n in range(len(inputs)):
        for o in replacements(subgraph, n):
            arrays = [np.array(a) for a in start] + [
                np.zeros(t.shape, w.dtype) for t, w in zip(outputs, wanted, strict=True)
            ]
            arrays[len(inputs) + subgraph.outputs.index(o)] = arrays[n]
            for found, value in zip(run(subgraph, arrays, seed), wanted, strict=True):
                np.testing.assert_allclose(found.reshape(value.shape), value, rtol=1e-4, atol=1e-5)
            pairs += 1
    return pairs


def test_softmax_may_be_written_over_its_scores():
    x = nf.placeholder((6, 40), name="x")
    (subgraph,) = subgraphs([F.softmax(x)], [x])
    assert subgraph.rows == 1 and replacements(subgraph, 0) == frozenset(subgraph.outputs) and is_shared(subgraph)
    assert check(subgraph) == 1


@pytest.mark.tvm
def test_the_gradient_of_large_logits_takes_their_place_though_the_loss_reads_them():
    """Their kernel of rows gives what the loss picks of them, so that nobody reads them later."""
    logits, labels = nf.placeholder((37, 8009), name="logits"), nf.placeholder((37,), "int64", name="labels")
    scores = nf.compute(logits.shape, lambda i, j: logits[i, j] * 0.5, name="scores")
    loss = F.cross_entropy(scores, labels)
    graph, parts = kernels([loss, *nf.grad(loss, [scores])], [logits, labels])
    rows = next(s for s in parts.subgraphs if s.rows is not None)
    values = [rows.value(o).shape for o in rows.outputs]
    assert values == [(37,), (37, 8009)]
    feeds = {
        logits: np.random.default_rng(3).standard_normal(logits.shape).astype("float32"),
        labels: np.arange(37) * 216,
    }
    computed = nf.compile(list(graph.outputs), [logits, labels])(*feeds.values())
    for found, wanted in zip(computed, nf.evaluate(list(graph.outputs), feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    large = next(n for n in range(len(rows.inputs)) if rows.value(n).shape == (37, 8009))
    assert replacements(rows, large) == {rows.outputs[1]}


def test_a_row_that_is_read_again_is_not_overwritten():
    """The first output is stored before the second node goes through the row of the input again."""
    x = nf.placeholder((6, 40), name="x")
    centred = nf.compute((6, 40), lambda i, j: x[i, j] - nf.max(x, axis=1)[i])
    k = nf.axis(40, "k")
    again = nf.compute((6,), lambda i: nf.sum(centred[i, k] * x[i, 39 - k], axis=[k]))
    for subgraph in subgraphs([centred, again], [x]):
        for n, value in enumerate(subgraph.inputs):
            if value == Value((6, 40), "float32") and subgraph.rows is not None:
                centred_number = next(o for o in subgraph.outputs if subgraph.value(o) == value)
                last = subgraph.nodes[-1]
                assert (centred_number in replacements(subgraph, n)) == (n not in last.inputs)
        check(subgraph)


def test_an_operand_of_a_contraction_is_not_overwritten():
    a, b = nf.placeholder((8, 8), name="a"), nf.placeholder((8, 8), name="b")
    k = nf.axis(8, "k")
    y = nf.compute((8, 8), lambda i, j: nf.sum(a[i, k] * b[k, j], axis=[k]) + a[i, j])
    for call in kernels([y], [a, b])[1].calls:
        assert not can_overwrite(call, a, y) if any(t is y for t in call.outputs) else True
    for subgraph in subgraphs([y], [a, b]):
        check(subgraph)


def test_a_transposed_read_is_not_overwritten():
    a = nf.placeholder((8, 8), name="a")
    (subgraph,) = subgraphs([nf.compute((8, 8), lambda i, j: a[i, j] + a[j, i])], [a])
    assert not replacements(subgraph, 0)
    plain = Subgraph(subgraph.inputs, (Node((a * 2.0).definition, (0,)),), (1,))
    assert replacements(plain, 0) == {1} and not is_shared(plain)


@pytest.mark.parametrize("seed", range(80))
def test_random_kernels(seed):
    program = random_program(seed)
    roots = program.with_gradients()
    _, parts = kernels(roots, list(program.feeds))
    values = run_kernels(parts, program.feeds)
    for call in parts.calls:
        check(call.subgraph, [stored(parts, values, t).astype(t.dtype) for t in call.inputs], seed)
