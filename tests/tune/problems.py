"""Subgraphs for laws of the search: of operators, and of random programs."""

from __future__ import annotations

import functools

import neoflow as nf
from neoflow.nn import functional as F
from neoflow.partition import Subgraph
from neoflow.target import Target
from tests.loops.programs import product, random_subgraphs, subgraphs

TARGET = Target("cpu", "x86-64-v4", 2, 64, 1 << 20, 2)
GPU = Target("cuda", "sm_90")


def only(function, *shapes: tuple[int, ...]) -> Subgraph:
    """The last kernel of an operator."""
    inputs = [nf.placeholder(s, name=f"x{n}") for n, s in enumerate(shapes)]
    return subgraphs([function(*inputs)], inputs)[-1]


@functools.cache
def named() -> dict[str, Subgraph]:
    return {
        "product": only(product, (96, 130), (130, 200)),
        "product again": only(product, (64, 80), (80, 120)),
        "linear": only(F.linear, (37, 53), (41, 53)),
        "softmax": only(F.softmax, (64, 200)),
        "norm": only(F.layer_norm, (17, 45), (45,), (45,)),
        "map": only(lambda x: nf.tanh(x) * 2.0, (64, 250)),
        "small": only(lambda x: x + 1.0, (3,)),
        "columns": only(lambda x: nf.sum(x, axis=0), (200, 64)),
        "lookup": only(lambda x: nf.transpose(x, (1, 0)) + 1.0, (33, 47)),
    }


@functools.cache
def pool(programs: int) -> tuple[Subgraph, ...]:
    """The named ones and those of so many random programs with their gradients."""
    return (*named().values(), *(s for seed in range(programs) for s in random_subgraphs(seed)))
