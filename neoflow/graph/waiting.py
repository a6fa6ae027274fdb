"""What waits where operations of many steps become one: bytes that are alive at once, with them apart and as one.

A chain reads what a step makes while the next one is computed; one sum of all steps reads it when the last is done, and
what is put together for it is one tensor, there from its first part on. One projection of all steps gives its results
before the first is read. Nothing of it counts that is there anyway: what is given, and what lies side by side already.

Time goes by depth: a compute is one later than the last of what it reads, and what is read one by one is made just
before that. The planner decides what memory is needed in the end; this is what a choice is made by before there are
kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.beside import Beside
from neoflow.graph.chains import depths_of
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_move
from neoflow.graph.pieces import pieces


@dataclass(frozen=True)
class Waiting:
    """The most bytes at once, of what several operations read and give: of these apart, and as one."""

    apart: int
    together: int

    @property
    def more(self) -> int:
        """By how many bytes these add to a peak at most."""
        return max(0, self.together - self.apart)

    def __str__(self) -> str:
        return f"up to {self.together} bytes of them wait at once, apart {self.apart}"


Life = tuple[float, float, int]
"""From when until when there are so many bytes."""


def waiting(editor: Editor, links: Sequence[Compute], found: Iterable[Beside], gives: bool) -> Waiting:
    """Of operations, and the operands that differ between them side by side. gives: whether each has a result that is
    read by itself; otherwise they are added up or put together as they are."""
    depth = depths_of(editor)
    last = max(depth[t] for t in links)
    apart, together = list[Life](), list[Life]()
    for b in found:
        if b.base is None:
            one_by_one, side_by_side = _read(editor, depth, links, b, last)
            apart += one_by_one
            together += side_by_side
    if gives:
        lives = [_given(editor, depth, t) for t in links]
        apart += lives
        begin = max(last, min(begin for begin, _, _ in lives))
        together.append((begin, max(begin, *(end for _, end, _ in lives)), sum(n for _, _, n in lives)))
    return Waiting(most(apart), most(together))


def _read(
    editor: Editor, depth: Mapping[Tensor, int], links: Sequence[Compute], b: Beside, last: int
) -> tuple[list[Life], list[Life]]:
    """Of parts that are to be put together, as they are now and then."""
    own, apart, together = set(links), list[Life](), list[Life]()
    for p, t in zip(b.parts, links, strict=True):
        if isinstance(p, Compute) and not is_move(p.definition):
            others = max((depth[r] for r in _readers(editor, p) if r not in own), default=0)
            end = math.inf if editor.is_root(p) else others
            apart.append((depth[p], max(depth[t], end), p.nbytes))
            together.append((depth[p], max(last, end), p.nbytes))
    total = sum(p.nbytes for p in b.parts)
    if b.copied:
        return apart, [*together, (last, last, total)]
    return apart, [(min(begin for begin, _, _ in together), max(end for _, end, _ in together), total)]


def _readers(editor: Editor, p: Tensor) -> Iterator[Compute]:
    """What reads a tensor, or what it is a piece of."""
    for r in editor.each_reader(p):
        yield from editor.each_reader(r) if pieces(r.definition) is not None else (r,)


def _given(editor: Editor, depth: Mapping[Tensor, int], t: Compute) -> Life:
    """Of a result that is computed just before it is read."""
    read = [depth[r] for r in editor.each_reader(t)]
    begin = max(depth[t], min(read, default=depth[t]) - 1)
    return begin, math.inf if editor.is_root(t) else max(read, default=begin), t.nbytes


def most(lives: Sequence[Life]) -> int:
    """The most bytes at once; what ends at a moment is still there in it."""
    changes = sorted([(begin, 0, n) for begin, _, n in lives] + [(end, 1, -n) for _, end, n in lives])
    return max(accumulate(n for _, _, n in changes), default=0)
