"""The substitutions that TASO's authors released, and which of them follow from rules that were generated here.

    python -m tests.superopt.released graph_subst.pb [FILE]

`graph_subst.pb` is at https://github.com/jiazhihao/TASO and does not come along; FILE: rules in place of those that do.
A substitution follows where, for each of its results, up to three steps of rules lead from both sides to one tree.
What merges two convolutions by channels and kernels is wrong unless the new one has two groups and shapes are equal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from neoflow.superopt import generated, rules_in, standard_alphabet
from neoflow.superopt.implied import Known, Tree, tree
from neoflow.superopt.sites import swaps

CONV, RELU, CONCAT, SPLIT, ADD, MUL, MATMUL = 3, 8, 12, 13, 16, 17, 18
"""Numbers of operators in TASO's file, of those that are in it."""
ACTIVATION, RANK, AXIS = 9, 10, 11
"""Numbers of parameters."""
PLAIN = {ADD: {2: "add:2", 4: "add4:4"}, MUL: {2: "mul:2", 4: "mul4:4"}, RELU: {2: "relu:2", 4: "relu4:4"}}
JOINED = {(2, 0): "rows:2", (2, 1): "columns:2", (4, 0): "batches:4", (4, 1): "channels:4"}
PARTS = {
    (2, 0): ("first:2", "last:2"),
    (2, 1): ("left:2", "right:2"),
    (4, 1): ("first_channels:4", "last_channels:4"),
}
NEAR = ((1, 60), (2, 500), (3, 6000))
"""Steps from either side, and how many trees are kept."""

Place = tuple[int, int]
"""An operator by number, or a variable below 0, and which of its results."""


@dataclass(frozen=True)
class Operator:
    kind: int
    inputs: tuple[Place, ...]
    parameters: Mapping[int, int]


@dataclass(frozen=True)
class Released:
    """results: of the source and of the target, which are equal."""

    source: tuple[Operator, ...]
    target: tuple[Operator, ...]
    results: tuple[tuple[Place, Place], ...]


class Foreign(Exception):
    """An operator that no graph here is generated of."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Of a message in the format of protocol buffers: numbers, and lengths with what is in them."""
    at = 0

    def number() -> int:
        nonlocal at
        total = shift = 0
        while True:
            byte = message[at]
            at += 1
            total |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return total - (1 << 64) if total >= 1 << 63 else total

    while at < len(message):
        key = number()
        value: int | bytes = number()
        if key & 7 == 2:
            assert isinstance(value, int)
            value, at = message[at : at + value], at + value
        yield key >> 3, value


def read(message: bytes) -> list[Released]:
    """The substitutions of a file."""

    def numbers(part: int | bytes) -> tuple[int, ...]:
        assert isinstance(part, bytes)
        return tuple(v for _, v in fields(part) if isinstance(v, int))

    def operator(part: int | bytes) -> Operator:
        assert isinstance(part, bytes)
        inside = list(fields(part))
        places = [numbers(v) for f, v in inside if f == 2]
        kind = next(v for f, v in inside if f == 1)
        assert isinstance(kind, int)
        return Operator(kind, tuple((a, b) for a, b in places), dict(numbers(v) for f, v in inside if f == 3))

    found = []
    for _, rule in fields(message):
        assert isinstance(rule, bytes)
        inside = list(fields(rule))
        sides = [tuple(operator(v) for f, v in inside if f == side) for side in (1, 2)]
        mapped = [numbers(v) for f, v in inside if f == 3]
        found.append(Released(*sides, tuple(((a, c), (b, d)) for a, b, c, d in mapped)))
    return found


