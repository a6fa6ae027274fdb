"""Python numbers among expressions, and functions with defaults as bodies."""

import numpy as np
import pytest

from neoflow.errors import ExpressionError
from neoflow.expr import dsl as nf
from neoflow.expr.interp import evaluate


def test_an_integer_that_its_type_cannot_hold_is_refused():
    x = nf.placeholder((2,), "int8", name="x")
    text = r"the integer 300 does not fit int8; widen the other operand: nf.cast\(x, 'int64'\)"
    for write in (lambda: x < 300, lambda: 300 - x, lambda: nf.cast(300, "int8")):
        with pytest.raises(ExpressionError, match=text):
            write()
    (wide,) = evaluate(nf.cast(x, "int64") + 300, {x: np.int8([-1, 127])})
    np.testing.assert_array_equal(wide, [299, 427])


def test_a_parameter_with_a_default_is_no_axis():
    x = nf.placeholder((3,), name="x")
    shifted = [nf.compute((2,), lambda i, k=k: x[i + k]) for k in range(2)]
    values = evaluate(shifted, {x: np.float32([1, 2, 3])})
    np.testing.assert_array_equal(values, np.float32([[1, 2], [2, 3]]))
