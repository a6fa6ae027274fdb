"""Three programs, and what every stage makes of them for one machine: `python -m tests.golden.programs` writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import neoflow as nf
from neoflow import codegen
from neoflow.graph import Graph, make_graph
from neoflow.loops import default_schedule
from neoflow.nn import functional as F
from neoflow.partition import order_calls
from neoflow.rewriting import stages
from neoflow.runtime.planner import make_plan
from neoflow.target import Target
from neoflow.trace import Trace

FOLDER = Path(__file__).parent
TARGET = Target("cpu", "znver4", threads=2, vector_bytes=64, l2_bytes=1 << 20, fma_units=1)


def step(loss: nf.Tensor, inputs: list, parameters: list) -> Graph:
    """The graph of a training step by plain gradient descent."""
    gradients = nf.grad(loss, parameters)
    return make_graph([loss], inputs, {p: p - 0.1 * g for p, g in zip(parameters, gradients, strict=True)})


def tropical() -> Graph:
    """A convolution by maximum and sum: reductions, shared maxima, strided adjoints."""
    x, w = nf.placeholder((2, 3, 17), name="x"), nf.parameter((4, 3, 3), name="w")
    y = nf.expr("y[b,o,t] = max[c,r](x[b,c,2*t+r] + w[o,c,r])", x=x, w=w)
    return step(nf.mean(y * y), [x], [w])


def attention() -> Graph:
    """Contractions, a softmax and a normalisation by rows, an epilogue."""
    x = nf.placeholder((2, 7, 24), name="x")
    w, g, b = nf.parameter((24, 24), name="w"), nf.parameter((24,), name="g"), nf.parameter((24,), name="b")
    q = nf.expr("q[b,i,h] = sum(x[b,i,k] * w[h,k])", x=x, w=w)
    a = F.softmax(nf.expr("s[b,i,j] = sum(q[b,i,h] * x[b,j,h])", q=q, x=x) * 0.2)
    y = F.layer_norm(nf.expr("o[b,i,h] = sum(a[b,i,j] * q[b,j,h])", a=a, q=q) + x, g, b)
    return step(nf.mean(F.gelu(y)), [x], [w, g, b])


def words() -> Graph:
    """A lookup with its scatter, a padded convolution, a maximum pool."""
    ids = nf.placeholder((2, 10), "int64", name="ids")
    table, w = nf.parameter((11, 6), name="table"), nf.parameter((5, 6, 3), name="w")
    rows = nf.transpose(nf.take(table, ids), (0, 2, 1))
    y = nf.expr("y[b,o,t] = sum(x[b,c,t+r] * w[o,c,r])", x=nf.pad(rows, ((0, 0), (0, 0), (1, 1))), w=w)
    h, r = nf.relu(y), nf.axis(2, "r")
    pooled = nf.compute((2, 5, 5), lambda b, o, t: nf.max(h[b, o, 2 * t + r], axis=[r]), name="pooled")
    return step(nf.sum(pooled * pooled), [ids], [table, w])


PROGRAMS: dict[str, Callable[[], Graph]] = {"tropical": tropical, "attention": attention, "words": words}


def texts(graph: Graph) -> dict[str, str]:
    """What each stage prints."""
    trace = Trace()
    graph, parts = stages(graph, trace)
    calls, in_place = order_calls(graph, parts)
    subgraphs = {c.subgraph.digest: c.subgraph for c in calls}
    schedules = {digest: default_schedule(s, TARGET) for digest, s in subgraphs.items()}
    lowered = {d: codegen.lower(s, schedules[d], TARGET, f"k{n}") for n, (d, s) in enumerate(subgraphs.items())}
    codes = {digest: k.code for digest, k in lowered.items()}
    plan = make_plan(graph, calls, in_place, parts.views, codes, TARGET.threads)
    return {
        "graph": str(graph),
        "derivation": "\n\n".join(r.text().split("\n\n")[-1] for r in trace.records if r.name != "partition"),
        "partition": next(r.text() for r in trace.records if r.name == "partition"),
        "schedules": "\n".join(map(str, schedules.values())),
        "tir": "\n".join(k.text() for k in lowered.values()),
        "plan": str(plan),
    }


def path(program: str, stage: str) -> Path:
    return FOLDER / program / f"{stage}.txt"


if __name__ == "__main__":
    for name, build in PROGRAMS.items():
        for stage, text in texts(build()).items():
            path(name, stage).parent.mkdir(exist_ok=True)
            path(name, stage).write_text(text + "\n")
