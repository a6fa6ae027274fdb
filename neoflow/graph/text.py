"""A graph as text: a line for each leaf and compute in their order, then what goes in, comes out and is updated.

    graph   ::= header { leaf | compute } "inputs" [labels] "outputs" [labels] { "update" label "=" label }

`expr.text` has the grammar of leaves and computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from neoflow.errors import GraphError
from neoflow.expr.recurrence import Looped
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor, topological
from neoflow.expr.text import compute_lines, is_free_name, leaf_line, make_labels, read_compute, read_leaf
from neoflow.text import Scanner, Token, header

T = TypeVar("T")
Updates = tuple[tuple[Parameter, Tensor], ...]
_WORDS = frozenset({"inputs", "outputs", "update"})


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
    lines = [header("graph")]
    for t, label in labels.items():
        if isinstance(t, Looped):
            raise GraphError(
                f"{t.name} follows from nf.scan: a graph with recurrences has no text that reads back", t.where
            )
        if isinstance(t, Compute):
            lines += compute_lines(t, label, [labels[i] for i in t.inputs])
        else:
            lines.append(leaf_line(t, label))
    lines.append(f"inputs {', '.join(labels[t] for t in inputs)}".rstrip())
    lines.append(f"outputs {', '.join(labels[t] for t in outputs)}".rstrip())
    lines += [f"update {labels[p]} = {labels[v]}" for p, v in updates]
    return "\n".join(lines) + "\n"


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
    """tensors: those read so far, by label."""

    def __init__(self, scanner: Scanner, leaves: Mapping[str, Placeholder]):
        self.scanner, self.leaves = scanner, leaves
        self.tensors: dict[str, Tensor] = {}

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
        """One leaf or compute."""
        scanner, token = self.scanner, self.scanner.token
        label = scanner.name("the label of a tensor, or `inputs`")
        if not is_free_name(label) or label in _WORDS or label in self.tensors:
            scanner.refuse(f"`{label}` is given above, or is a word of the language", token)
        name = scanner.string("the name of the tensor") if scanner.token.kind == "string" else label
        if scanner.accept(":"):
            self.tensors[label] = self.leaf(token, label, read_leaf(scanner, name))
        else:
            self.tensors[label] = read_compute(scanner, token, name, self.tensors)

    def leaf(self, token: Token, label: str, said: Placeholder | Constant) -> Tensor:
        """The tensor given for a leaf, or a new one as the text says."""
        given = self.leaves.get(label, said)
        if (type(given), given.shape, given.dtype) != (type(said), said.shape, said.dtype):
            self.scanner.refuse(f"`{label}` is given as {given!r}, which is another kind, shape or dtype", token)
        return given

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
