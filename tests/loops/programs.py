"""Kernels of many forms with arrays to call them on, for laws about schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import neoflow as nf
from neoflow.dtype import is_float
from neoflow.expr.ir import Apply, postorder
from neoflow.expr.tensor import Tensor
from neoflow.graph import make_graph, optimize
from neoflow.nn import functional as F
from neoflow.partition import Partition, Subgraph, partition
from tests.strategies import random_program

SIZES = (
    {},
    {"extent": 40, "points": 4000, "tensors": (1, 3), "rank": 3},
    {"extent": 60, "points": 9000, "tensors": (1, 2), "rank": 4, "gathers": False},
    {"dtype": "float64", "extent": 20, "points": 2000, "tensors": (1, 3)},
)
"""Limits of random programs: many small kernels, and few whose axes are longer than several vectors."""


@dataclass(frozen=True)
class Case:
    """A subgraph and an array for each of its inputs; `exact` is what it computes in float64."""

    name: str
    subgraph: Subgraph
    arrays: list[np.ndarray]
    exact: list[np.ndarray]


def subgraphs(roots: list[Tensor], inputs: list[Tensor]) -> tuple[Subgraph, ...]:
    """The distinct kernels of a program."""
    return _partition(roots, inputs).subgraphs


def random_subgraphs(seed: int) -> tuple[Subgraph, ...]:
    """The distinct kernels of a random program with its gradients."""
    program = random_program(seed, **SIZES[seed % len(SIZES)])
    return subgraphs(program.with_gradients(), list(program.feeds))


def _partition(roots: list[Tensor], inputs: list[Tensor]) -> Partition:
    return partition(optimize(make_graph(roots, inputs)))


def random_cases(seed: int) -> Iterator[Case]:
    """The kernels of a random program with its gradients."""
    program = random_program(seed, jumps=False, **SIZES[seed % len(SIZES)])
    yield from cases(f"random {seed}", program.with_gradients(), program.feeds)


def cases(name: str, roots: list[Tensor], feeds: dict[Tensor, np.ndarray], comparing: bool = False) -> Iterator[Case]:
    """The kernels of a program; `comparing`, those too that compare floats for equality, where nothing is rounded."""
    calls = _partition(roots, list(feeds)).calls
    needed = list(dict.fromkeys(t for c in calls for t in c.inputs))
    values = dict(zip(needed, nf.evaluate(needed, feeds), strict=True))
    seen: set[str] = set()
    for call in calls:
        if call.subgraph.digest in seen or (compares(call.subgraph) and not comparing):
            continue
        seen.add(call.subgraph.digest)
        arrays = [np.asarray(values[t]) for t in call.inputs]
        inputs, outputs = call.subgraph.tensors()
        exact = nf.evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
        yield Case(name, call.subgraph, arrays, exact)


def compares(subgraph: Subgraph) -> bool:
    """Whether floats are compared for equality, which other bits of the same value decide otherwise."""
    nodes = [n for s in subgraph.nodes for n in postorder(s.definition.body)]
    return any(isinstance(n, Apply) and n.fn in ("eq", "ne") and is_float(n.args[0].dtype) for n in nodes)


def product(a: Tensor, b: Tensor) -> Tensor:
    k = nf.axis(a.shape[1], "k")
    return nf.compute((a.shape[0], b.shape[1]), lambda i, j: nf.sum(a[i, k] * b[k, j], axis=[k]))


def votes(u: Tensor, h: Tensor) -> Tensor:
    return nf.expr("y[b,n,k,d] = sum(h[n,k,d,e] * u[b,n,e])", h=h, u=u)


OPERATORS = (
    ("matmul", ((37, 53), (41, 53)), F.linear),
    ("matmul in place", ((21, 53), (53, 75)), lambda a, b: nf.tanh(product(a, b)) * 0.5),
    ("long matmul", ((3, 700), (17, 700)), F.linear),
    ("three factors", ((12, 9), (9, 17), (9,)), lambda a, b, c: product(a * c, b)),
    ("convolution", ((2, 5, 11, 13), (7, 5, 3, 3)), lambda x, w: F.conv2d(x, w, stride=2, padding=1)),
    ("depthwise", ((2, 6, 9, 11), (6, 1, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1, groups=6)),
    ("votes", ((3, 20, 6), (20, 5, 8, 6)), votes),
    ("packed by a long expression", ((9, 30), (30, 75)), lambda a, b: product(a, nf.tanh(nf.exp(b) + nf.sin(b)) * b)),
    ("softmax", ((7, 45),), F.softmax),
    ("layer norm", ((7, 45), (45,), (45,)), F.layer_norm),
    ("transpose", ((33, 47),), lambda x: nf.transpose(x, (1, 0)) + 1.0),
    ("transpose of three", ((6, 19, 21),), lambda x: nf.transpose(x, (2, 0, 1)) * 2.0),
    ("columns", ((45, 7),), lambda x: nf.sum(x, axis=0)),
    ("everything", ((9, 1200),), lambda x: nf.sum(x * x)),
    ("maximum", ((9, 120),), lambda x: nf.max(x, axis=1)),
)


def rows_of_products(a: Tensor, b: Tensor) -> Tensor:
    return nf.expr("y[g,m,n] = sum(a[g,m,k] * b[g,k,n])", a=a, b=b)


def packed_product(x: Tensor, p: Tensor) -> Tensor:
    """Of what lies in blocks of columns, each along k, the first operand in blocks of k."""
    k, (blocks, inner, width) = nf.axis(p.shape[1], "k"), p.shape

    def body(i, j):
        return nf.sum(x[k // (inner // 3), i, k % (inner // 3)] * p[j // width, k, j % width], axis=[k])

    return nf.relu(nf.compute((x.shape[1], blocks * width), body))


CUT = (
    ("packed product", ((3, 19, 15), (4, 45, 16)), packed_product),
    ("odd product", ((61, 97), (97, 83)), product),
    ("rows of products", ((5, 19, 45), (5, 45, 67)), rows_of_products),
    ("neighbouring rows", ((2, 5, 10, 11), (33, 5, 3, 3)), lambda x, w: nf.relu(F.conv2d(x, w))),
    ("two rows of a tile", ((3, 6, 7, 7), (37, 6, 1, 1)), F.conv2d),
    ("groups", ((2, 12, 9, 10), (24, 4, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1, groups=3)),
)
"""Contractions of sizes that no tile divides."""


def named_cases(dtype: str = "float32", operators: tuple = OPERATORS) -> Iterator[Case]:
    """The kernels of operators and their gradients; beside those of all, a lookup, and a map with a padded copy."""
    rng = np.random.default_rng(0)
    for name, shapes, function in operators:
        inputs = [nf.placeholder(s, dtype, name=f"x{n}") for n, s in enumerate(shapes)]
        y = function(*inputs)
        feeds: dict[Tensor, np.ndarray] = {x: rng.standard_normal(x.shape).astype(dtype) for x in inputs}
        yield from cases(name, [y, *nf.vjp(nf.sum(y * y), inputs)], feeds)
    if operators is not OPERATORS:
        return
    ids, table = nf.placeholder((50,), "int64", name="ids"), nf.placeholder((11, 19), dtype, name="table")
    rows = nf.compute((50, 19), lambda i, h: nf.exp(table[ids[i], h]))
    feeds = {ids: rng.integers(0, 11, 50), table: rng.standard_normal((11, 19)).astype(dtype)}
    yield from cases("lookup", [rows, *nf.vjp(nf.sum(rows * rows), [table])], feeds)
    x = nf.placeholder((3, 12, 5, 7), dtype, name="x")
    y = nf.compute(x.shape, lambda *at: nf.exp(x[at]) + x[at])
    wide = nf.pad(y, ((0, 0), (0, 0), (1, 2), (3, 1)))
    yield from cases("padded", [y, wide], {x: rng.standard_normal(x.shape).astype(dtype)})
