"""Expressions and programs of 20,000 operations in a chain: no walk recurses, and none takes more than linear time."""

import sys

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import affine
from neoflow.expr.deep import run
from neoflow.expr.ir import Apply, Axis, Expr, rewrite
from neoflow.expr.normal import is_normal
from neoflow.expr.printer import print_expr, print_program
from neoflow.expr.tensor import serialize, structural_hash, topological

MANY = 20_000
x = nf.placeholder((3,), name="x")


def one_body(n: int):
    """y[i] = x[i] * 0.5 + 1.0 ... with n operations."""

    def body(i):
        e = x[i]
        for k in range(n // 2):
            e = nf.select(i < 2, e * 0.5 + 1.0, 0.25) if k % 1000 == 0 else e * 0.5 + 1.0
        return e

    return nf.compute((3,), body, name="y")


def many_tensors(n: int):
    y = x
    for k in range(n):
        y = nf.maximum(y, 0.5) if k % 2 else y * 0.5
    return y


@pytest.mark.parametrize("make", [one_body, many_tensors])
def test_built_hashed_printed_evaluated(make):
    y = make(MANY)
    assert len(structural_hash([y])) == 64
    text = print_program(topological([y]))
    assert text.count("0.5") >= MANY // 2
    assert nf.count_ops(y).flops > MANY
    assert is_normal(y.definition)
    (found,) = nf.evaluate([y], {x: np.array([1.0, 2.0, 3.0], np.float32)})
    assert np.isfinite(found).all()
    assert f"{found.dtype}" == "float32"


def test_time_is_linear():
    """Four times the operations in at most five times the calls of Python functions."""

    def calls(n: int) -> int:
        count = 0

        def note(frame, event, arg):
            nonlocal count
            count += event == "call"

        y = one_body(n)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            print_expr(y.definition.body)
            serialize(y.definition)
            nf.evaluate([y], {x: np.ones(3, np.float32)})
        finally:
            sys.setprofile(before)
        return count

    few, many = calls(MANY // 4), calls(MANY)
    assert MANY < many < 5 * few


def test_index_arithmetic():
    """i + 1 + 1 ... , -(-(i)) ... and conditions joined 2,000 times."""
    i: Expr = Axis(0, 5)
    e, negated, condition = i, i, i >= 0
    for n in range(MANY):
        e = Apply("add", (e, affine.integer(1)))
        negated = Apply("neg", (negated,))
        if n < 2000:
            condition = Apply("and", (condition, Apply("lt", (i, affine.integer(n % 4 + 1)))))
    assert affine.linear(e) == ({i: 1}, MANY)
    assert str(affine.simplify(e)) == f"axis0 + {MANY}"
    assert affine.simplify(negated) is i
    assert affine.bounds(e) == (MANY, MANY + 4)
    assert isinstance(affine.simplify(condition), Apply)
    assert rewrite(e, lambda node: None) is e


def test_a_walk_gives_what_it_waits_for():
    def depth(n):
        return 0 if n == 0 else 1 + (yield depth(n - 1))

    assert run(depth(MANY)) == MANY


def test_an_error_inside_a_walk_comes_out():
    def fails(n):
        if n == 0:
            raise ValueError("at the bottom")
        return (yield fails(n - 1))

    with pytest.raises(ValueError, match="at the bottom"):
        run(fails(MANY))
