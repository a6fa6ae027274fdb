"""Which floats are whole numbers, because what they are made of is: sums and products of these round nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Cast, Const, Expr, Read, Reduce, Select


class Wholes:
    """The expressions of a body with integer values. slots: which tensors have such. gathered: reads, and those they
    stand for."""

    def __init__(self, slots: Sequence[bool], gathered: Mapping[Expr, Read]):
        self.slots, self.gathered = slots, gathered
        self.known: dict[Expr, bool] = {}

    def has(self, e: Expr) -> bool:
        """Whether a float expression has integer values, since those it reads have."""
        if e not in self.known:
            self.known[e] = self._has(e)
        return self.known[e]

    def _has(self, e: Expr) -> bool:
        match e:
            case Const():
                return math.isfinite(e.value) and float(e.value).is_integer()
            case Read():
                return self.slots[self.gathered.get(e, e).slot]
            case Select():
                return self.has(e.then) and self.has(e.other)
            case Cast():
                return dt.is_int(e.arg.dtype) or e.arg.dtype == "bool" or self.has(e.arg)
            case Apply():
                gives = FUNCTIONS[e.fn].whole
                return gives == "always" or (gives == "of whole" and all(map(self.has, e.args)))
            case Reduce():
                return self.has(e.body)
        return True
