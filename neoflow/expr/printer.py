"""Prints expressions the way a person would write them, deterministically; index notation reads them back."""

from __future__ import annotations

import itertools
import keyword
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partialmethod
from typing import NamedTuple

from neoflow import dtype as dt
from neoflow.expr.extents import Disagreement, Empty, infer, uses
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Scatter, Select, Slot, Source
from neoflow.expr.memo import remembered
from neoflow.expr.recurrence import Last, Looped, Run
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor, topological

_SHOWN = 1000
"""Most characters of what `str` gives of an expression: it stands in messages."""
_OUTPUT_NAMES = "ijklmnpqtuvw"
_REDUCTION_NAMES = "rsxyzabcdefgh"


def default_names(definition: Definition, taken: Set[str] = frozenset()) -> tuple[str, ...]:
    """Names for the axes of a definition, by ident: i, j, k ... for the output's, r, s ... for reductions."""

    def names(pool: str) -> Iterator[str]:
        every = itertools.chain(pool, (f"{pool[0]}{n}" for n in itertools.count(len(pool))))
        return (name for name in every if name not in taken)

    rank = len(definition.shape)
    last = max((a.ident for a in definition.reduction_axes), default=rank - 1)
    outputs, reductions = names(_OUTPUT_NAMES), names(_REDUCTION_NAMES)
    return tuple(itertools.islice(outputs, rank)) + tuple(itertools.islice(reductions, last + 1 - rank))


def axis_names(tensor: Compute) -> tuple[str, ...]:
    """The user's axis names where they are distinct identifiers, else default ones."""
    given = tensor.axis_names
    taken = {t.name for t in tensor.inputs}
    default = default_names(tensor.definition, taken)
    usable = all(n.isidentifier() and not keyword.iskeyword(n) and n not in taken for n in given)
    if len(given) == len(default) and len(set(given)) == len(given) and usable:
        return given
    return default


@remembered
def unsaid_extents(definition: Definition) -> frozenset[int]:
    """Idents of the axes whose extents do not follow from the shapes read, so that a text must say them: `i<4`."""
    axes = (*definition.axes, *definition.reduction_axes)
    found = uses(definition.body)
    said: dict[Axis, int] = {}
    while True:
        try:
            inferred = infer(axes, found, said)
            wrong = next((a for a in axes if inferred.get(a) != a.extent), None)
        except (Disagreement, Empty) as e:
            wrong = e.axis
        if wrong is None:
            return frozenset(a.ident for a in said)
        said[wrong] = wrong.extent


def print_const(node: Const) -> str:
    if isinstance(node.value, float) and not math.isfinite(node.value):
        return str(node.value)
    return repr(node.value)


class _Inner(NamedTuple):
    """An expression still to be printed, where a bare number has the type `here` and what binds below `outer` needs
    parentheses."""

    node: Expr
    here: str | None
    outer: int = 0


