"""From the instructions of a statement to its definition: every node typed, every axis in scope, every read proved.

What the Python notation refuses is refused here as well, at its place in the text; nothing is simplified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from neoflow import dtype as dt
from neoflow.errors import ExpressionError
from neoflow.expr.check import check_bounds
from neoflow.expr.close import first_met
from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Binder, Cast, Const, Expr, Read, Reduce, Scatter, Select, Slot, postorder
from neoflow.expr.tensor import Definition
from neoflow.expr.text.syntax import Instruction, Statement
from neoflow.text import Scanner, Token

_DEEP, _LONG = 100, 10_000
"""Most levels and most nodes, as a tree, of an index or a condition: what proves bounds walks these as trees."""
_GUARDS = 4_000_000
"""Most nodes of conditions around the nodes of one definition, counted for each."""
_TYPES = {
    "arith": ("numbers", lambda dtype: dtype != "bool"),
    "real": ("floats", dt.is_float),
    "integer": ("integers", dt.is_int),
    "compare": ("values", lambda dtype: True),
    "logic": ("conditions (bool)", lambda dtype: dtype == "bool"),
}


@dataclass(frozen=True)
class Source:
    """Shape and dtype of what a definition can read."""

    shape: tuple[int, ...]
    dtype: str


def build_definition(
    scanner: Scanner, s: Statement, sources: Mapping[str, Source]
) -> tuple[Definition, tuple[str, ...], tuple[str, ...]]:
    """The definition of a statement, the labels of what its slots read, and the names of its axes.

    Axes and slots are numbered as they stand in the text, then again as a reader of what was built meets them.
    Raises `TextError`.
    """
    bound = [name for name in s.extents if name not in s.left]
    if any(name.startswith("#") for name in s.left):
        scanner.refuse("the axes of a tensor have names", s.start)
    is_numbered = any(name.startswith("#") for name in bound)
    if is_numbered and not all(name.startswith("#") for name in bound):
        scanner.refuse("axes that are bound all have names or all have numbers", s.start)
    numbers = {name: int(name[1:]) if is_numbered else len(s.left) + n for n, name in enumerate(bound)}
    if any(n < len(s.left) for n in numbers.values()):
        scanner.refuse(f"numbers below {len(s.left)} are those of the tensor's own axes", s.start)
    reads = s.labels
    for label in reads:
        if label not in sources:
            scanner.refuse(f"`{label}` is no tensor above", s.start)
    while True:
        builder = _Builder(scanner, s, numbers, reads, sources)
        body = builder.body()
        slots, axes = first_met(body)
        order = [a.ident for a in axes]
        met = reads if s.reads is not None else tuple(reads[slot.position] for slot in slots)
        if (is_numbered or order == list(range(len(s.left), len(s.left) + len(order)))) and met == reads:
            break
        if not is_numbered:
            again = {old: len(s.left) + n for n, old in enumerate(order)}
            numbers = {name: again[n] for name, n in numbers.items() if n in again}
        reads = met
    definition = Definition(tuple(s.extents[name] for name in s.left), body, builder.slots)
    names = dict(zip(range(len(s.left)), s.left, strict=True)) | {n: name for name, n in numbers.items()}
    _check(scanner, s, definition, reads, tuple(names.get(n, "") for n in range(max(names, default=-1) + 1)))
    return definition, reads, () if is_numbered else tuple(names[n] for n in range(len(names)))


class _Builder:
    """Runs the instructions of a statement, what is shared first."""

    def __init__(
        self,
        scanner: Scanner,
        s: Statement,
        numbers: Mapping[str, int],
        reads: tuple[str, ...],
        sources: Mapping[str, Source],
    ):
        self.scanner, self.statement = scanner, s
        idents = {**{name: n for n, name in enumerate(s.left)}, **numbers}
        self.axes = {name: Axis(n, s.extents[name]) for name, n in idents.items()}
        self.slots = tuple(Slot(n, sources[label].shape, sources[label].dtype) for n, label in enumerate(reads))
        named = {f"${n}": slot for n, slot in enumerate(self.slots)}
        self.sources = named if s.reads is not None else dict(zip(reads, self.slots, strict=True))
        self.shared: dict[str, Expr] = {}
        self.used: set[str] = set()

    def body(self) -> Expr:
        for name, code in reversed(self.statement.bodies.items()):
            self.shared[name] = self.run(code)
        for name in sorted(self.statement.bodies.keys() - self.used - {""}):
            self.scanner.refuse(f"`{name}` is used nowhere", self.statement.start)
        return self.shared[""]

    def run(self, code: list[Instruction]) -> Expr:
        stack: list[Expr] = []
        for i in code:
            first = len(stack) - i.count
            stack[first:] = [self.node(i, tuple(stack[first:]))]
        (root,) = stack
        return root

    def refuse(self, i: Instruction, message: str) -> NoReturn:
        self.scanner.refuse(message, i.token)

    def node(self, i: Instruction, nodes: tuple[Expr, ...]) -> Expr:
        match i.kind:
            case "const":
                return Const(i.value, i.dtype)
            case "axis":
                return self.axis(i, i.name)
            case "shared":
                if i.name not in self.shared:
                    self.refuse(i, f"`{i.name}` is not defined by a `where` below")
                self.used.add(i.name)
                return self.shared[i.name]
            case "read":
                return self.read(i, nodes)
            case "apply":
                return self.apply(i, nodes)
            case "select":
                cond, then, other = nodes
                if cond.dtype != "bool" or then.dtype != other.dtype:
                    self.refuse(i, f"select takes a bool and two of one type, not {_types(nodes)}")
                return Select(cond, then, other)
            case "cast":
                return Cast(i.dtype, nodes[0])
        axes = tuple(self.axis(i, name) for name in i.axes)
        body, *targets = nodes
        if i.kind == "scatter":
            self.indices(i, tuple(targets))
            return Scatter(axes, tuple(targets), body)
        if body.dtype == "bool" or (i.name in ARG_REDUCERS and len(axes) != 1):
            self.refuse(i, f"{i.name} takes numbers, arg reducers one axis; not {body.dtype} over {len(axes)}")
        return Reduce(i.name, axes, body)

    def axis(self, i: Instruction, name: str) -> Axis:
        if name not in self.axes:
            self.refuse(i, f"axis {name} is bound nowhere")
        return self.axes[name]

    def read(self, i: Instruction, indices: tuple[Expr, ...]) -> Read:
        slot = self.sources.get(i.name)
        if slot is None:
            self.refuse(i, f"a definition that says what it `reads` reads $0, $1 ..., others labels; not `{i.name}`")
        if len(indices) != len(slot.shape):
            self.refuse(i, f"`{i.name}` has rank {len(slot.shape)} but is read with {len(indices)} indices")
        self.indices(i, indices)
        return Read(slot, indices)

    def indices(self, i: Instruction, indices: tuple[Expr, ...]) -> None:
        if any(e.dtype != dt.INDEX for e in indices):
            self.refuse(i, f"an index is {dt.INDEX}, not {_types(indices)}")

    def apply(self, i: Instruction, args: tuple[Expr, ...]) -> Apply:
        wanted, fits = _TYPES[FUNCTIONS[i.name].typing]
        if len({a.dtype for a in args}) > 1 or not fits(args[0].dtype):
            self.refuse(i, f"{FUNCTIONS[i.name].symbol or i.name} takes {wanted} of one type, not {_types(args)}")
        return Apply(i.name, args)


def _types(nodes: tuple[Expr, ...]) -> str:
    return " and ".join(n.dtype for n in nodes)


def _check(
    scanner: Scanner, s: Statement, definition: Definition, reads: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Raise `TextError` unless scopes hold and every read provably stays inside its tensor."""
    body = definition.body
    for a in body.free.difference(definition.axes):
        scanner.refuse(f"axis number {a.ident} is used outside what binds it", s.start)
    inner: dict[Expr, int] = {}
    own = (1 << len(definition.shape)) - 1
    for e in postorder(body):
        bound = 0
        for c in e.children:
            bound |= inner[c]
        if isinstance(e, Binder):
            mine = sum(1 << a.ident for a in e.axes)
            if mine & (bound | own):
                scanner.refuse("an axis is bound twice in nested scopes", s.start)
            bound |= mine
        inner[e] = bound
        if isinstance(e, Scatter) and (e is not body or len(e.targets) != len(definition.shape)):
            scanner.refuse("a scatter is a whole tensor, with an index for each of its dimensions", s.start)
    _check_size(scanner, s.start, body)
    try:
        check_bounds(definition, names, reads, None)
    except ExpressionError as e:
        scanner.refuse(str(e), s.start)


