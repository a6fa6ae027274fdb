"""Conditions under which reads are done, put together one by one."""

from __future__ import annotations

from tvm import tirx

from neoflow.codegen.tir import emit

Value = emit.Value
Guard = Value | None
"""None where a read is done always."""
_LEVELS = 8
"""Conditions around a read that are one expression of TVM: it recurses through them."""


class Guards:
    """Guards are known by what object they are: one made of the same conditions in the same order is the same.

    statements: where one of many conditions is kept.
    """

    def __init__(self, statements: list) -> None:
        self._statements = statements
        self._made: dict[tuple[int, int], tuple[Value, Guard, Value]] = {}
        """by the ids of what they are made of, which stays alive here"""
        self._conditions: dict[int, tuple[Value, ...]] = {}

    def both(self, guard: Guard, condition: Value) -> Value:
        """A guard and a condition more."""
        key = (id(guard), id(condition))
        if key not in self._made:
            conditions = (*self.conditions(guard), condition)
            made = condition
            if guard is not None:
                lanes = max(emit.lanes_of(guard), emit.lanes_of(condition))
                made = tirx.And(emit.widen(guard, lanes), emit.widen(condition, lanes))
            if len(conditions) % _LEVELS == 0:
                made = emit.kept(self._statements, made)
            self._made[key] = (made, guard, condition)
            self._conditions[id(made)] = conditions
        return self._made[key][0]

    def conditions(self, guard: Guard) -> tuple[Value, ...]:
        """What a guard is made of; nothing of one that was not made here."""
        return self._conditions.get(id(guard), ())
