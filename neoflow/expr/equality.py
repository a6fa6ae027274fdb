"""What `a == b` gives for two tensors that cannot be compared element by element."""

from __future__ import annotations

from neoflow.errors import ExpressionError


class Incomparable:
    """False where Python asks for a truth, as `in` and `index` of a list do; as an operand it is the `refusal`."""

    def __init__(self, refusal: ExpressionError):
        self.refusal = refusal

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<no comparison: {self.refusal.message}>"
