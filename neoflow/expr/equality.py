"""What `a == b` gives for two tensors that cannot be compared element by element."""

from __future__ import annotations

from typing import Any, NoReturn

from neoflow.errors import ExpressionError


class Incomparable:
    """`truth` where Python asks for one, as `in` and `index` of a list do; as an operand it raises the `refusal`."""

    def __init__(self, truth: bool, refusal: ExpressionError):
        self.truth, self.refusal = truth, refusal

    def __bool__(self) -> bool:
        return self.truth

    def __repr__(self) -> str:
        return f"<no comparison: {self.refusal.message}>"

    def _refuse(self, *operands: Any) -> NoReturn:
        raise self.refusal

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __getitem__ = _refuse