def ranks(operators: tuple[Operator, ...], known: dict[Place, int]) -> dict[Place, int]:
    """Of all places, as far as operators say so; a variable has one place."""
    is_new = True
    while is_new:
        is_new = False
        for n, o in enumerate(operators):
            at = [p if p[0] >= 0 else (p[0], 0) for p in o.inputs] + [(n, k) for k in range(1 + (o.kind == SPLIT))]
            rank = {MATMUL: 2, CONV: 4, CONCAT: o.parameters.get(RANK)}.get(o.kind)
            rank = rank or next((known[p] for p in at if p in known), None)
            new = {p: rank for p in at if rank is not None and p not in known}
            is_new |= bool(new)
            known |= new
    return known


def is_of_groups(operators: tuple[Operator, ...], o: Operator) -> bool:
    """Whether a convolution is of images beside each other by channels and kernels one after the other: as many
    channels of a kernel are then half of the image's, which are two groups to TASO."""
    joined = [operators[n] if n >= 0 else None for n, _ in o.inputs]
    return [j.parameters.get(AXIS) if j is not None and j.kind == CONCAT else None for j in joined] == [1, 0]


def tree_of(
    operators: tuple[Operator, ...], place: Place, known: Mapping[Place, int], otherwise: int, groups: bool = False
) -> Tree:
    """One result as a tree. otherwise: the rank where nothing says one. groups: convolutions of two groups as such.
    Raises `Foreign`."""
    n, k = place
    rank = known.get(place if n >= 0 else (n, 0), otherwise)
    if n < 0:
        return f"v{-n}:{rank}"
    o = operators[n]
    args = [tree_of(operators, p, known, otherwise, groups) for p in o.inputs]
    if o.kind == MATMUL:
        return ("matmul:2", *args)
    if o.kind == CONV:
        made = ("conv_pairs:4" if groups and is_of_groups(operators, o) else "conv:4", *args)
        return ("relu4:4", made) if o.parameters[ACTIVATION] else made
    if o.kind in PLAIN:
        return (PLAIN[o.kind][rank], *args)
    table = {CONCAT: JOINED, SPLIT: PARTS}.get(o.kind, {})
    label = table.get((rank, o.parameters.get(AXIS, -1)))
    if label is None:
        raise Foreign(f"operator {o.kind} along axis {o.parameters.get(AXIS)}")
    return (label[k] if isinstance(label, tuple) else label, *args)


def follows(known: Known, rule: Released, groups: bool = False) -> bool:
    """For each result, whatever the rank where nothing says it. groups: see `tree_of`. Raises `Foreign`."""
    shared = {p: r for ops in (rule.source, rule.target) for p, r in ranks(ops, {}).items() if p[0] < 0}
    sides = [(ops, ranks(ops, dict(shared))) for ops in (rule.source, rule.target)]
    return all(
        known.meet(*(tree_of(ops, p, found, rank, groups) for (ops, found), p in zip(sides, both, strict=True)), NEAR)
        for rank in (2, 4)
        for both in rule.results
    )


def known_of(rules) -> Known:
    """Rules as they are looked for."""
    proofs: dict = {}
    symmetric = [f for f in standard_alphabet().operators if swaps(f, proofs) is not None]
    known = Known(frozenset(f"{f.name}:{len(f.shape)}" for f in symmetric))
    for rule in rules:
        known.add(tree(rule.source), tree(rule.target))
    return known


def main() -> None:
    rules = (rules_in(Path(sys.argv[2])) if len(sys.argv) > 2 else generated()).rules
    known = known_of(rules)
    counts: dict[str, list[int]] = {}
    released = read(Path(sys.argv[1]).read_bytes())
    for n, rule in enumerate(released):
        try:
            answer = "do not"
            if follows(known, rule):
                answer = "follow"
            elif follows(known, rule, True):
                answer = "follow as convolutions of two groups of equal shapes, a guard that they lack"
        except Foreign as foreign:
            answer = str(foreign)
        counts.setdefault(answer, []).append(n)
    print(f"{len(released)} released substitutions, {len(rules)} rules")
    for answer, some in counts.items():
        print(f"{len(some)} {answer}" + ("" if answer == "follow" else f": numbers {', '.join(map(str, some))}"))


if __name__ == "__main__":
    main()
