"""Attention that a user wrote with all scores at once, as one that goes through the keys in blocks.

    softmax(q k^T scale + mask) v    ->    a loop over blocks of keys, with the largest score and the sums so far

Found by the patterns of `mapping.catalogue.attention`, however it is cut into tensors, and its gradients derived anew.
The loop is taken where the whole program takes fewer bytes and, by the estimate of its kernels, not much longer; under
a limit to memory that the program does not fit into, whatever it takes.

Source: Rabe and Staats, Self-attention does not need O(n^2) memory, 2021; Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from neoflow.code import Code
from neoflow.expr import affine, dsl
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Expr
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph
from neoflow.mapping.catalogue.attention import ANY_MASK
from neoflow.mapping.cell import Filled
from neoflow.mapping.gradients import apart
from neoflow.mapping.spots import placed
from neoflow.mapping.unify import Looked
from neoflow.nn.attention import BLOCK, LEAST, scaled_dot_product_attention
from neoflow.partition import flattened, order_calls
from neoflow.recompute import Program
from neoflow.rewriting.sequence import divided
from neoflow.runtime.memory import amount
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.tune.roofs import stated
from neoflow.verdict import Verdict

PRICE = 1.25
"""So many times as long a program may be thought to take for fewer bytes that nobody asked to be saved. The estimate
knows little of what lies in caches between the kernels of a step: of 4 heads of 4096 it says 1.1, measured 0.9."""
NEVER = -1e9
"""Scores of which the weight is 0 beside any other."""


@dataclass(frozen=True)
class Attended:
    """The graph that is taken, and why; sites: what was found. bytes, seconds: of the program before and after, by the
    plan without what kernels need besides, and by the estimate."""

    graph: Graph
    sites: tuple[Verdict, ...]
    reason: str = ""
    nbytes: tuple[int, int] = (0, 0)
    seconds: tuple[float, float] = (0.0, 0.0)
    is_taken: bool = False

    @property
    def summary(self) -> str:
        if not self.is_taken:
            return "left as it is"
        before, after = map(amount, self.nbytes)
        return f"{sum(v.ok for v in self.sites)} in blocks of keys: {before} brought to {after}"

    def __str__(self) -> str:
        return "\n".join([*(v.reason for v in self.sites), *([self.reason] if self.reason else [])]) or self.summary


def in_blocks(graph: Graph, target: Target, precision: str, least: int, memory: int | None = None) -> Attended:
    """The graph with each attention whose scores take `least` bytes in blocks of keys, where that pays. memory: bytes
    that there are."""
    parts, sites = apart(graph), Sites(least)
    roots, _ = placed(parts.graph.roots, ANY_MASK, Looked(), sites.made)
    found = tuple(dict.fromkeys(sites.found))
    if not any(v.ok for v in found):
        return Attended(graph, found)
    other = parts.joined(roots)
    programs = [_program(g, target, precision) for g in (graph, other)]
    before, after = (p.plan().nbytes for p in programs)
    was, takes = (p.seconds(stated(target)) for p in programs)
    fits = memory is None or before <= memory
    longer = f"by the estimate {takes * 1e3:.4g} ms, not {was * 1e3:.4g}"
    bytes_of = f"{amount(after)}, not {amount(before)}"
    costs = (before, after), (was, takes)
    if memory is not None and fits:
        return Attended(graph, found, f"left as it is: it fits into {amount(memory)}", *costs)
    if after >= before:
        return Attended(graph, found, f"left as it is: in blocks it would take {bytes_of}", *costs)
    if fits and takes > PRICE * was:
        return Attended(graph, found, f"left as it is: in blocks it would take {longer}", *costs)
    return Attended(other, found, f"it takes {bytes_of}; {longer}", *costs, True)


def _program(graph: Graph, target: Target, precision: str) -> Program:
    """Its calls, whose kernels need no memory besides so far."""
    graph, parts = divided(graph, Trace(), target, precision, None, None)
    calls, in_place = order_calls(graph, parts)
    flat, loops = flattened(calls)
    codes = {c.subgraph.digest: Code(()) for c in flat}
    return Program(graph, flat, in_place, parts.views, codes, target.threads, 0, loops)


@dataclass
class Sites:
    """Makes the loops; found: what became of each attention. least: bytes of scores."""

    least: int
    found: list[Verdict] = field(default_factory=list)

    def made(self, t: Tensor, filled: Filled) -> Tensor | None:
        """What `spots.placed` puts in the place of a tensor."""
        q, k, v, mask = (filled.get(n) for n in ("q", "k", "v", "mask"))
        hidden, scale = float(filled.get("hidden", NEVER)), float(filled["scale"])
        assert isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)
        keys = k.shape[-2]
        scores = q.size // q.shape[-1] * keys * t.nbytes // t.size
        if scores < self.least:
            return None
        block, name = math.gcd(keys, BLOCK), f"{t.name}{list(t.shape)}"
        is_causal, unseen = False, filled.get("unseen")
        if isinstance(unseen, Tensor):
            mask = _inverse_of(unseen)
        if isinstance(mask, Tensor):
            mask, is_causal = _narrowed(mask)
        if block < LEAST:
            no = f"no block of {LEAST} keys and more divides {keys}"
        elif hidden > NEVER:
            no = f"scores of {hidden:g} in place of what is masked have a weight"
        elif math.isinf(hidden) and mask is not None:
            no = "of a row that sees nothing the softmax of -inf is no number"
        else:
            no = ""
        if no:
            self.found.append(Verdict(False, f"left as it is: {name}: {no}"))
            return None
        way = ", each key by what comes after it" if is_causal else ""
        self.found.append(Verdict(True, f"{name}: attention in blocks of {block} of {keys} keys{way}"))
        return scaled_dot_product_attention(q, k, v, mask, is_causal, scale, block)


def _narrowed(mask: Tensor) -> tuple[Tensor | None, bool]:
    """A mask of all scores without what is the same all along a dimension, and whether it also says t <= s: of that
    nothing is left in the mask."""
    if not isinstance(mask, Compute) or mask.definition.has_reduction:
        return mask, False
    s, t = mask.definition.axes[-2:]
    terms = _terms(mask.definition.body)
    left = [e for e in terms if not _is_causal(e, s, t)]
    if not left:
        return None, True
    body = left[0]
    for e in left[1:]:
        body = Apply("and", (body, e))
    shape = tuple(n if a in body.free else 1 for n, a in zip(mask.shape, mask.definition.axes, strict=True))
    return build(shape, body, mask.inputs, mask.name), len(left) < len(terms)


def _terms(e: Expr) -> list[Expr]:
    """What all has to be true."""
    if isinstance(e, Apply) and e.fn == "and":
        return [u for a in e.args for u in _terms(a)]
    return [e]


OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}


def _inverse_of(mask: Tensor) -> Tensor:
    """True where the mask is not."""
    if not isinstance(mask, Compute) or mask.definition.has_reduction:
        return dsl.logical_not(mask)
    return build(mask.shape, _inverse(mask.definition.body), mask.inputs, mask.name)


def _inverse(e: Expr) -> Expr:
    if isinstance(e, Apply) and e.fn in ("and", "or"):
        return Apply("or" if e.fn == "and" else "and", tuple(map(_inverse, e.args)))
    if isinstance(e, Apply) and e.fn in OPPOSITE and not dt.is_float(e.args[0].dtype):
        return Apply(OPPOSITE[e.fn], e.args)
    return Apply("not", (e,))


def _is_causal(e: Expr, s: Axis, t: Axis) -> bool:
    """Whether a condition is t <= s, in whatever words."""
    if not isinstance(e, Apply) or e.fn not in OPPOSITE or dt.is_float(e.args[0].dtype):
        return False
    small, large = e.args if e.fn in ("le", "lt") else e.args[::-1]
    terms, offset = affine.combine(affine.linear(large), affine.linear(small), -1)
    return terms == {s: 1, t: -1} and offset == (1 if e.fn in ("lt", "gt") else 0)
