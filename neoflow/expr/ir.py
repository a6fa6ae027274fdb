"""The language: index expressions over tensors. A graph *is* its tensors; there is no second operator IR.

    tensor     t ::= Placeholder(shape, dtype, name)
                   | Parameter(shape, dtype, name, init)
                   | Constant(value, name)                its elements are known when the program is written
                   | Compute(definition, inputs)          t[i0, ..., in] = body, reads of slot s see inputs[s]
    definition d ::= Definition(shape, body)              closed: axes 0..rank-1 are the output's, tensors are slots
    expression e ::= Const(value, dtype)                  3, 0.5, True
                   | Axis(ident, extent, name)            an integer in [0, extent)
                   | Read(source, indices)                source[e, ...], source a Tensor (open) or a Slot (closed)
                   | Apply(fn, args)                      fn from `functions.FUNCTIONS`: + * exp < & ...
                   | Select(cond, then, other)            evaluates only the branch it chooses
                   | Cast(dtype, arg)
                   | Reduce(op, axes, body)               sum prod max min argmax argmin over `axes`
                   | Scatter(axes, targets, body)         only as a whole body: t[targets] += body over `axes`, from 0
    slot       s ::= Slot(position, shape, dtype)

Expressions are frozen and interned: `is` is equality. What a user writes is *open*: it reads tensors, its axes
are unique and it knows the line it was written on (`where`, part of its identity). A `Definition` is *closed*: axes
are numbered in the order of binding, tensors are slots, lines are dropped. Equal definitions are the same object
whatever the names, so whatever is derived from one (bounds, adjoints, kernels) is derived once.

What is made of Python numbers, axes and written arrays alone is *weak*: it takes the dtype of what it meets (`weak`).

Expressions and slots are here, definitions and tensors in `tensor`. `dsl` gives both their operators, `printer` their
text.
"""

from __future__ import annotations

import itertools
import math
import struct
import weakref
from collections.abc import Callable, Iterator, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any, cast

from neoflow import dtype as dt
from neoflow.caller import caller
from neoflow.errors import ExpressionError, Location
from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS

uids = itertools.count()
"""The next is the `uid` of the next expression or tensor."""


class _Entry(weakref.ref):
    """An interned object, as long as something else needs it, and what it is found by."""

    __slots__ = ("key",)
    key: tuple


_interned: dict[tuple, _Entry] = {}
"""A `WeakValueDictionary` takes twice the time for an object."""


def _forget(entry: _Entry, entries: dict[tuple, _Entry] = _interned) -> None:
    if entries.get(entry.key) is entry:
        del entries[entry.key]


class Node:
    """A frozen, interned object: two with the same fields are the same object."""

    __slots__ = ("__weakref__", "memo", "uid", "where")
    uid: int
    where: Location | None
    memo: dict[Any, Any]
    """what `memo.remembered` functions found out about it"""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __hash__(self) -> int:
        return self.uid

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} cannot be pickled: save what it computes instead")


def interned(key: tuple) -> Any:
    """The object that `key` identifies, which begins with its class; None when it does not exist."""
    entry = _interned.get(key)
    return None if entry is None else entry()


def intern(key: tuple, **fields: Any) -> Any:
    """The one object that `key` identifies, which begins with its class, made from `fields` when it does not exist."""
    node = interned(key)
    if node is None:
        node = _new(key[0])
        for name, value in fields.items():
            _put(node, name, value)
        _put(node, "uid", next(uids))
        entry = _interned[key] = _Entry(node, _forget)
        entry.key = key
    return node


_new, _put = object.__new__, object.__setattr__


def _operator(self: Any, other: Any) -> Any: ...


if TYPE_CHECKING:

    class Operators(Node):
        """What `dsl` installs on expressions and tensors, declared for type checkers."""

        __slots__ = ()

        def __neg__(self) -> Any: ...

        __invert__: Callable[[], Any]
        __abs__: Callable[[], Any]
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operator
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _operator
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _operator
        __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __matmul__ = __rmatmul__ = _operator
        __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _operator

else:
    Operators = Node


