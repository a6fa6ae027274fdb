"""Axes become one where every address goes along them as one: found from linear addresses as from any others."""

import numpy as np
import pytest

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, substitute
from neoflow.loops.nest import _go_as_one, _split, is_smooth
from tests.chance import Chance


def term(axis, factor):
    return Apply("mul", (axis, affine.integer(factor)))


def address(make, axes, extent):
    """A sum of multiples of axes, as often as not along the last two as along one; at times a quotient of one."""
    total = affine.integer(make.between(0, 5))
    factor = make.between(0, 3)
    factors = [make.between(0, 4), factor * extent if make.chance(0.5) else make.between(0, 8), factor]
    for axis, f in zip(axes, factors, strict=True):
        total = Apply("add", (total, term(axis, f)))
    if make.chance(0.2):
        total = Apply("add", (total, Apply("floordiv", (make.pick(axes), affine.integer(2)))))
    return affine.simplify(total)


@pytest.mark.parametrize("seed", range(5))
def test_linear_addresses_are_judged_as_substitution_judges_them(seed):
    make, yes, no = Chance(np.random.default_rng(seed)), 0, 0
    for _ in range(60):
        axes = tuple(Axis(n, make.between(2, 6)) for n in range(3))
        outer, inner = axes[1:]
        e, fused = address(make, axes, inner.extent), Axis(9, outer.extent * inner.extent)
        found = _go_as_one(e, outer, inner)
        wanted = is_smooth(affine.simplify(substitute(e, _split(fused, outer, inner))), fused)
        assert found is None or found == wanted, str(e)
        yes, no = yes + (found is True), no + (found is False)
    assert yes >= 5 and no >= 5
