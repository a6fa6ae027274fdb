"""The third tier: Z3 derives one side from the other by what is proved of the families of both.

Families are functions that are not looked into, of their sizes and arguments; tensors of each rank are a sort, and
`extent` says the shape of a tensor. An axiom is a proved property, for all sizes at which its source has a meaning and
all tensors of its shapes. So what is too large to be inlined is still proved where it follows step by step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from neoflow.superopt import places
from neoflow.superopt.body import Family
from neoflow.superopt.forms import Form, Quotient, name
from neoflow.superopt.places import Places, Unknown
from neoflow.superopt.properties import applied, is_pointwise, is_reindexing, properties
from neoflow.superopt.prove import Proof, Statement, prove
from neoflow.superopt.term import Application, Term, Variable, applications, variables
from neoflow.verdict import Verdict

Shapes = Mapping[str, tuple[Form, ...]]
"""Of tensors by name."""
MILLISECONDS = 5000
"""What Z3 may take for one statement."""
MOST_FAMILIES = 6
"""In one statement, whose properties are asked for."""


def derive(statement: Statement, milliseconds: int = MILLISECONDS) -> Verdict:
    """Whether a statement follows from the properties of its families. Not knowing is a refusal."""
    try:
        import z3
    except ImportError:
        return Verdict(False, "z3-solver, which looks for a derivation, is not installed")
    families = {a.family.key: a.family for t in (statement.source, statement.target) for a in applications(t)}
    if len(families) > MOST_FAMILIES:
        return Verdict(False, f"more than {MOST_FAMILIES} operators are too many for a derivation")
    encoder = _Encoder(z3)
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    try:
        for axiom in axioms(list(families.values())):
            solver.add(*encoder.axiom(axiom))
        solver.add(*encoder.goal(statement))
    except Unknown as unknown:
        return Verdict(False, f"not known: {unknown}")
    if solver.check() == z3.unsat:
        return Verdict(True, "it follows from the properties of its operators")
    return Verdict(False, f"no derivation was found within {milliseconds} ms")


def axioms(families: list[Family]) -> Iterator[Statement]:
    """What is proved of families, alone and two by two."""
    for f in families:
        yield from _alone(f)
    for moving in families:
        for f in families:
            found = _exchanged(f, moving)
            if found is not None:
                yield found


@lru_cache(maxsize=128)
def _alone(f: Family) -> tuple[Statement, ...]:
    """What is proved of one family; statements of many are about the same few."""
    return tuple(s for p in properties(f) for s in p.statements)


@lru_cache(maxsize=1024)
def _exchanged(f: Family, moving: Family) -> Statement | None:
    found = exchange(f, moving)
    return found if found is not None and isinstance(prove(found), Proof) else None


def exchange(f: Family, moving: Family) -> Statement | None:
    """A pointwise family and one that moves elements:  moving(f(x, y)) = f(moving(x), moving(y))."""
    fits = is_pointwise(f) and is_reindexing(moving) and len(moving.slots) == 1 and all(f.slots)
    if not fits or len(moving.slots[0]) != len(f.shape) or len(moving.shape) != len(f.shape):
        return None
    args = [Variable(f"x{n}", moving.slots[0]) for n in range(len(f.slots))]
    inner, outer = _sized(f, moving.slots[0]), _sized(f, moving.shape)
    if inner is None or outer is None:
        return None
    source = applied(moving, [Application(f, inner, tuple(args))], {})
    return Statement(source, Application(f, outer, tuple(applied(moving, [a], {}) for a in args)))


def _sized(f: Family, shape: tuple[Form, ...]) -> tuple[tuple[str, Form], ...] | None:
    """A family whose extents are symbols of their own at a shape."""
    put = {own.alone: n for own, n in zip(f.shape, shape, strict=True) if own.alone is not None}
    return tuple((s, put[s]) for s in f.symbols) if set(f.symbols) == put.keys() else None


class _Encoder:
    """Statements as formulas. z3: the module, which is imported when it is needed.

    A function has those sizes as arguments that do not follow from the shapes of its tensors, so that terms are found
    by their form alone, without arithmetic.
    """

    def __init__(self, z3: Any):
        self.z3 = z3
        self.sorts: dict[int, Any] = {}
        self.functions: dict[str, Any] = {}

    def sort(self, rank: int) -> Any:
        if rank not in self.sorts:
            self.sorts[rank] = self.z3.DeclareSort(f"Tensor{rank}")
        return self.sorts[rank]

    def extents(self, x: Any, rank: int) -> list[Any]:
        """The shape of a tensor."""
        sort, whole = self.sort(rank), self.z3.IntSort()
        return [self.z3.Function(f"extent{d}of{rank}", sort, whole)(x) for d in range(rank)]

    def function(self, f: Family) -> Any:
        if f.key not in self.functions:
            kinds = [self.z3.IntSort()] * len(_told(f)) + [self.sort(len(s)) for s in f.slots]
            self.functions[f.key] = self.z3.Function(f"f{len(self.functions)}", *kinds, self.sort(len(f.shape)))
        return self.functions[f.key]

    def form(self, f: Form, names: Mapping[str, Any]) -> Any:
        total: Any = None
        for atom, k in f.terms:
            one = self.form(atom.form, names) / atom.divisor if isinstance(atom, Quotient) else names[atom]
            one = one if k == 1 else k * one
            total = one if total is None else total + one
        constant = self.z3.IntVal(f.constant)
        return constant if total is None else total + constant if f.constant else total

    def term(self, t: Term, names: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
        if isinstance(t, Variable):
            return tensors[t.name]
        sizes = [self.form(t.put[s], names) for s in _told(t.family)]
        return self.function(t.family)(*sizes, *(self.term(a, names, tensors) for a in t.args))

    def tensors(self, shapes: Shapes, mark: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors, and the symbols that are an extent of one of them."""
        found, names = {}, dict[str, Any]()
        for label, shape in shapes.items():
            x = found[label] = self.z3.Const(label + mark, self.sort(len(shape)))
            for f, extent in zip(shape, self.extents(x, len(shape)), strict=True):
                if f.alone is not None:
                    names.setdefault(f.alone, extent)
        return found, names

    def shapes(self, shapes: Shapes, found: Mapping[str, Any], names: dict[str, Any]) -> list[Any]:
        """That tensors have their shapes."""
        return [
            extent == self.form(f, names)
            for label, shape in shapes.items()
            for f, extent in zip(shape, self.extents(found[label], len(shape)), strict=True)
            if f.alone is None or not extent.eq(names[f.alone])
        ]

    def axiom(self, s: Statement) -> list[Any]:
        shapes = {v.name: v.shape for v in variables(s.source).values()}
        found, names = self.tensors(shapes, "")
        own = {n: self.z3.Int(n) for n in s.symbols if n not in names}
        names |= own
        assumed = [self.where(s.assumed(), names), *self.shapes(shapes, found, names)]
        a, b = (self.term(t, names, found) for t in (s.source, s.target))
        bound = [*own.values(), *found.values()]
        patterns = [side for t, side in ((s.source, a), (s.target, b)) if _binds(t, shapes.keys(), own.keys())]
        implied = self.z3.Implies(self.z3.And(*assumed), a == b)
        return [self.z3.ForAll(bound, implied, patterns=patterns) if bound else implied, *self.shaped(s)]

    def shaped(self, s: Statement) -> list[Any]:
        """The shapes of what the families of a statement give."""
        formulas = []
        for f in {a.family.key: a.family for t in (s.source, s.target) for a in applications(t)}.values():
            shapes = {f"x{n}": slot for n, slot in enumerate(f.slots)}
            found, names = self.tensors(shapes, "")
            own = {n: self.z3.Int(n) for n in f.symbols if n not in names}
            names |= own
            value = self.function(f)(*(own[n] for n in _told(f)), *found.values())
            equal = [e == self.form(n, names) for n, e in zip(f.shape, self.extents(value, len(f.shape)), strict=True)]
            bound = [*own.values(), *found.values()]
            formulas += [self.z3.ForAll(bound, e, patterns=[value]) for e in equal] if bound else equal
        return formulas

    def goal(self, s: Statement) -> list[Any]:
        """What no values meet where the statement is true."""
        shapes = {v.name: v.shape for v in variables(s.source).values()}
        found, names = self.tensors(shapes, "0")
        names |= {n: self.z3.Int(f"{n}0") for n in s.symbols if n not in names}
        a, b = (self.term(t, names, found) for t in (s.source, s.target))
        return [self.where(s.assumed(), names), *self.shapes(shapes, found, names), *self.shaped(s), a != b]

    def where(self, known: Places, names: Mapping[str, Any]) -> Any:
        """Conditions on symbols as formulas."""
        parts = []
        for part in places.parts_of(known, [name(n) for n in names]):
            forms = [(self.form(f, names), is_equal) for f, is_equal in part]
            parts.append(self.z3.And(*(f == 0 if is_equal else f >= 0 for f, is_equal in forms)))
        return self.z3.Or(*parts)


def _told(f: Family) -> list[str]:
    """The symbols that do not follow from the shapes of arguments."""
    alone = {n.alone for s in f.slots for n in s}
    return [s for s in f.symbols if s not in alone]


def _binds(t: Term, tensors: Collection[str], own: Collection[str]) -> bool:
    """Whether a term that is found says what every tensor and symbol is."""
    if isinstance(t, Variable):
        return False
    sizes = {a.put[s].alone for a in applications(t) for s in _told(a.family)}
    return variables(t).keys() >= set(tensors) and sizes >= set(own) and None not in sizes