class Expr(Operators):
    """A scalar expression. `dtype` is its element type, `free` the axes it uses and does not bind, `weak` whether it
    takes the dtype of what it meets."""

    __slots__ = ("dtype", "free", "weak")
    dtype: str
    free: frozenset[Axis]
    weak: bool

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children."""
        return self

    def __bool__(self) -> bool:
        raise ExpressionError(
            f"the truth of `{self}` is not known while the program is written; use nf.select(cond, a, b), and & | ~ "
            "between conditions",
            caller(),
        )


_NONE: frozenset[Axis] = frozenset()


def _union(args: tuple[Expr, ...]) -> frozenset[Axis]:
    free: frozenset[Axis] = _NONE
    for a in args:
        if a.free is not free and not a.free <= free:
            free = free | a.free if free else a.free
    return free


class Const(Expr):
    __slots__ = ("value",)
    value: int | float | bool

    def __new__(cls, value: float, dtype: str, where: Location | None = None, weak: bool = False) -> Const:
        value = bool(value) if dtype == "bool" else float(value) if dt.is_float(dtype) else int(value)
        if isinstance(value, float) and math.isnan(value):
            value = math.nan  # its sign and payload mean nothing
        key = struct.pack("<d", value) if isinstance(value, float) else value
        return intern((cls, key, dtype, where, weak), value=value, dtype=dtype, free=_NONE, weak=weak, where=where)


class Axis(Expr):
    """An iteration variable. Open ones have a unique negative `ident`; closed ones their position and no name."""

    __slots__ = ("extent", "ident", "name")
    ident: int
    extent: int
    name: str

    def __new__(cls, ident: int, extent: int, name: str = "", where: Location | None = None) -> Axis:
        fields = {"ident": ident, "extent": extent, "name": name, "dtype": dt.INDEX}
        node = intern((cls, ident, extent, name), **fields, free=None, weak=True, where=where)
        if node.free is None:
            object.__setattr__(node, "free", frozenset((node,)))
        return node


class Source(Operators):
    """What can be read: a tensor, or the slot that stands for one. `weak`: a read of it is."""

    __slots__ = ("dtype", "shape")
    shape: tuple[int, ...]
    dtype: str

    @property
    def weak(self) -> bool:
        return False


class Slot(Source):
    """The `position`-th input of a definition."""

    __slots__ = ("position",)
    position: int

    def __new__(cls, position: int, shape: tuple[int, ...], dtype: str) -> Slot:
        return intern((cls, position, shape, dtype), position=position, shape=shape, dtype=dtype, where=None)


class Read(Expr):
    __slots__ = ("indices", "source")
    source: Source
    indices: tuple[Expr, ...]

    def __new__(cls, source: Source, indices: tuple[Expr, ...], where: Location | None = None) -> Read:
        key = (cls, source, indices, where)
        known = interned(key)
        if known is not None:
            return cast("Read", known)
        fields = {"source": source, "indices": indices, "dtype": source.dtype, "weak": source.weak}
        return intern(key, **fields, free=_union(indices), where=where)

    @property
    def slot(self) -> int:
        """Position of the slot that a closed read reads."""
        assert isinstance(self.source, Slot)
        return self.source.position

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.indices

    def rebuild(self, children: tuple[Expr, ...]) -> Read:
        return Read(self.source, children, self.where)


class Apply(Expr):
    __slots__ = ("args", "fn")
    fn: str
    args: tuple[Expr, ...]

    def __new__(cls, fn: str, args: tuple[Expr, ...], where: Location | None = None) -> Apply:
        key = (cls, fn, args, where)
        known = interned(key)
        if known is not None:
            return cast("Apply", known)
        decides = FUNCTIONS[fn].typing in ("compare", "logic")
        dtype = "bool" if decides else args[0].dtype
        weak = not decides and all([a.weak for a in args])
        return intern(key, fn=fn, args=args, dtype=dtype, free=_union(args), weak=weak, where=where)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def rebuild(self, children: tuple[Expr, ...]) -> Apply:
        return Apply(self.fn, children, self.where)


class Select(Expr):
    __slots__ = ("cond", "other", "then")
    cond: Expr
    then: Expr
    other: Expr

    def __new__(cls, cond: Expr, then: Expr, other: Expr, where: Location | None = None) -> Select:
        fields = {"cond": cond, "then": then, "other": other, "dtype": then.dtype, "where": where}
        more = {"free": _union((cond, then, other)), "weak": then.weak and other.weak}
        return intern((cls, cond, then, other, where), **fields, **more)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.then, self.other)

    def rebuild(self, children: tuple[Expr, ...]) -> Select:
        cond, then, other = children
        return Select(cond, then, other, self.where)


class Cast(Expr):
    __slots__ = ("arg",)
    arg: Expr

    def __new__(cls, dtype: str, arg: Expr, where: Location | None = None, weak: bool = False) -> Cast:
        fields = {"dtype": dtype, "arg": arg, "free": arg.free, "weak": weak, "where": where}
        return intern((cls, dtype, arg, where, weak), **fields)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def rebuild(self, children: tuple[Expr, ...]) -> Cast:
        return Cast(self.dtype, children[0], self.where, self.weak)


class Binder(Expr):
    """A node that binds `axes` in `body`."""

    __slots__ = ("axes", "body")
    axes: tuple[Axis, ...]
    body: Expr

    def rebind(self, axes: tuple[Axis, ...], children: tuple[Expr, ...]) -> Binder:
        """The same node over other axes and children."""
        raise NotImplementedError


class Reduce(Binder):
    __slots__ = ("op",)
    op: str

    def __new__(cls, op: str, axes: tuple[Axis, ...], body: Expr, where: Location | None = None) -> Reduce:
        dtype = dt.INDEX if op in ARG_REDUCERS else body.dtype
        fields = {"op": op, "axes": axes, "body": body, "dtype": dtype, "where": where}
        more = {"free": body.free.difference(axes), "weak": body.weak and op not in ARG_REDUCERS}
        return intern((cls, op, axes, body, where), **fields, **more)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.body,)

    def rebuild(self, children: tuple[Expr, ...]) -> Reduce:
        return self.rebind(self.axes, children)

    def rebind(self, axes: tuple[Axis, ...], children: tuple[Expr, ...]) -> Reduce:
        return Reduce(self.op, axes, children[0], self.where)


class Scatter(Binder):
    """The sum of `body` over the points of `axes` whose `targets` are the element's own indices; targets are data.

    Means  sum[axes](select(targets == own indices, body, 0)), done by adding each point where it belongs. A target
    outside the tensor is a fault at run time. It is the adjoint of a data-dependent read, and only a whole body.
    """

    __slots__ = ("targets",)
    targets: tuple[Expr, ...]

    def __new__(
        cls, axes: tuple[Axis, ...], targets: tuple[Expr, ...], body: Expr, where: Location | None = None
    ) -> Scatter:
        fields = {"axes": axes, "targets": targets, "body": body, "dtype": body.dtype, "where": where}
        more = {"free": _union((*targets, body)).difference(axes), "weak": False}
        return intern((cls, axes, targets, body, where), **fields, **more)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.targets, self.body)

    def rebuild(self, children: tuple[Expr, ...]) -> Scatter:
        return self.rebind(self.axes, children)

    def rebind(self, axes: tuple[Axis, ...], children: tuple[Expr, ...]) -> Scatter:
        return Scatter(axes, children[:-1], children[-1], self.where)


def same(a: tuple[Node, ...], b: tuple[Node, ...]) -> bool:
    """Whether two tuples hold the same objects (`==` on expressions and tensors builds a comparison)."""
    return len(a) == len(b) and all(map(is_, a, b))


def postorder(root: Expr) -> Iterator[Expr]:
    """Every distinct node under `root`, children first."""
    seen: set[int] = set()
    open_nodes: list[Expr] = []
    stack: list[Expr | None] = [root]
    """None: the last of `open_nodes` has all its children behind it"""
    while stack:
        node = stack.pop()
        if node is None:
            yield open_nodes.pop()
        elif node.uid not in seen:
            seen.add(node.uid)
            children = node.children
            if children:
                open_nodes.append(node)
                stack.append(None)
                stack.extend(children[::-1])
            else:
                yield node


def rewrite(root: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild `root` bottom-up: each node over its rewritten children, then replaced by `rule` of it unless None."""
    new: dict[int, Expr] = {}
    for node in postorder(root):
        before = node.children
        rebuilt = node
        if before:
            children = tuple([new[c.uid] for c in before])
            rebuilt = node if same(before, children) else node.rebuild(children)
        replaced = rule(rebuilt)
        new[node.uid] = rebuilt if replaced is None else replaced
    return new[root.uid]


def substitute(root: Expr, mapping: Mapping[Any, Expr]) -> Expr:
    """Replace nodes (axes, as a rule) by expressions; a binding of a replaced axis must map to an axis."""
    if not mapping:
        return root

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Binder) and any(a in mapping for a in node.axes):
            return node.rebind(tuple(cast(Axis, mapping.get(a, a)) for a in node.axes), node.children)
        return mapping.get(node)

    return rewrite(root, rule)
