"""Attention as a scaled dot product, with and without a mask. Source: Vaswani et al., 2017, section 3.2.1."""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.products import matmul
from neoflow.expr.shape.rearrange import swapaxes
from neoflow.expr.tensor import Tensor
from neoflow.mapping.catalogue import softmax
from neoflow.mapping.cell import Cell, Pattern
from neoflow.nn import functional as F

HIDDEN = -1e30
"""What a score that is not seen becomes in the implementation; users take what they like, if it is as far away."""


def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return matmul(q, swapaxes(k, -1, -2)) * scale


def naive(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor]:
    """softmax(q k^T scale) v, of a softmax that is not shifted."""
    return (matmul(softmax.naive(_scores(q, k, scale))[0], v),)


def shifted(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor]:
    return (matmul(softmax.shifted(_scores(q, k, scale))[0], v),)


def constant(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor]:
    """Of the library's softmax."""
    return (matmul(softmax.constant(_scores(q, k, scale))[0], v),)


def implementation(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor]:
    return (F.scaled_dot_product_attention(q, k, v, scale=scale),)


def hidden(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor]:
    """Where the mask is not true, scores are very small."""
    return (matmul(softmax.naive(dsl.select(mask, _scores(q, k, scale), HIDDEN))[0], v),)


def hidden_shifted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor]:
    return (matmul(softmax.shifted(dsl.select(mask, _scores(q, k, scale), HIDDEN))[0], v),)


def hidden_constant(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor]:
    return (matmul(softmax.constant(dsl.select(mask, _scores(q, k, scale), HIDDEN))[0], v),)


def added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor]:
    """A mask of numbers, which are added."""
    return (matmul(softmax.naive(_scores(q, k, scale) + mask)[0], v),)


def added_shifted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor]:
    return (matmul(softmax.shifted(_scores(q, k, scale) + mask)[0], v),)


def added_constant(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor]:
    return (matmul(softmax.constant(_scores(q, k, scale) + mask)[0], v),)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor]:
    return (F.scaled_dot_product_attention(q, k, v, mask, scale=scale),)


def _patterns(batch: str) -> tuple[Pattern, ...]:
    holes = {"q": f"{batch}SD", "k": f"{batch}TD", "v": f"{batch}TE"}
    scale = {"scale": 0.5}
    return (
        Pattern("attention", holes, naive, {}, implementation, scale, (constant, shifted)),
        Pattern(
            "attention with a mask",
            holes | {"mask": "ST?"},
            hidden,
            {},
            masked,
            scale,
            (hidden_constant, hidden_shifted),
        ),
        Pattern(
            "attention with a mask that is added",
            holes | {"mask": "ST"},
            added,
            {},
            masked,
            scale,
            (added_constant, added_shifted),
        ),
    )


def _covered(way: Cell, is_seen: bool) -> Cell:
    """Where a mask is not true, or where it is, scores are any number."""

    def seen(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, hidden: float) -> tuple[Tensor]:
        return (matmul(way(dsl.select(mask, _scores(q, k, scale), hidden))[0], v),)

    def unseen(q: Tensor, k: Tensor, v: Tensor, unseen: Tensor, scale: float, hidden: float) -> tuple[Tensor]:
        return (matmul(way(dsl.select(unseen, hidden, _scores(q, k, scale)))[0], v),)

    return seen if is_seen else unseen


def _any_mask(batch: str) -> tuple[Pattern, ...]:
    """The same of a mask for all scores, which may be the same for some of them: whoever takes its place tells."""
    plain, _, add = _patterns(batch)
    scale, numbers = {"scale": 0.5}, {"scale": 0.5, "hidden": HIDDEN}
    found = [plain, Pattern(add.name, {**add.holes, "mask": f"{batch}ST"}, added, {}, masked, scale, add.forms)]
    for name in ("mask", "unseen"):
        *forms, cell = (_covered(w, name == "mask") for w in (softmax.constant, softmax.shifted, softmax.naive))
        holes = {**plain.holes, name: f"{batch}ST?"}
        found.append(Pattern(f"attention with {name} scores", holes, cell, {}, cell, numbers, tuple(forms)))
    return tuple(found)


PATTERNS = tuple(p for batch in ("", "B", "BH") for p in _patterns(batch))
ANY_MASK = tuple(p for batch in ("", "B", "BH") for p in _any_mask(batch))
