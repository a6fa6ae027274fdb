"""Operators that `benchmarks.gallery.indexed` times: right, in fewer operations than they are written with."""

import pytest

import neoflow as nf

pytest.importorskip("torch")
from benchmarks.gallery.__main__ import make_case
from benchmarks.gallery.indexed import OPERATORS, operations
from benchmarks.timing import error_of

pytestmark = [pytest.mark.torch, pytest.mark.tvm]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_values_and_gradients(operator):
    case = make_case(operator, dict(operator.small))
    assert error_of(nf.compile(case.roots, case.inputs)(*case.arrays), case.peer()) < 2e-5


@pytest.mark.parametrize(("name", "least"), [("rotary embedding", 1.4), ("deformable convolution", 4.0)])
def test_parts_are_computed_once(name, least):
    case = make_case(next(o for o in OPERATORS if o.name == name))
    before, after = operations(case, 1)
    assert before >= least * after


@pytest.mark.parametrize("roots", [1, 4], ids=["value", "value and gradients"])
def test_one_body_takes_the_work_of_two_steps(roots):
    one, two = (operations(make_case(o), roots)[1] for o in OPERATORS if o.name.startswith("deformable"))
    assert one <= 1.2 * two


def test_lookups_are_contracted():
    case = make_case(next(o for o in OPERATORS if o.name == "tensor product"))
    assert "contraction(" in str(nf.compile(case.roots[:1], case.inputs[:-1]).explain())
