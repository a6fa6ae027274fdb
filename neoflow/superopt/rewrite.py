"""`Substitution`: a proved rule as a rewrite of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from neoflow.errors import GraphError, NeoflowError
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.memo import memo_of
from neoflow.expr.recipe import stand_ins
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import Derivation, Editor, Graph, Match, Rewrite, Step
from neoflow.graph.rewrite import Edit, find
from neoflow.superopt import places
from neoflow.superopt.body import Family, Over, Slot, inner
from neoflow.superopt.concrete import computed, operator
from neoflow.superopt.erase import family
from neoflow.superopt.forms import Form, form, name
from neoflow.superopt.rule import Rule
from neoflow.superopt.same import positions, shared
from neoflow.superopt.term import Term, Variable, variables
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class Binding:
    """What a source matched: a tensor for each variable, a number for each symbol. computes: the applications, the
    whole first."""

    tensors: tuple[tuple[str, Tensor], ...]
    sizes: tuple[tuple[str, int], ...]
    computes: tuple[Compute, ...]


@dataclass(frozen=True)
class Substitution(Rewrite):
    """The target of a proved rule takes the place of its source.

    given: numbers for symbols that the source does not determine, as how far a kernel is enlarged.
    """

    rule: Rule
    given: tuple[tuple[str, int], ...] = ()

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        found = bound(self.rule, editor, t, dict(self.given))
        if found is not None:
            yield Match(found.computes)

    def legal(self, editor: Editor, match: Match) -> Verdict:
        if self.rule.proof is None:
            return Verdict(False, f"rule {self.rule.name} is not proved")
        found = self._bound(editor, match)
        left = [s for s in self.rule.statement.symbols if s not in dict(found.sizes)]
        if left:
            return Verdict(False, f"nothing says how large {', '.join(left)} is")
        at = places.all_of(places.zero(name(s) - n) for s, n in found.sizes)
        said = ", ".join(f"{s} = {n}" for s, n in found.sizes)
        if not at.is_subset(self.rule.statement.assumed()):
            return Verdict(False, f"{said} do not meet the guards `{self.rule.guards}`")
        return Verdict(True, f"proved by {self.rule.proof}{f', at {said}' if said else ''}")

    def apply(self, editor: Editor, match: Match) -> Edit:
        found, t = self._bound(editor, match), match.tensors[0]
        return {t: computed(self.rule.target, dict(found.sizes), dict(found.tensors), t.dtype, t.name)}

    def _bound(self, editor: Editor, match: Match) -> Binding:
        found = bound(self.rule, editor, match.tensors[0], dict(self.given))
        assert found is not None
        return found

    @property
    def drawing(self) -> str:
        return f"{self.rule.source}    ->    {self.rule.target}"


def substitution(rule: Rule, given: Mapping[str, int] | None = None) -> Substitution:
    """A rule as a rewrite; given: numbers for symbols that its source does not determine."""
    return Substitution(rule.name, rule, tuple((given or {}).items()))


def rewritten(graph: Graph, rewrite: Substitution, t: Compute) -> tuple[Graph, Derivation]:
    """The graph in which a rule was applied at one of its computes, and the derivation that says so and replays.

    Raises `GraphError`, with the reason, where the rule does not match or is not legal there.
    """
    editor = Editor(graph.roots, graph.order)
    found = bound(rewrite.rule, editor, t, dict(rewrite.given))
    if found is None:
        raise GraphError(f"{rewrite} does not match {t.name}", t.where)
    match = find(editor, rewrite, tuple(map(editor.number, found.computes)))
    step = Step(rewrite, tuple(map(editor.number, match.tensors)), t.name, rewrite.legal(editor, match).reason)
    editor.replace(rewrite.apply(editor, match))
    return graph.with_roots(editor.finish()), Derivation((step,), (), "one rule was applied")


def bound(rule: Rule, editor: Editor, t: Compute, given: Mapping[str, int]) -> Binding | None:
    """How the source of a rule matches at a compute, if it does."""
    matcher = _Matcher(editor)
    if not dt.is_float(t.dtype) or not matcher.fits(rule.source, t, t.dtype):
        return None
    sizes = solved(matcher.equations, given)
    if sizes is None:
        return None
    ordered = tuple((s, sizes[s]) for s in rule.statement.symbols if s in sizes)
    tensors = tuple((n, matcher.tensors[n]) for n in variables(rule.source))
    return Binding(tensors, ordered, tuple(matcher.computes) or (t,))


class _Matcher:
    """Walks a term and a graph beside each other; what is found out about symbols are equations."""

    def __init__(self, editor: Editor):
        self.editor = editor
        self.tensors: dict[str, Tensor] = {}
        self.computes: list[Compute] = []
        self.equations: list[tuple[Form, int]] = []

    def fits(self, term: Term, t: Tensor, dtype: str) -> bool:
        if t.dtype != dtype or len(term.shape) != len(t.shape):
            return False
        self.equations += zip(term.shape, t.shape, strict=True)
        if isinstance(term, Variable):
            return self.tensors.setdefault(term.name, t) is t
        if not isinstance(t, Compute):
            return False
        inputs = self.editor.inputs(t)
        for at in positions(len(term.args), len(inputs)):
            sizes = _sizes_at(term.family, at, t.definition)
            if sizes is not None:
                if t not in self.computes:
                    self.computes.append(t)
                self.equations += [(f, sizes[s]) for s, f in term.sizes]
                return all(self.fits(a, inputs[n], dtype) for a, n in zip(term.args, at, strict=True))
        return False


def _sizes_at(pattern: Family, at: tuple[int, ...], definition: Definition) -> dict[str, int] | None:
    """The sizes at which a family, of inputs at these positions, is a definition, if there are any."""
    if len(set(at)) == len(at):
        return sizes_of(pattern, definition)
    memo, key = memo_of(definition), (_sizes_at, pattern.key, at)
    if key not in memo:
        one = shared(pattern, at)
        sizes = None if one is None else sizes_of(one[0], definition)
        memo[key] = None if one is None or sizes is None else [f.value(sizes) for f in one[1].values()]
    found = memo[key]
    return None if found is None else dict(zip(pattern.symbols, found, strict=True))


def sizes_of(pattern: Family, definition: Definition) -> dict[str, int] | None:
    """The sizes at which a family is a definition, if there are any.

    Its own family says it, or else the shapes: what is equal by chance, or 1, may be another family's too, so the
    pattern is made a definition at these sizes, which must be the very same.
    """
    memo, key = memo_of(definition), (sizes_of, pattern.key)
    if key not in memo:
        memo[key] = _sizes_of(definition, pattern)
    found = memo[key]
    return None if found is None else {s: found[letter] for s, letter in pattern.letters.items()}


def _sizes_of(definition: Definition, pattern: Family) -> dict[str, int] | None:
    """By the letters of the pattern."""
    try:
        own, values = family(definition)
    except GraphError:
        return None
    if own.key == pattern.key:
        return values
    equations = _equations(definition, pattern)
    sizes = None if equations is None else solved(equations, {})
    if sizes is None or any(s not in sizes for s in pattern.symbols):
        return None
    try:
        made = operator(pattern, sizes, stand_ins(definition), definition.body.dtype)
    except NeoflowError:
        return None
    return {pattern.letters[s]: n for s, n in sizes.items()} if made.definition is definition else None


def _equations(definition: Definition, pattern: Family) -> list[tuple[Form, int]] | None:
    """What the sizes of a pattern are if it is a definition: its shapes, the extents it reduces, the offsets it reads
    from. None where ranks or reads differ."""
    numbers, forms = [*(s.shape for s in definition.slots), definition.shape], [*pattern.slots, pattern.shape]
    bound = [f for b in inner(pattern.body) if isinstance(b, Over) for _, f in b.axes]
    reads = list(dict.fromkeys(b for b in inner(pattern.body) if isinstance(b, Slot)))
    same_reads = sorted(b.position for b in reads) == sorted(r.slot for r in definition.reads)
    if list(map(len, numbers)) != list(map(len, forms)) or len(bound) != len(definition.reduction_axes):
        return None
    found = [(f, n) for fs, ns in zip(forms, numbers, strict=True) for f, n in zip(fs, ns, strict=True)]
    found += zip(bound, (a.extent for a in definition.reduction_axes), strict=True)
    if same_reads and len({b.position for b in reads}) == len(reads):
        by_slot = {r.slot: r for r in definition.reads}
        for b in reads:
            for f, index in zip(b.indices, by_slot[b.position].indices, strict=True):
                own = Form(tuple((a, k) for a, k in f.terms if a in pattern.letters), f.constant)
                if all(isinstance(a, str) for a, _ in f.terms):
                    found.append((own, affine.linear(index)[1]))
    return found


def solved(equations: Sequence[tuple[Form, int]], given: Mapping[str, int]) -> dict[str, int] | None:
    """Numbers of the names that equations determine one after the other; None where they contradict each other."""
    known, left = dict(given), list(equations)
    while True:
        rest = []
        for f, n in left:
            now = f.put({s: form(known[s]) for s in f.names if s in known})
            names = list(dict.fromkeys(now.names))
            if not names:
                if now.constant != n:
                    return None
            elif len(names) == 1 and len(now.terms) == 1 and isinstance(now.terms[0][0], str):
                value, remainder = divmod(n - now.constant, now.terms[0][1])
                if remainder or value < 0:
                    return None
                known[names[0]] = value
            else:
                rest.append((f, n))
        if len(rest) == len(left):
            return known
        left = rest
