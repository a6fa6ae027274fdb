"""`Rule`: a statement with its name and its proof, as text and back; `Rules`: a file of them.

    neoflow rules 1
    operator matmul(a[M, K], b[K, N]) [i<M, j<N] = sum[k<K](a[i, k] * b[k, j])
    operator concat(a[A, N], b[B, N]) [i<A + B, j<N] = select(i < A, a[i, j], b[i - A, j])

    rule rows_beside
    variables x[A, K], y[B, K], w[K, N]
    source matmul(concat(x, y), w)
    target concat(matmul(x, w), matmul(y, w))
    guards "A = B"
    proof same, exact

The operators are part of the text, so that a rule needs nothing that is registered anywhere. Guards are in the words of
the integer set library; without the line there are none. What the proof says is proved again on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from neoflow.errors import GraphError
from neoflow.superopt import places
from neoflow.superopt.body import Family, shaped
from neoflow.superopt.prove import Proof, Statement
from neoflow.superopt.term import Term, Variable, applications, variables
from neoflow.text import header, quote

KIND = "rules"


@dataclass(frozen=True)
class Rule:
    """That `source` may stand for `target` and back. proof: what proved it, None while nothing has."""

    name: str
    statement: Statement
    proof: Proof | None = None

    @property
    def source(self) -> Term:
        return self.statement.source

    @property
    def target(self) -> Term:
        return self.statement.target

    @property
    def guards(self) -> str:
        return self.statement.guards

    @property
    def is_exact(self) -> bool:
        """Whether bits are kept: every element is made by the same operations in the same order."""
        return self.proof is not None and self.proof.is_exact

    def reversed(self) -> Rule | None:
        """The rule from right to left; None where its target has not all of its variables.

        Its guards say as well where what was the source has a meaning.
        """
        if variables(self.source).keys() - variables(self.target).keys():
            return None
        swapped = Statement(self.target, self.source)
        guards = places.conditions(self.statement.assumed(), swapped.sizes())
        return replace(self, name=f"{self.name}_back", statement=replace(swapped, guards=guards))

    @property
    def families(self) -> dict[str, Family]:
        """The operators that it speaks of, by name."""
        both = (self.source, self.target)
        return {a.family.name: a.family for t in both for a in applications(t)}

    @property
    def size(self) -> int:
        """The operators of the larger side, each as often as it is read."""
        return max(_size(self.source), _size(self.target))

    def __str__(self) -> str:
        known = {**variables(self.source), **variables(self.target)}
        shapes = ", ".join(shaped(v.name, v.shape) for v in known.values())
        lines = [f"rule {self.name}", f"variables {shapes}" if shapes else "variables"]
        lines += [f"source {self.source}", f"target {self.target}"]
        lines += [f"guards {quote(self.guards)}"] if self.guards else []
        lines += [f"proof {self.proof}"] if self.proof is not None else []
        return "\n".join(lines)


def _size(t: Term) -> int:
    return 0 if isinstance(t, Variable) or not t.args else 1 + sum(map(_size, t.args))


@dataclass(frozen=True)
class Rules:
    """Rules in order, and the operators of their file."""

    operators: tuple[Family, ...]
    rules: tuple[Rule, ...]

    @cached_property
    def by_name(self) -> dict[str, Rule]:
        return {r.name: r for r in self.rules}

    def to_text(self) -> str:
        """The text that `read_rules` reads."""
        operators = "\n".join(f"operator {f}" for f in self.operators)
        return "\n\n".join([f"{header(KIND)}\n{operators}".rstrip(), *map(str, self.rules)]) + "\n"


def rules_of(rules: Iterable[Rule]) -> Rules:
    """Rules as a file, with the operators they speak of; those of one name must be one, or `GraphError`."""
    kept = tuple(rules)
    found: dict[str, Family] = {}
    for rule in kept:
        for label, family in rule.families.items():
            if found.setdefault(label, family).key != family.key:
                raise GraphError(f"two operators are called {label}")
    return Rules(tuple(found.values()), kept)
