"""Prints expressions the way a person would write them, deterministically; index notation reads them back."""

from __future__ import annotations

import keyword

from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Cast, Compute, Const, Definition, Expr, Read, Reduce, Select, Slot, Tensor

_OUTPUT_NAMES = "ijklmnpqtuvw"
_REDUCTION_NAMES = "rsxyzabcdefgh"


def default_names(definition: Definition) -> tuple[str, ...]:
    """Names for the axes of a definition, by ident: i, j, k ... for the output's, r, s ... for reductions."""

    def name(pool: str, n: int) -> str:
        return pool[n] if n < len(pool) else f"{pool[0]}{n}"

    rank = len(definition.shape)
    outputs = [name(_OUTPUT_NAMES, n) for n in range(rank)]
    last = max((a.ident for a in definition.reduction_axes), default=rank - 1)
    return tuple(outputs + [name(_REDUCTION_NAMES, n) for n in range(last + 1 - rank)])


def axis_names(tensor: Compute) -> tuple[str, ...]:
    """The user's axis names where they are distinct identifiers, else default ones."""
    given = tensor.axis_names
    wanted = len(default_names(tensor.definition))
    taken = {t.name for t in tensor.inputs}
    usable = all(n.isidentifier() and not keyword.iskeyword(n) and n not in taken for n in given)
    if len(given) == wanted and len(set(given)) == wanted and usable:
        return given
    return default_names(tensor.definition)


def print_const(node: Const) -> str:
    if isinstance(node.value, float):
        if node.value != node.value or node.value in (float("inf"), float("-inf")):
            return {"inf": "inf", "-inf": "-inf"}.get(repr(node.value), "nan")
        if node.dtype in ("float32", "float16", "bfloat16"):
            import numpy as np

            short = str(np.float32(node.value))
            return short if float(np.float32(node.value)) == float(short) or len(short) < 12 else repr(node.value)
    return repr(node.value)


def print_expr(e: Expr, names: tuple[str, ...] = (), sources: tuple[str, ...] = ()) -> str:
    """Text of an expression; `names` by axis ident and `sources` by slot position for closed ones."""

    def axis(a: Axis) -> str:
        if a.ident >= 0 and a.ident < len(names):
            return names[a.ident]
        return a.name or f"axis{abs(a.ident)}"

    def source(s: Slot | Tensor) -> str:
        if isinstance(s, Slot):
            return sources[s.position] if s.position < len(sources) else f"${s.position}"
        return s.name

    def show(node: Expr, outer: int = 0) -> str:
        match node:
            case Const():
                return print_const(node)
            case Axis():
                return axis(node)
            case Read():
                return f"{source(node.source)}[{', '.join(show(i) for i in node.indices)}]"
            case Select():
                return f"select({', '.join(show(c) for c in node.children)})"
            case Cast():
                return f"cast({show(node.arg)}, {node.dtype})"
            case Reduce():
                return f"{node.op}[{', '.join(axis(a) for a in node.axes)}]({show(node.body)})"
            case Apply(fn="mul", args=(Const(value=-1, dtype=dt.INDEX), term)):
                return show(Apply("neg", (term,)), outer)
            case Apply():
                f = FUNCTIONS[node.fn]
                if not f.symbol:
                    return f"{f.name}({', '.join(show(a) for a in node.args)})"
                if f.arity == 1:
                    text = f.symbol + show(node.args[0], f.precedence)
                else:
                    tight = f.precedence + (1 if f.typing == "compare" else 0)
                    a, b = show(node.args[0], tight), show(node.args[1], f.precedence + 1)
                    text = f"{a}{f.symbol}{b}" if node.fn == "mul" and a.isdigit() else f"{a} {f.symbol} {b}"
                return f"({text})" if f.precedence < outer else text
        raise TypeError(type(node).__name__)

    return show(e)


def print_definition(d: Definition) -> str:
    names = default_names(d)
    body = print_expr(d.body, names)
    extents = ", ".join(f"{n}<{e}" for n, e in zip(names, d.shape, strict=False))
    return f"[{extents}] = {body}"


def print_compute(t: Compute, rename: dict[int, str] | None = None) -> str:
    """`y[i, j] = sum[k](a[i, k] * b[k, j])`; `rename` gives tensors other names, by uid."""
    names = axis_names(t)
    given = rename or {}
    sources = tuple(given.get(s.uid, s.name) for s in t.inputs)
    left = f"{given.get(t.uid, t.name)}[{', '.join(names[: t.rank])}]"
    return f"{left} = {print_expr(t.definition.body, names, sources)}"


def print_tensor(t: Tensor) -> str:
    if isinstance(t, Compute):
        return f"{print_compute(t)}    # {t.dtype}{list(t.shape)}"
    return f"{t.name} = {type(t).__name__.lower()}({t.shape}, {t.dtype!r})"


def print_program(tensors: list[Tensor] | tuple[Tensor, ...]) -> str:
    """One line a tensor, in the order given; equal names are told apart by a number."""
    used: dict[str, int] = {}
    rename: dict[int, str] = {}
    lines = []
    for t in tensors:
        count = used.get(t.name, 0)
        used[t.name] = count + 1
        rename[t.uid] = t.name if count == 0 else f"{t.name}_{count}"
        if isinstance(t, Compute):
            lines.append(f"{print_compute(t, rename)}    # {t.dtype}{list(t.shape)}")
        else:
            lines.append(f"{rename[t.uid]} = {type(t).__name__.lower()}({t.shape}, {t.dtype!r})")
    return "\n".join(lines)
