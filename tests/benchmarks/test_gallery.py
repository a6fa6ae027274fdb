"""The operators of the gallery agree with their PyTorch forms, value and gradients, interpreted and compiled."""

from pathlib import Path

import numpy as np
import pytest

import neoflow as nf

pytest.importorskip("torch", reason="the peers are PyTorch's")
from benchmarks.gallery.__main__ import definition, make_case
from benchmarks.gallery.operators import OPERATORS
from benchmarks.timing import error_of

pytestmark = pytest.mark.torch
PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_an_operator_agrees_with_pytorch(operator):
    case = make_case(operator, dict(operator.small))
    feeds = dict(zip(case.inputs, case.arrays, strict=True))
    assert error_of(nf.evaluate(case.roots, feeds), case.peer()) < 2e-5


@pytest.mark.tvm
def test_the_operators_compiled_agree_with_pytorch():
    """As one program."""
    cases = [make_case(o, dict(o.small)) for o in OPERATORS]
    roots = [t for c in cases for t in c.roots]
    found = nf.compile(roots, [t for c in cases for t in c.inputs])(*(a for c in cases for a in c.arrays))
    for operator, case in zip(OPERATORS, cases, strict=True):
        own, found = found[: len(case.roots)], found[len(case.roots) :]
        assert error_of(own, case.peer()) < 2e-5, operator.name
        assert all(np.isfinite(a).all() for a in own)


def test_the_page_has_every_operator_as_it_is_measured():
    text = PAGE.read_text(encoding="utf-8")
    assert len(OPERATORS) == 20
    for operator in OPERATORS:
        assert definition(operator) in text and f"\n| {operator.name} | " in text
