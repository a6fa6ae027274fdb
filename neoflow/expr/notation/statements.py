"""A whole text of index notation: its statements in turn, each reading what the ones before it define."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neoflow.caller import caller
from neoflow.errors import shown
from neoflow.expr.constant import written
from neoflow.expr.limits import unusable
from neoflow.expr.notation.reader import Bindings, Number, listing
from neoflow.expr.notation.recurrence import Recurrence, groups
from neoflow.expr.notation.statement import Statement
from neoflow.expr.notation.text import Source
from neoflow.expr.tensor import Tensor


def expr(
    text: str,
    /,
    extents: Mapping[str, int] | None = None,
    name: str | None = None,
    outputs: list[str] | tuple[str, ...] | None = None,
    **bindings: Any,
) -> Any:
    """The tensor that the last statement of `text` defines, or a tuple of those named in `outputs`.

    extents: of index names, where the shapes do not tell or should not. name: of the last tensor. bindings: tensors
    and numbers by the names they have in `text`. Raises `ExpressionError` with the line and a caret under the place.
    """
    source = Source(text, caller())
    if extents is not None and not isinstance(extents, Mapping):
        source.fail(f"tensors are bound by the names they have in the text: nf.expr(text, x=...), not {shown(extents)}")
    wrong = None if name is None else unusable(name)
    if wrong is not None:
        source.fail(wrong)
    if outputs is not None and not isinstance(outputs, (list, tuple)):
        source.fail(f"outputs is a list of names that the text defines, not {shown(outputs)}")
    env: Bindings = {key: _binding(key, value, source) for key, value in bindings.items()}
    given = {key: _extent(key, n, source) for key, n in (extents or {}).items()}
    parsed = source.statements()
    defined: dict[str, Tensor] = {}
    used: set[str] = set()
    for group in groups(parsed, env):
        if len(group) > 1 or group[0].given:
            recurrence = Recurrence(source, group, env, given)
            found = recurrence.tensors()
            used |= {recurrence.time, *given}
            env.update(found)
            defined.update(found)
            tensor = found[recurrence.names[-1]]
            continue
        statement = Statement(source, group[0], env, given)
        own = statement.name
        tensor = statement.tensor(name if name and group[0] is parsed[-1] else own)
        used |= statement.reader.axes.keys()
        env[own] = defined[own] = tensor
    for key in given:
        if key not in used:
            source.fail(f"extents gives `{key}`, which is no index here; the indices are {listing(used)}")
    if outputs is None:
        return tensor
    for key in outputs:
        if key not in defined:
            source.fail(f"outputs asks for `{key}`, which the text does not define; it defines {listing(defined)}")
    return tuple(defined[key] for key in outputs)


def _binding(key: str, value: Any, source: Source) -> Tensor | Number:
    if isinstance(value, (Tensor, bool, int, float)):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    if isinstance(value, np.ndarray):
        return written(value) if value.ndim else value.item()
    source.fail(
        f"`{key}` is bound to a {type(value).__name__}; bind tensors (nf.placeholder ...) and numbers, or arrays"
    )


def _extent(key: str, value: Any, source: Source) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value > 0:
        return int(value)
    source.fail(f"extents gives `{key}` as {value!r}; an extent is an integer greater than 0")
