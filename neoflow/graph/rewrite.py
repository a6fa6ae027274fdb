"""The nouns of rewriting: a `Rewrite` and where it matches, and the `Derivation` that says what was rewritten."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from neoflow.errors import GraphError
from neoflow.expr.ir import same
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.graph import Graph
from neoflow.verdict import Verdict

Edit = Mapping[Tensor, Tensor]
"""What a rewrite replaces by what, all at once."""


@dataclass(frozen=True, eq=False)
class Match:
    """The tensors a rewrite binds, in an order of its own; the first is the one it was found at."""

    tensors: tuple[Compute, ...]


@dataclass(frozen=True)
class Rewrite(ABC):
    """One kind of edit that keeps every value; the docstring of each draws it, before -> after.

    `match` finds, `legal` proves, `apply` edits. None of them keeps anything, so that a match can be judged and applied
    again later from its tensors alone. All three ask the editor what a tensor reads (`editor.inputs(t)`).
    """

    name: str

    @abstractmethod
    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """Every place at t that has the form of the rewrite, from definitions, inputs and readers of inputs."""

    @abstractmethod
    def legal(self, editor: Editor, match: Match) -> Verdict:
        """Whether the edit keeps every value there and is of use, and why."""

    @abstractmethod
    def apply(self, editor: Editor, match: Match) -> Edit:
        """What replaces what. The match is legal."""

    @property
    def drawing(self) -> str:
        """The docstring."""
        return type(self).__doc__ or ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Site:
    """A legal match of a rewrite, and why it is legal."""

    rewrite: Rewrite
    match: Match
    reason: str


@dataclass(frozen=True)
class Step:
    """A rewrite at the tensors of these numbers (see `Editor`), the first of them called `name`, and why."""

    rewrite: Rewrite
    at: tuple[int, ...]
    name: str
    reason: str

    def __str__(self) -> str:
        more = f" with {', '.join(map(str, self.at[1:]))}" if len(self.at) > 1 else ""
        return f"{self.rewrite} at {self.at[0]} {self.name}{more}: {self.reason}"


@dataclass(frozen=True)
class Derivation:
    """What was rewritten, in order; refused: what had the form and was not legal; stopped: why it ended there."""

    steps: tuple[Step, ...]
    refused: tuple[Step, ...]
    stopped: str

    def replay(self, graph: Graph) -> Graph:
        """The same steps on an equal graph, each judged again. Raises `GraphError` when one does not fit."""
        editor = Editor(graph.roots, graph.order)
        for n, step in enumerate(self.steps):
            try:
                match = find(editor, step.rewrite, step.at)
            except GraphError as error:
                raise GraphError(f"step {n} of the derivation, {step}, does not fit the graph: {error}") from error
            editor.replace(step.rewrite.apply(editor, match))
        return graph.with_roots(editor.finish())

    def __str__(self) -> str:
        lines = [f"{n}. {step}" for n, step in enumerate(self.steps)]
        lines += [f"no {step}" for step in self.refused]
        return "\n".join([*lines, f"stopped: {self.stopped}"])


def find(editor: Editor, rewrite: Rewrite, at: tuple[int, ...]) -> Match:
    """The legal match of the tensors of these numbers. Raises `GraphError` when there is none, with the reason."""
    tensors = tuple(map(editor.tensor, at))
    anchor = tensors[0]
    matches = rewrite.match(editor, anchor) if isinstance(anchor, Compute) else iter(())
    match = next((m for m in matches if same(m.tensors, tensors)), None)
    if match is None:
        raise GraphError(f"{rewrite} does not match {', '.join(t.name for t in tensors)}")
    verdict = rewrite.legal(editor, match)
    if not verdict.ok:
        raise GraphError(verdict.reason)
    return match


def sites(editor: Editor, rewrites: Iterable[Rewrite], t: Compute, refused: list[Site] | None = None) -> Iterator[Site]:
    """Every legal place of the rewrites at t, in their order; `refused` takes up the others, with the reason."""
    for rewrite in rewrites:
        for match in rewrite.match(editor, t):
            verdict = rewrite.legal(editor, match)
            site = Site(rewrite, match, verdict.reason)
            if verdict.ok:
                yield site
            elif refused is not None:
                refused.append(site)
