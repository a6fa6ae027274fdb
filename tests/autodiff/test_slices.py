"""A tensor read slice by slice: its gradient has the slices beside each other."""

import numpy as np

import neoflow as nf
from neoflow.expr.ir import Select, postorder
from neoflow.expr.tensor import topological

X = nf.placeholder((5, 4, 3), name="x")


def gradient(*rows):
    """Of a sum of functions of slices of X."""
    slices = [nf.compute((3,), lambda j, n=n, at=at: nf.exp(X[(*at, j)]) * (n + 1.0)) for n, at in enumerate(rows)]
    loss = nf.sum(sum(slices[1:], slices[0]))
    nf.check_grad(loss, [X])
    return nf.grad(loss, [X])[0]


def test_slices_are_put_beside_each_other():
    dx = gradient((0, 1), (2, 3), (4, 0))
    assert sum(isinstance(n, Select) for n in postorder(dx.definition.body)) == 3
    assert {t.shape for t in dx.inputs} == {(3,)}


def test_slices_at_one_place_are_added_first():
    dx = gradient((0, 1), (2, 3), (0, 1))
    assert sum(isinstance(n, Select) for n in postorder(dx.definition.body)) == 2


def test_all_slices_need_no_zeros():
    x = nf.placeholder((3, 4), name="x")
    loss = nf.sum(nf.stack([nf.exp(x[n] * (n + 1.0)) for n in range(3)]))
    nf.check_grad(loss, [x])
    dx = nf.grad(loss, [x])[0]
    assert sum(isinstance(n, Select) for n in postorder(dx.definition.body)) == 2


def test_no_step_has_a_gradient_of_the_whole_table():
    """50 diagonals: what a step adds is as large as what it reads."""
    table, last = nf.placeholder((50, 50), name="table"), nf.placeholder((50,), name="start")
    for k in range(50):
        last = nf.compute(
            (50,), lambda i, k=k, t=last: nf.select(k - i >= 0, table[i, nf.maximum(k - i, 0)], 0.0) * t[i]
        )
    (d,) = nf.grad(nf.sum(last), [table])
    whole = [t for t in topological([d]) if t.shape == (50, 50) and t is not table]
    assert all(len(t.inputs) <= 2 or t is d for t in whole)
    assert all(np.prod(t.shape) <= 50 * 50 for t in topological([d]))
