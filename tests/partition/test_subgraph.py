"""What no kernel may be: every rule of `Subgraph.check`, and a kernel beside it that keeps the rule."""

import pytest

import neoflow as nf
from neoflow.errors import PartitionError
from neoflow.partition import Node, Subgraph, Value

VECTOR, SQUARE = Value((4,), "float32"), Value((4, 4), "float32")
X, Y, A = nf.placeholder((4,), name="x"), nf.placeholder((4,), name="y"), nf.placeholder((4, 4), name="a")
K = nf.axis(4, "k")

DOUBLED = (X * 2.0).definition
ADDED = (X + Y).definition
REVERSED = nf.compute((4,), lambda i: X[3 - i]).definition
SUMMED = nf.compute((4,), lambda i: nf.sum(A[i, K], axis=[K])).definition
SUMMED_TWICE = nf.compute((4,), lambda i: nf.sum(A[i, K], axis=[K]) + nf.sum(A[K, i], axis=[K])).definition
CENTRED = nf.compute((4, 4), lambda i, j: A[i, j] - X[i]).definition
CENTRED_ELSEWHERE = nf.compute((4, 4), lambda i, j: A[i, j] - X[j]).definition
TAIL = nf.compute((3,), lambda i: X[i + 1]).definition


IDS = nf.placeholder((4,), "int64")
SCATTERED = nf.scatter((4,), [K], (IDS[K],), X[K]).definition


def subgraph(inputs, nodes, outputs, rows=None):
    return Subgraph(tuple(inputs), tuple(Node(d, tuple(reads)) for d, *reads in nodes), tuple(outputs), rows)


REFUSED = {
    "v1 reads a value that comes later": subgraph([VECTOR], [(DOUBLED, 2), (DOUBLED, 0)], [1]),
    "v1 has 1 inputs for 2 slots": subgraph([VECTOR], [(ADDED, 0)], [1]),
    r"v1 reads in0 as float32\[4\]": subgraph([Value((5,), "float32")], [(DOUBLED, 0)], [1]),
    "v2 reduces, which only the kernel's anchor may": subgraph([SQUARE], [(SUMMED, 0), (SUMMED, 0)], [1, 2]),
    "v1 reduces, which only": subgraph([SQUARE], [(SUMMED_TWICE, 0)], [1]),
    "v2 reads v1 away from its own point": subgraph([SQUARE], [(SUMMED, 0), (REVERSED, 1)], [2]),
    "the outputs are not values of nodes": subgraph([VECTOR], [(DOUBLED, 0)], [0]),
    "the outputs are not": subgraph([VECTOR], [(DOUBLED, 0)], []),
    "the outputs are": subgraph([SQUARE], [(SUMMED, 0)], [2], 1),
    "the outputs differ in shape": subgraph([VECTOR], [(DOUBLED, 0), (TAIL, 0)], [1, 2]),
    r"v3 does not go through the kernel's rows \[4\]": subgraph([SQUARE, VECTOR], [(SUMMED, 0), (TAIL, 1)], [2, 3], 1),
    "v2 reads v1 away from its own row": subgraph([SQUARE], [(SUMMED, 0), (CENTRED_ELSEWHERE, 0, 1)], [2], 1),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_kernel_is_refused(message):
    with pytest.raises(PartitionError, match=f"^{message}"):
        REFUSED[message].check()


def test_what_follows_a_scatter_is_refused():
    scattered = (SCATTERED, *(0 if s.dtype == "float32" else 1 for s in SCATTERED.slots))
    inputs = [VECTOR, Value((4,), "int64")]
    for rows, nodes in ((None, [scattered, (DOUBLED, 2)]), (1, [scattered])):
        found = subgraph(inputs, nodes, [len(nodes) + 1], rows)
        with pytest.raises(PartitionError, match="v2 scatters, and what it scatters is complete only when its kernel"):
            found.check()
    subgraph(inputs, [scattered], [2]).check()


@pytest.mark.parametrize(
    "accepted",
    [
        subgraph([VECTOR, VECTOR], [(DOUBLED, 0), (ADDED, 2, 1)], [2, 3]),
        subgraph([VECTOR], [(DOUBLED, 0), (REVERSED, 1)], [2]),
        subgraph([SQUARE], [(SUMMED, 0), (DOUBLED, 1)], [1, 2]),
        subgraph([SQUARE], [(SUMMED, 0), (CENTRED, 0, 1)], [2], 1),
        subgraph([SQUARE], [(SUMMED, 0), (SUMMED, 0)], [1, 2], 1),
    ],
)
def test_what_keeps_the_rules_is_accepted(accepted):
    accepted.check()


def test_the_message_names_values_as_it_is_told():
    found = subgraph([SQUARE], [(SUMMED, 0), (REVERSED, 1)], [2])
    with pytest.raises(PartitionError, match=r"^relu reads sum away from its own point$"):
        found.check(("x", "sum", "relu"))


def test_the_inputs_that_a_value_follows_from():
    found = subgraph([VECTOR, VECTOR, VECTOR], [(DOUBLED, 0), (ADDED, 3, 1), (DOUBLED, 2), (DOUBLED, 5)], [4, 6])
    assert [found.sources(n) for n in range(7)] == [{0}, {1}, {2}, {0}, {0, 1}, {2}, {2}]