def print_expr(
    e: Expr,
    names: tuple[str, ...] = (),
    sources: tuple[str, ...] = (),
    literal: str | None = None,
    sized: Set[int] = frozenset(),
    most: int = 1 << 20,
) -> str:
    """Text of an expression; `names` by axis ident and `sources` by slot position for closed ones.

    literal: the type that a bare number has in this place; where it is given, a constant of another type is printed
    as `cast(1, int64)`. sized: idents of the axes printed with their extent where they are bound.
    most: characters after which it breaks off, since a DAG may be an endless tree.
    """

    def axis(a: Axis) -> str:
        if a.ident >= 0 and a.ident < len(names):
            return names[a.ident]
        return a.name or f"axis{abs(a.ident)}"

    def bound(a: Axis) -> str:
        return f"{axis(a)}<{a.extent}" if a.ident in sized else axis(a)

    def source(s: Source) -> str:
        if isinstance(s, Slot):
            return sources[s.position] if s.position < len(sources) else f"${s.position}"
        assert isinstance(s, Tensor)
        return s.name

    def operands(args: tuple[Expr, ...], folds: bool) -> list[str | None]:
        """The type that a bare number takes in each place; "" where it must say its type or would be folded."""
        if literal is None:
            return [None] * len(args)
        known = [a.dtype for a in args if not isinstance(a, Const)]
        if known:
            return [known[0]] * len(args)
        if folds:
            return ["", *(args[0].dtype for _ in args[1:])]
        weak = "float32" if any(dt.is_float(a.dtype) for a in args) else dt.INDEX
        said = [a.dtype for a in args if a.dtype not in (weak, "bool")]
        return [(said or [weak])[0] if n and said else weak for n, _ in enumerate(args)]

    def constant(node: Const, here: str | None) -> str:
        is_bare = here is None or here == node.dtype or (node.dtype == "bool" and here != "")
        return print_const(node) if is_bare else f"cast({print_const(node)}, {node.dtype})"

    def listed(inner: Iterable[_Inner]) -> list[str | _Inner]:
        """Expressions with commas between."""
        return [piece for e in inner for piece in (", ", e)][1:]

    def pieces(node: Expr, here: str | None, outer: int) -> list[str | _Inner]:
        match node:
            case Const():
                return [constant(node, here)]
            case Axis():
                return [axis(node)]
            case Read():
                indices = [_Inner(_index(i), here and dt.INDEX) for i in node.indices]
                return [source(node.source), "[", *listed(indices), "]"] if indices else [source(node.source)]
            case Select():
                then, other = operands((node.then, node.other), False)
                three = _Inner(node.cond, here and "bool"), _Inner(node.then, then), _Inner(node.other, other)
                return ["select(", *listed(three), ")"]
            case Cast():
                return ["cast(", _Inner(node.arg, here and node.dtype), f", {node.dtype})"]
            case Reduce():
                axes = ", ".join(bound(a) for a in node.axes)
                return [f"{node.op}[{axes}](", _Inner(node.body, here and "float32"), ")"]
            case Scatter():
                over = f"[{', '.join(bound(a) for a in node.axes)}]" if node.axes else ""
                targets = [_Inner(_index(t), here and dt.INDEX) for t in node.targets]
                return [f"scatter{over}(", _Inner(node.body, here and "float32"), ", at=[", *listed(targets), "])"]
            case Apply(fn="mul", args=(Const(value=-1, dtype=dt.INDEX), Expr() as term)) if not isinstance(term, Const):
                return [_Inner(Apply("neg", (term,)), here, outer)]
            case Apply():
                return applied(node, outer)
        raise TypeError(type(node).__name__)

    def applied(node: Apply, outer: int) -> list[str | _Inner]:
        f = FUNCTIONS[node.fn]
        types = operands(node.args, bool(f.symbol))
        if not f.symbol:
            args = [_Inner(a, t) for a, t in zip(node.args, types, strict=True)]
            return [f"{f.name}(", *listed(args), ")"]
        if f.arity == 1:
            text: list[str | _Inner] = [f.symbol, _Inner(node.args[0], types[0], f.precedence)]
        else:
            a, b = node.args
            is_factor = node.fn == "mul" and isinstance(a, Const) and constant(a, types[0]).isdigit()
            tight = f.precedence + (1 if f.typing == "compare" else 0)
            between = f.symbol if is_factor else f" {f.symbol} "
            text = [_Inner(a, types[0], tight), between, _Inner(b, types[1], f.precedence + 1)]
        return ["(", *text, ")"] if f.precedence < outer else text

    text: list[str] = []
    stack: list[str | _Inner] = [_Inner(e, literal)]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            text.append(piece)
            most -= len(piece)
            if most < 0:
                return "".join((*text, " ..."))
        else:
            stack.extend(reversed(pieces(*piece)))
    return "".join(text)


def _index(index: Expr) -> Expr:
    """An index as it is written: reading widens other integers by itself."""
    if isinstance(index, Cast) and index.dtype == dt.INDEX and dt.is_int(index.arg.dtype):
        return index if isinstance(index.arg, Const) else index.arg
    return index


def print_definition(d: Definition) -> str:
    names = default_names(d)
    body = print_expr(d.body, names)
    extents = ", ".join(f"{n}<{e}" for n, e in zip(names, d.shape, strict=False))
    return f"[{extents}] = {body}"