@dataclass(frozen=True)
class _Size:
    """Levels and nodes of an expression as a tree; `shallow`: as conditions are walked, which stops at floats."""

    levels: int
    nodes: int
    shallow_levels: int
    shallow_nodes: int


def _check_size(scanner: Scanner, at: Token, body: Expr) -> None:
    """Raise `TextError` when proving the bounds of a body could take the stack or the memory of this process."""
    sizes: dict[Expr, _Size] = {}
    for e in postorder(body):
        children = [sizes[c] for c in e.children]
        stops = isinstance(e, Read) or dt.is_float(e.dtype)
        sizes[e] = _Size(
            min(_LONG, max((c.levels for c in children), default=0)) + 1,
            min(_LONG, sum(c.nodes for c in children)) + 1,
            1 if stops else min(_LONG, max((c.shallow_levels for c in children), default=0)) + 1,
            1 if stops else min(_LONG, sum(c.shallow_nodes for c in children)) + 1,
        )
        indices = e.indices if isinstance(e, Read) else e.targets if isinstance(e, Scatter) else ()
        conditions = e.children[:1] if _is_conditional(e) else ()
        if any(sizes[i].levels > _DEEP or sizes[i].nodes > _LONG for i in indices) or any(
            sizes[c].shallow_levels > _DEEP or sizes[c].shallow_nodes > _LONG for c in conditions
        ):
            scanner.refuse(f"an index or a condition has more than {_DEEP} levels or {_LONG} nodes", at)
    if _count_guards(body, {e: s.shallow_nodes for e, s in sizes.items()}) > _GUARDS:
        scanner.refuse("the reads stand under too many conditions to be proved", at)


def _is_conditional(e: Expr) -> bool:
    """Whether the first operand decides if the others are evaluated."""
    return isinstance(e, Select) or (isinstance(e, Apply) and e.fn in ("and", "or"))


def _count_guards(body: Expr, nodes: Mapping[Expr, int]) -> int:
    """What `check.guarded_reads` gathers: nodes of conditions around each node; or a number above the limit."""
    total = 0
    chains: dict[tuple[int, int], int] = {}
    """numbers of conjunctions, by that of the one around and the condition added (negative: its opposite)"""
    seen: set[tuple[Expr, int]] = set()
    stack: list[tuple[Expr, int, int]] = [(body, 0, 0)]
    while stack and total <= _GUARDS:
        e, chain, length = stack.pop()
        if (e, chain) in seen:
            continue
        seen.add((e, chain))
        total += 1 + length
        for n, child in enumerate(e.children):
            if n and _is_conditional(e):
                key = (chain, e.uid if n == 1 else -e.uid)
                stack.append((child, chains.setdefault(key, len(chains) + 1), length + nodes[e.children[0]]))
            else:
                stack.append((child, chain, length))
    return total
