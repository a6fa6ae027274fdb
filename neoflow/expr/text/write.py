"""A definition as its line of text, and a line for everything long that it uses more than once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from neoflow import dtype as dt
from neoflow.expr.close import first_met
from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS, REDUCERS
from neoflow.expr.ir import Apply, Axis, Binder, Cast, Const, Expr, Read, Reduce, Scatter, Select, Slot, postorder
from neoflow.expr.printer import default_names
from neoflow.expr.tensor import Definition

_LONG = 12
"""An expression of more nodes than this stands once, in a line of its own."""
_SHARED = "e"
"""Names of such lines begin with this and end with a number."""

KEYWORDS = frozenset(
    {"where", "reads", "axes", "at", "select", "cast", "scatter", "inf", "nan", "True", "False"}
    | {f.name for f in FUNCTIONS.values()}
    | {*REDUCERS, *ARG_REDUCERS, *dt.NUMPY}
)
"""What no label and no axis can be called in a text."""


def is_shared_name(name: str) -> bool:
    """Whether a name is one of those that `where` gives."""
    return name.startswith(_SHARED) and name[len(_SHARED) :].isdigit()


def is_free_name(name: str) -> bool:
    """Whether a tensor or an axis can be called so in a text."""
    return name.isascii() and name.isidentifier() and name not in KEYWORDS and not is_shared_name(name)


def usable_names(definition: Definition, names: Sequence[str], taken: set[str]) -> tuple[str, ...] | None:
    """`names` for the axes of a definition when they can stand in its text."""
    count = len(definition.shape) + len(definition.reduction_axes)
    fits = len(names) == count and len(set(names)) == count and taken.isdisjoint(names)
    return tuple(names) if fits and all(map(is_free_name, names)) and has_axes_in_order(definition) else None


def has_axes_in_order(definition: Definition) -> bool:
    """Whether the axes that are bound in the body are numbered as a reader meets them."""
    rank, (_, bound) = len(definition.shape), first_met(definition.body)
    return [a.ident for a in bound] == list(range(rank, rank + len(bound)))


def literal(node: Const) -> str:
    """The text of a constant; its type is said where it is not int64, float32 or bool."""
    value = node.value
    text = repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
    return text if node.dtype in (dt.INDEX, "float32", "bool") else f"{node.dtype}({text})"


def definition_lines(
    definition: Definition,
    left: str,
    sources: Sequence[str],
    names: Sequence[str] | None = None,
    extent: Callable[[Axis], str] = lambda a: str(a.extent),
) -> list[str]:
    """`left[i<4] = body`, then its `where` lines.

    sources: the label of what each slot reads. names: of the axes by ident, where these are usable. extent: the text of
    the extent of an axis.
    """
    axes = names or default_names(definition, set(sources))
    if not has_axes_in_order(definition):
        axes = axes[: len(definition.shape)]
    met, _ = first_met(definition.body)
    in_order = [s.position for s in met] == list(range(len(definition.slots))) and len(set(sources)) == len(sources)
    writer = _Writer(definition.body, axes, sources if in_order else (), extent)
    indices = ", ".join(map(writer.bound, definition.axes))
    reads = "" if in_order else f" reads {', '.join(sources)}"
    first, *others = writer.lines()
    return [f"{left}{f'[{indices}]' if indices else ''} = {first}{reads}", *others]


class _Writer:
    """Writes with a stack of its own, so that no depth is too deep."""

    def __init__(self, body: Expr, axes: Sequence[str], sources: Sequence[str], extent: Callable[[Axis], str]):
        self.body, self.axes, self.sources, self.extent = body, axes, sources, extent
        self.shared = _shared(body)

    def lines(self) -> list[str]:
        return [self.text(self.body), *(f"    where {name} = {self.text(e)}" for e, name in self.shared.items())]

    def text(self, root: Expr) -> str:
        parts: list[str] = []
        stack: list[str | tuple[Expr, int]] = list(reversed(self.pieces(root, 0)))
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                parts.append(item)
            elif item[0] in self.shared:
                parts.append(self.shared[item[0]])
            else:
                stack.extend(reversed(self.pieces(*item)))
        return "".join(parts)

    def axis(self, a: Axis) -> str:
        if a.ident < 0:
            return a.name
        return self.axes[a.ident] if a.ident < len(self.axes) else f"#{a.ident}"

    def bound(self, a: Axis) -> str:
        return f"{self.axis(a)}<{self.extent(a)}"

    def over(self, e: Binder) -> str:
        return f"[{', '.join(map(self.bound, e.axes))}]"

    def pieces(self, e: Expr, outer: int) -> list[str | tuple[Expr, int]]:
        """The text of `e` where operators bind `outer` tightly: strings, and children with how tightly they stand."""
        match e:
            case Const():
                return [literal(e)]
            case Axis():
                return [self.axis(e)]
            case Read():
                assert isinstance(e.source, Slot)
                source = self.sources[e.slot] if self.sources else f"${e.slot}"
                return [source, "[", *_listed(e.indices), "]"] if e.indices else [source]
            case Select():
                return ["select(", *_listed(e.children), ")"]
            case Cast():
                return ["cast(", (e.arg, 0), f", {e.dtype})"]
            case Reduce():
                return [f"{e.op}{self.over(e)}(", (e.body, 0), ")"]
            case Scatter():
                return [f"scatter{self.over(e) if e.axes else ''}(", (e.body, 0), ", at=[", *_listed(e.targets), "])"]
            case Apply():
                f = FUNCTIONS[e.fn]
                if not f.symbol:
                    return [f"{f.name}(", *_listed(e.args), ")"]
                inner = _prefix(e) if f.arity == 1 else _infix(e)
                return ["(", *inner, ")"] if f.precedence < outer else inner
        raise TypeError(type(e).__name__)


def _listed(items: Sequence[Expr]) -> list[str | tuple[Expr, int]]:
    return [part for n, e in enumerate(items) for part in ((", ", (e, 0)) if n else ((e, 0),))]


def _prefix(e: Apply) -> list[str | tuple[Expr, int]]:
    """`-(1.0)` is the negative of a constant, `-1.0` a constant."""
    f, (arg,) = FUNCTIONS[e.fn], e.args
    if e.fn == "neg" and isinstance(arg, Const) and not literal(arg).startswith("-"):
        return [f"{f.symbol}({literal(arg)})"]
    return [f.symbol, (arg, f.precedence)]


def _infix(e: Apply) -> list[str | tuple[Expr, int]]:
    f, (a, b) = FUNCTIONS[e.fn], e.args
    if e.fn == "mul" and isinstance(a, Const) and literal(a).lstrip("-").isdigit():
        return [f"{literal(a)}*", (b, f.precedence + 1)]
    return [(a, f.precedence + (f.typing == "compare")), f" {f.symbol} ", (b, f.precedence + 1)]


def _shared(body: Expr) -> dict[Expr, str]:
    """Names of the long expressions that are used more than once, the outer ones first."""
    nodes = list(postorder(body))
    uses: dict[Expr, int] = {}
    for e in nodes:
        for c in e.children:
            uses[c] = uses.get(c, 0) + 1
    length: dict[Expr, int] = {}
    shared: list[Expr] = []
    for e in nodes:
        length[e] = 1 + sum(length[c] for c in e.children)
        if uses.get(e, 0) > 1 and length[e] > _LONG:
            length[e] = 1
            shared.append(e)
    return {e: f"{_SHARED}{n}" for n, e in enumerate(reversed(shared))}