def print_compute(t: Compute, rename: dict[int, str] | None = None) -> str:
    """`y[i, j] = sum[k](a[i, k] * b[k, j])`, which index notation reads back to the same definition.

    rename: other names for tensors, by uid. An extent that the shapes do not tell is printed as `i<4`.
    """
    names = axis_names(t)
    given = rename or {}
    sources = tuple(given.get(s.uid, s.name) for s in t.inputs)
    sized = unsaid_extents(t.definition)
    axes = [f"{n}<{a.extent}" if a.ident in sized else n for n, a in zip(names, t.definition.axes, strict=False)]
    left = f"{given.get(t.uid, t.name)}[{', '.join(axes)}]" if axes else given.get(t.uid, t.name)
    return f"{left} = {print_expr(t.definition.body, names, sources, 'float32', sized)}"


def print_tensor(t: Tensor) -> str:
    if isinstance(t, Compute):
        return f"{print_compute(t)}    # {t.dtype}{list(t.shape)}"
    if isinstance(t, Looped):
        return f"{t.name} = {_led(t, {})} of {t.run.recurrence.steps} steps    # {t.dtype}{list(t.shape)}"
    return f"{t.name} = {type(t).__name__.lower()}({t.shape}, {t.dtype!r})"


def print_program(tensors: list[Tensor] | tuple[Tensor, ...]) -> str:
    """One line a tensor, in the order given; equal names are told apart by a number. What happens in the steps of a
    recurrence stands before what leads out of it, further to the right."""
    return "\n".join(_program_lines(tensors, {}, {}))


def _program_lines(tensors: Sequence[Tensor], used: dict[str, int], rename: dict[int, str]) -> list[str]:
    lines: list[str] = []
    for t in tensors:
        if isinstance(t, Looped) and t.run.uid not in rename:
            rename[t.run.uid] = f"loop {sum(isinstance(s, str) and s.startswith('loop ') for s in rename.values()) + 1}"
            kept = [s.of for s in tensors if isinstance(s, Looped) and s.run is t.run]
            lines += _loop_lines(t.run, kept, used, rename)
        count = used.get(t.name, 0)
        used[t.name] = count + 1
        rename[t.uid] = t.name if count == 0 else f"{t.name}_{count}"
        if isinstance(t, Compute):
            lines.append(f"{print_compute(t, rename)}    # {t.dtype}{list(t.shape)}")
        elif isinstance(t, Looped):
            what = f"{_led(t, rename)} of {rename[t.run.uid]}"
            lines.append(f"{rename[t.uid]} = {what}    # {t.dtype}{list(t.shape)}")
        else:
            lines.append(f"{rename[t.uid]} = {type(t).__name__.lower()}({t.shape}, {t.dtype!r})")
    return lines


def _loop_lines(run: Run, kept: Sequence[Tensor], used: dict[str, int], rename: dict[int, str]) -> list[str]:
    """A step of a run: what is carried and from where, what is sliced, the body, what goes on."""
    r = run.recurrence
    body = topological([*r.then, *kept])
    inner = _program_lines(
        [t for t in body if not isinstance(t, Placeholder) or any(t is p for p in r.placeholders)], used, rename
    )
    begins = {p: f"{p.name} = {rename.get(i.uid, i.name)}" for p, i in run.by_placeholder.items()}
    way = "from the last one, " if r.is_reversed else ""
    said = [f"{rename[run.uid]}: {r.steps} steps, {way}carrying {', '.join(begins[c] for c in r.carried) or 'nothing'}"]
    said += [f"    of each step {begins[s]}[step]" for s in r.slices] + [f"    {begins[p]}" for p in r.fixed]
    given = [rename.get(c.uid, c.name) for c in r.carried]
    goes = [f"    then {a} = {rename.get(b.uid, b.name)}" for a, b in zip(given, r.then, strict=True)]
    return [*said, *(f"    {line}" for line in inner), *goes]


def _led(t: Looped, rename: Mapping[int, str]) -> str:
    name = rename.get(t.of.uid, t.of.name)
    return f"last({name})" if isinstance(t, Last) else f"every({name})"


def _install_text() -> None:
    """What `str` gives, and `repr` but of tensors, which have a short one."""
    for cls, text in (
        (Expr, partialmethod(print_expr, most=_SHOWN)),
        (Definition, print_definition),
        (Tensor, print_tensor),
    ):
        for method in ("__str__",) if cls is Tensor else ("__str__", "__repr__"):
            setattr(cls, method, text)


_install_text()
