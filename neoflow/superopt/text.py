"""Nested sums of products as text: equal for two that are the same but for names and order."""

from __future__ import annotations

from collections.abc import Mapping

from neoflow.superopt import places
from neoflow.superopt.forms import name
from neoflow.superopt.places import Places
from neoflow.superopt.products import Applied, Element, Extreme, Factor, Index, Piece, Power, Product, Sum


def sum_text(s: Sum, known: Places, names: Mapping[str, str] | None = None) -> str:
    """The text of a sum at known places; names: of the axes around it."""
    return " + ".join(sorted(_product(p, known, dict(names or {})) for p in s))


def _product(p: Product, known: Places, names: dict[str, str]) -> str:
    names = names | {a: f"b_{len(names) + n}" for n, a in enumerate(p.axes)}
    factors = " * ".join(sorted(_factor(f, p.where & known, names) for f in p.factors))
    return f"{p.coefficient} {factors} {_where(p.where, known, names)}"


def _factor(f: Factor, known: Places, names: dict[str, str]) -> str:
    put = {a: name(n) for a, n in names.items()}
    match f:
        case Element():
            return f"{f.name}[{', '.join(str(i.put(put)) for i in f.indices)}]"
        case Applied():
            return f"{f.fn}({', '.join(sum_text(a, known, names) for a in f.args)})"
        case Extreme():
            return f"{f.op}({'; '.join(sorted(_piece(p, known, names) for p in f.pieces))})"
        case Power():
            return f"({'*'.join(str(n.put(put)) for n in f.extents)})^{f.power}"
        case Index():
            return str(f.form.put(put))


def _piece(p: Piece, known: Places, names: dict[str, str]) -> str:
    names = names | {a: f"b_{len(names) + n}" for n, a in enumerate(p.axes)}
    return f"{sum_text(p.value, p.where & known, names)} {_where(p.where, known, names)}"


def _where(found: Places, known: Places, names: Mapping[str, str]) -> str:
    return places.conditions(places.renamed(found, names), places.renamed(known, names))
