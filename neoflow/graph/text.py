"""A graph as text: a line for each leaf and compute in their order, then what goes in, comes out and is updated.

    graph      ::= header { tensor } "inputs" [labels] "outputs" [labels] { "update" label "=" label }
    tensor     ::= leaf | compute | recurrence | label ":" looped
    recurrence ::= "recurrence" name [place] { tensor } "carried" [label "=" label {"," label "=" label}]
                   "slices" [labels] "fixed" [labels] "steps" number ["reversed"]
    looped     ::= "last" name "(" labels ")" number | "stacked" name "(" labels ")" "of" label

`expr.text` has the grammar of leaves and computes. The labels of a recurrence's body are its own; what is carried is
what stands after its sign in the step after; what is stacked is a label of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from neoflow.errors import GraphError
from neoflow.expr.limits import MOST_EXTENT, excess
from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor, topological
from neoflow.expr.text import (
    compute_lines,
    is_free_name,
    leaf_line,
    make_labels,
    named,
    place_text,
    read_compute,
    read_leaf,
    read_place,
)
from neoflow.text import Scanner, Token, header

T = TypeVar("T")
Updates = tuple[tuple[Parameter, Tensor], ...]
_WORDS = frozenset({"inputs", "outputs", "update", "recurrence", "carried"})
DEEP = 20
"""Most recurrences inside one another in a text."""


def _lines(inputs: tuple[Placeholder, ...], outputs: tuple[Tensor, ...], updates: Updates) -> list[Tensor]:
    """Every tensor of a program, each after what it reads; leaves that nothing reads come last."""
    roots = outputs + tuple(value for _, value in updates)
    return list(dict.fromkeys([*topological(roots), *inputs, *(p for p, _ in updates)]))


def program_labels(inputs: tuple[Placeholder, ...], outputs: tuple[Tensor, ...], updates: Updates) -> dict[Tensor, str]:
    """The label of every tensor in the text of a program."""
    return make_labels(_lines(inputs, outputs, updates), _WORDS)


def write_program(inputs: tuple[Placeholder, ...], outputs: tuple[Tensor, ...], updates: Updates) -> str:
    """The text of a graph."""
    labels = program_labels(inputs, outputs, updates)
    lines = [header("graph"), *_tensor_lines(labels)]
    lines.append(f"inputs {', '.join(labels[t] for t in inputs)}".rstrip())
    lines.append(f"outputs {', '.join(labels[t] for t in outputs)}".rstrip())
    lines += [f"update {labels[p]} = {labels[v]}" for p, v in updates]
    return "\n".join(lines) + "\n"


def _tensor_lines(labels: Mapping[Tensor, str]) -> list[str]:
    """Of tensors in their order; a recurrence stands before the first that leads out of it."""
    lines: list[str] = []
    known: dict[Recurrence, dict[Tensor, str]] = {}
    for t, label in labels.items():
        if isinstance(t, Compute):
            lines += compute_lines(t, label, [labels[i] for i in t.inputs])
        elif isinstance(t, Looped):
            r = t.run.recurrence
            if r not in known:
                wanted = [s.of for s in labels if isinstance(s, Stacked) and s.run.recurrence is r]
                known[r] = make_labels(dict.fromkeys([*r.placeholders, *topological([*r.then, *wanted])]), _WORDS)
                lines += _recurrence_lines(r, f"r{len(known) - 1}", known[r])
            what = f"r{list(known).index(r)}({', '.join(labels[i] for i in t.inputs)})"
            said = f"last {what} {t.number}" if isinstance(t, Last) else f"stacked {what} of {known[r][t.of]}"
            lines.append(f"{named(t, label)}: {said}")
        else:
            lines.append(leaf_line(t, label))
    return lines


def _recurrence_lines(r: Recurrence, name: str, labels: Mapping[Tensor, str]) -> list[str]:
    carried = ", ".join(f"{labels[c]} = {labels[t]}" for c, t in zip(r.carried, r.then, strict=True))
    return [
        f"recurrence {name}{place_text(r.where)}",
        *_tensor_lines(labels),
        f"carried {carried}".rstrip(),
        f"slices {', '.join(labels[p] for p in r.slices)}".rstrip(),
        f"fixed {', '.join(labels[p] for p in r.fixed)}".rstrip(),
        f"steps {r.steps}{' reversed' * r.is_reversed}",
    ]


def read_program(
    text: str,
    leaves: Mapping[str, Placeholder],
    make: Callable[[tuple[Placeholder, ...], tuple[Tensor, ...], Updates], T],
) -> T:
    """What `make` makes of the inputs, outputs and updates in a text; a `GraphError` of it becomes a `TextError`."""
    reader = _Reader(Scanner(text, "graph"), leaves)
    try:
        return make(*reader.program())
    except GraphError as e:
        reader.scanner.refuse(str(e))


class _Reader:
    """tensors: those read so far, by label; recurrences by name, with the tensors of their bodies. depth: of how many
    bodies it is inside."""

    def __init__(self, scanner: Scanner, leaves: Mapping[str, Placeholder], depth: int = 0):
        self.scanner, self.leaves, self.depth = scanner, leaves, depth
        self.tensors: dict[str, Tensor] = {}
        self.recurrences: dict[str, tuple[Recurrence, dict[str, Tensor]]] = {}

    def program(self) -> tuple[tuple[Placeholder, ...], tuple[Tensor, ...], Updates]:
        scanner = self.scanner
        while not scanner.at("inputs"):
            self.tensor()
        for label in self.leaves:
            if not isinstance(self.tensors.get(label), Placeholder):
                scanner.refuse(f"`{label}` is given, but is no placeholder or parameter of this text")
        inputs = tuple(self.placeholder(token) for token in self.listed("inputs"))
        outputs = tuple(self.known(token) for token in self.listed("outputs"))
        updates: dict[Parameter, Tensor] = {}
        while scanner.accept("update"):
            token = scanner.token
            parameter = self.known(self.label())
            if not isinstance(parameter, Parameter) or parameter in updates:
                scanner.refuse(f"`{token.text}` is no parameter, or is updated twice", token)
            scanner.expect("=")
            updates[parameter] = self.known(self.label())
            scanner.end_of_line()
        scanner.end()
        return inputs, outputs, tuple(updates.items())

    def tensor(self) -> None:
        """One leaf, compute or recurrence, or what leads out of one."""
        scanner, token = self.scanner, self.scanner.token
        if scanner.accept("recurrence"):
            self.recurrence()
            return
        label = scanner.name("the label of a tensor, or `inputs`")
        if not is_free_name(label) or label in _WORDS or label in self.tensors:
            scanner.refuse(f"`{label}` is given above, or is a word of the language", token)
        name = scanner.string("the name of the tensor") if scanner.token.kind == "string" else label
        if scanner.accept(":"):
            if scanner.at("last") or scanner.at("stacked"):
                self.tensors[label] = self.looped(name)
                return
            self.tensors[label] = self.leaf(token, label, read_leaf(scanner, name))
        else:
            self.tensors[label] = read_compute(scanner, token, name, self.tensors)

    def leaf(self, token: Token, label: str, said: Placeholder | Constant) -> Tensor:
        """The tensor given for a leaf, or a new one as the text says."""
        given = self.leaves.get(label, said)
        if (type(given), given.shape, given.dtype) != (type(said), said.shape, said.dtype):
            self.scanner.refuse(f"`{label}` is given as {given!r}, which is another kind, shape or dtype", token)
        return given

    def recurrence(self) -> None:
        """The rest of one after its first word."""
        scanner, token = self.scanner, self.scanner.token
        name = scanner.name("the name of a recurrence")
        if name in self.recurrences or self.depth == DEEP:
            why = "is given above" if name in self.recurrences else f"is inside of more than {DEEP} others"
            scanner.refuse(f"recurrence `{name}` {why}", token)
        where = read_place(scanner)
        scanner.end_of_line()
        body = _Reader(scanner, {}, self.depth + 1)
        while not scanner.at("carried"):
            body.tensor()
        token = scanner.next()
        carried: dict[Placeholder, Tensor] = {}
        while scanner.token.kind == "name":
            before = body.placeholder(body.label())
            scanner.expect("=")
            at = body.label()
            then = carried[before] = body.known(at)
            if (then.shape, then.dtype) != (before.shape, before.dtype):
                scanner.refuse(f"`{at.text}` is {then!r}, what is carried is {before!r}", at)
            if not scanner.accept(","):
                break
        scanner.end_of_line()
        slices, fixed = ([body.placeholder(at) for at in body.listed(word)] for word in ("slices", "fixed"))
        scanner.expect("steps")
        steps = scanner.number("the number of steps", MOST_EXTENT)
        is_reversed = scanner.accept("reversed")
        scanner.end_of_line()
        own = [*carried, *slices, *fixed]
        read = {t for t in body.tensors.values() if isinstance(t, Placeholder)}
        if not steps or len(set(own)) != len(own) or read != set(own):
            scanner.refuse(
                f"recurrence `{name}` has no steps, or a placeholder of its body that is not one of what is carried, "
                "slices and fixed",
                token,
            )
        found = Recurrence(
            tuple(carried), tuple(slices), tuple(fixed), tuple(carried.values()), steps, is_reversed, where
        )
        self.recurrences[name] = found, body.tensors

    def looped(self, name: str) -> Tensor:
        """What leads out of a recurrence: the rest of its line after the colon."""
        scanner = self.scanner
        is_last = scanner.next().text == "last"
        token = scanner.token
        called = scanner.name("the name of a recurrence")
        if called not in self.recurrences:
            scanner.refuse(f"`{called}` is no recurrence above", token)
        r, body = self.recurrences[called]
        scanner.expect("(")
        inputs: list[Tensor] = []
        while not scanner.accept(")"):
            if inputs:
                scanner.expect(",")
            inputs.append(self.known(self.label()))
        wanted = [(r.shape_of(p), p.dtype) for p in r.placeholders]
        if [(t.shape, t.dtype) for t in inputs] != wanted:
            scanner.refuse(f"recurrence `{called}` does not go through tensors of these numbers and kinds", token)
        run = Run(r, inputs)
        if is_last:
            at = scanner.token
            number = scanner.number("the number of what is carried", MOST_EXTENT)
            if number >= len(r.carried):
                scanner.refuse(f"recurrence `{called}` carries {len(r.carried)} tensors", at)
            found: Tensor = run.last(number, name)
        else:
            scanner.expect("of")
            at = self.label()
            of = body.get(at.text)
            if of is None or any(of is s for s in r.slices) or excess((r.steps, *of.shape)) is not None:
                scanner.refuse(f"`{at.text}` is nothing of the body that may be kept of every step", at)
            found = run.stacked(of, name)
        scanner.end_of_line()
        return found

    def label(self) -> Token:
        token = self.scanner.token
        self.scanner.name("the label of a tensor")
        return token

    def listed(self, word: str) -> list[Token]:
        """A line of labels."""
        self.scanner.expect(word)
        found: list[Token] = []
        while self.scanner.token.kind == "name":
            found.append(self.label())
            if not self.scanner.accept(","):
                break
        self.scanner.end_of_line()
        return found

    def known(self, token: Token) -> Tensor:
        found = self.tensors.get(token.text)
        if found is None:
            self.scanner.refuse(f"`{token.text}` is no tensor above", token)
        return found

    def placeholder(self, token: Token) -> Placeholder:
        found = self.known(token)
        if not isinstance(found, Placeholder) or isinstance(found, Parameter):
            self.scanner.refuse(f"`{token.text}` is no placeholder", token)
        return found
