"""How a faster equal graph came about, as a page: each rule that was applied with a picture of both of its sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from neoflow.report.html import page
from neoflow.superopt import Optimized, Substitution, Term, Variable

WIDE, HIGH, GAP = 8.0, 24.0, 22.0
"""Pixels of a character and of a box, and between a box and what it reads."""
SHOWN = 60
"""Steps that have a picture; the rest are named."""


@dataclass(frozen=True)
class Box:
    """A part of a term: what it is called, where the middle of its box is and how wide that is, and what it reads."""

    label: str
    x: float
    y: float
    width: float
    reads: tuple[Box, ...]

    def moved(self, by: float) -> Box:
        """The same, so far to the right."""
        return Box(self.label, self.x + by, self.y, self.width, tuple(r.moved(by) for r in self.reads))


def placed(term: Term, depth: int = 0) -> tuple[Box, float]:
    """A term as boxes, what it reads below it and side by side; and how wide all of it is."""
    y = HIGH / 2 + 1 + depth * (HIGH + GAP)
    label = term.name if isinstance(term, Variable) else term.family.name
    width = WIDE * (len(label) + 2)
    if isinstance(term, Variable) or not term.args:
        return Box(label, width / 2, y, width, ()), width
    reads, right = [], 0.0
    for arg in term.args:
        box, wide = placed(arg, depth + 1)
        reads.append(box.moved(right))
        right += wide + WIDE
    whole = max(width, right - WIDE)
    left = (whole - (right - WIDE)) / 2
    return Box(label, whole / 2, y, width, tuple(r.moved(left) for r in reads)), whole


def picture(term: Term) -> str:
    """A term as a drawing."""
    root, width = placed(term)
    lines: list[str] = []
    boxes: list[str] = []
    bottom, stack = 0.0, [root]
    while stack:
        b = stack.pop()
        bottom = max(bottom, b.y + HIGH / 2 + 1)
        stack += b.reads
        lines += [f'<path class="axis" d="M{b.x:g} {b.y + HIGH / 2:g}L{r.x:g} {r.y - HIGH / 2:g}"/>' for r in b.reads]
        edge = "var(--blue)" if b.reads else "var(--line)"
        boxes.append(
            f'<rect x="{b.x - b.width / 2:g}" y="{b.y - HIGH / 2:g}" width="{b.width:g}" height="{HIGH:g}" rx="5" '
            f'style="fill:var(--card);stroke:{edge}"/>'
            f'<text x="{b.x:g}" y="{b.y + 4:g}" text-anchor="middle">{escape(b.label)}</text>'
        )
    size = f'width="{width + 2:g}" height="{bottom:g}" viewBox="-1 0 {width + 2:g} {bottom:g}"'
    return f'<svg class="chart" style="width:auto;max-width:100%" {size}>{"".join([*lines, *boxes])}</svg>'


def derivation(found: Optimized) -> str:
    """A section: what was gained, then step by step what was done."""
    steps = []
    for n, step in enumerate(found.steps):
        said = f"<b>{n + 1}. {escape(step.rewrite.name)}</b> at {escape(step.name)}: {escape(step.reason)}"
        drawn = ""
        if n < SHOWN and isinstance(step.rewrite, Substitution):
            rule = step.rewrite.rule
            sides = (("before", rule.source), ("after", rule.target))
            figures = (f"<figure>{picture(t)}<figcaption>{name}</figcaption></figure>" for name, t in sides)
            drawn = f'<div class="pair">{"".join(figures)}</div>'
        steps.append(f"<p>{said}</p>{drawn}")
    nothing = "" if steps else "<p>No rule was applied: the graph stays as it was written.</p>"
    costs = f"before: {escape(str(found.before))}<br>after: {escape(str(found.after))}"
    return f"<section><h2>{escape(found.summary)}</h2><p>{costs}</p>{nothing}{''.join(steps)}</section>"


def derivation_page(title: str, parts: Sequence[Optimized]) -> str:
    """A page that needs nothing else: a section for each part of a program."""
    head = (
        f"<h1>{escape(title)}</h1><p>A faster equal graph, rule by rule; each was proved for all sizes it allows.</p>"
    )
    return page(title, head, [derivation(part) for part in parts])
