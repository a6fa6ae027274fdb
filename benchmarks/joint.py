"""Rules and forms (layouts, algorithms) of BERT's attention: searched together, each alone, one after the other.

    python -m benchmarks.joint [--seconds 30] [--turns 20] [--small] [--write]

The attention is written as in a textbook: three linear maps of one input, heads, scores, a softmax, their mean of the
values, a linear map, for one sample. Every strategy has so many seconds and the same cost; the programs that they find
are compiled and called in turns.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

import neoflow as nf
from benchmarks.results import called, write
from neoflow import tuning
from neoflow.devices import device, resolve_target
from neoflow.graph import canonicalize, make_graph
from neoflow.nn import functional as F
from neoflow.pipeline import bind, compile_program
from neoflow.rewriting import in_turns
from neoflow.rewriting.optimizing import Optimizer, own_rules
from neoflow.rewriting.strategies import STRATEGIES, searched
from neoflow.superopt import Limits, Optimized, Sites
from neoflow.trials import measured_within, optimizer_of

SIZES = {"length": 128, "width": 768, "heads": 12}
SMALL = {"length": 16, "width": 64, "heads": 4}


def attention(length: int, width: int, heads: int) -> tuple[nf.Tensor, nf.Tensor]:
    """softmax(q k^T / sqrt(d)) v of each head, mapped once more; and its input."""
    chance, each = np.random.default_rng(0), width // heads
    x = nf.placeholder((length, width), name="x")
    q, k, v = (
        nf.reshape(x @ nf.parameter((width, width), init=_drawn(chance, width), name=f"w_{n}"), (length, heads, each))
        for n in "qkv"
    )
    scores = nf.expr("s[h,i,j] = sum(q[i,h,e] * k[j,h,e])", q=q, k=k) * each**-0.5
    shares = F.softmax(scores, axis=-1)
    mean = nf.expr("y[i,h,e] = sum(p[h,i,j] * v[j,h,e])", p=shares, v=v)
    out = nf.parameter((width, width), init=_drawn(chance, width), name="w_o")
    return nf.reshape(mean, (length, width)) @ out, x


def _drawn(chance: np.random.Generator, width: int) -> np.ndarray:
    return (chance.standard_normal((width, width)) / width**0.5).astype(np.float32)


def found(seconds: float, small: bool = False) -> tuple[Optimizer, dict[str, Optimized]]:
    """What each strategy finds, with kernels measured before by the optimizer that is given back too."""
    y, x = attention(**(SMALL if small else SIZES))
    target, graph = resolve_target("cpu"), canonicalize(make_graph([y], [x]))
    with tuning.measuring(target, measured_within(target, seconds)) as measurer:
        optimizer = optimizer_of(target, seconds, measurer)
        assert optimizer is not None and optimizer.shapes is not None
        optimizer(graph)
    sites = Sites((*optimizer.rules, *own_rules(graph, time.monotonic() + seconds)))
    forms, limits = optimizer.shapes, replace(optimizer.limits, seconds=seconds)
    each = {s: searched(s, graph, sites, partial(optimizer.estimate, graph), forms, limits) for s in STRATEGIES}
    return optimizer, each


def table(seconds: float, turns: float, small: bool = False) -> list[str]:
    """A row a strategy."""
    optimizer, each = found(seconds, small)
    y, x = attention(**(SMALL if small else SIZES))
    graph = canonicalize(make_graph([y], [x]))
    programs = [compile_program([y], [x])]
    for best in each.values():
        chosen = Optimizer(Limits(seconds=0), optimizer.divide, optimizer.times, forms=optimizer.shapes)
        chosen.take(graph, best)
        programs.append(compile_program([y], [x], optimizer=chosen))
    functions = [bind(p) for p in programs]
    place = device(functions[0].compiled.target)
    written, *times = in_turns(functions, place, turns)
    lines = [
        "| searched | rules used | forms chosen | estimate us | measured us | factor |",
        "|---|--:|---|--:|--:|--:|",
    ]
    before = next(iter(each.values())).before.seconds
    lines.append(f"| nothing | | | {1e6 * before:.1f} | {1e6 * written:.1f} | 1.00 |")
    for (strategy, best), took in zip(each.items(), times, strict=True):
        forms = ", ".join(f"{n} {name}" for name, n in Counter(name for _, name in best.forms).items())
        cells = [str(len(best.steps)), forms, f"{1e6 * best.after.seconds:.1f}", f"{1e6 * took:.1f}"]
        lines.append("| " + " | ".join([strategy, *cells, f"{written / took:.2f}"]) + " |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search")
    parser.add_argument("--turns", type=float, default=20.0, help="seconds of calls in turns")
    parser.add_argument("--small", action="store_true", help="at a size for tests")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    lines = table(options.seconds, options.turns, options.small)
    print("\n".join(lines))
    if options.write:
        write("joint", "Rules and layouts of an attention, searched together", called("joint"), lines)


if __name__ == "__main__":
    main()
