"""Random training steps, deep enough that what is kept for the backward counts; and plans run by NumPy in one arena."""

from __future__ import annotations

import numpy as np

import neoflow as nf
from neoflow import dtype as dt
from neoflow.code import Code, Workspace
from neoflow.graph import make_graph, optimize
from neoflow.nn import functional as F
from neoflow.partition import order_calls, partition
from neoflow.recompute import Program
from tests.strategies import random_program

KINDS = ("dense", "dense", "elementwise", "skip", "norm", "dropout", "lookup", "wide", "running")


def network(seed):
    """(outputs, inputs, updates, feeds) of a step: layers, skips, concatenations, dropout whose seed is updated,
    lookups at indices from data, and norms that update running statistics in the kernel that computes what is kept."""
    rng = np.random.default_rng(seed)
    batch, width = int(rng.integers(2, 6)), int(rng.choice([8, 16, 24]))
    x, ids = nf.placeholder((batch, width), name="x"), nf.placeholder((batch,), "int64", name="ids")
    feeds = {x: rng.standard_normal(x.shape).astype(np.float32), ids: rng.integers(0, 5, batch)}
    seen, updates, weights = [x], {}, []

    def weight(shape, name):
        p = nf.parameter(shape, name=f"{name}{len(weights)}")
        weights.append(p)
        feeds[p] = (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        return p

    counter = nf.parameter((), "int64", name="counter")
    feeds[counter] = np.array(int(rng.integers(1000)))
    for n in range(int(rng.integers(4, 14))):
        h, kind = seen[-1], rng.choice(KINDS)
        if kind == "dense":
            h = nf.tanh(F.linear(h, weight((width, width), "w")))
        elif kind == "elementwise":
            h = nf.exp(-h * h) * h
        elif kind == "skip":
            h = h + seen[int(rng.integers(len(seen)))]
        elif kind == "norm":
            h = F.layer_norm(h, weight((width,), "g"))
        elif kind == "dropout":
            h = F.dropout(h, 0.3, counter, n)
            updates[counter] = counter + 1
        elif kind == "lookup":
            table = weight((5, width), "t")
            h = h * nf.compute(h.shape, lambda b, i, table=table: table[ids[b], i], name="lookup")
        elif kind == "running":
            mean, kept = nf.mean(h, axis=1, keepdims=True), nf.parameter((batch, 1), name=f"running{n}")
            feeds[kept] = rng.standard_normal(kept.shape).astype(np.float32)
            updates[kept] = 0.9 * kept + 0.1 * mean
            h = nf.tanh(h - mean)
        else:
            pieces = [nf.sin(F.linear(h, weight((width // 2, width), "u"))) for _ in range(2)]
            h = nf.concat(pieces, axis=1)
        seen.append(h)
    loss = nf.mean(seen[-1] * seen[-1])
    gradients = nf.grad(loss, weights, allow_unused=True) if weights else []
    updates.update({w: w - 0.1 * g for w, g in zip(weights, gradients, strict=True)})
    outputs = [loss, seen[len(seen) // 2]] if rng.random() < 0.3 else [loss]
    return outputs, [x, ids], updates, feeds


def scattered(seed):
    """A random program of any shape, its float inputs being parameters that follow their gradients."""
    program = random_program(seed)
    outputs = [t for t in program.outputs if t.dtype.startswith("float")]
    loss = sum((nf.sum(t) for t in outputs[1:]), nf.sum(outputs[0]))
    moved = [t for t in program.float_inputs if t.shape]
    parameters = {t: nf.parameter(t.shape, t.dtype, t.name) for t in moved}
    gradients = nf.vjp(loss, moved, allow_unused=True)
    updates = {parameters[t]: parameters[t] * 0.9 - g for t, g in zip(moved, gradients, strict=True)}
    feeds = {**program.feeds, **{parameters[t]: program.feeds[t] for t in moved}}
    return [loss, *outputs], list(program.feeds), updates, feeds


def program_of(outputs, inputs, updates, spaces=()):
    """A step divided into kernels, which have workspaces of these bytes in turn."""
    graph = optimize(make_graph(outputs, inputs, updates))
    parts = partition(graph)
    calls, in_place = order_calls(graph, parts)
    codes = {}
    for c in calls:
        sizes = [spaces[len(codes) % len(spaces)]] if spaces else []
        codes.setdefault(c.subgraph.digest, Code((), tuple(Workspace(n, True) for n in sizes if n)))
    return Program(graph, calls, in_place, parts.views, codes, 1)


def run(program, plan, feeds):
    """What a call returns, and the parameters after it: kernel by kernel, from the bytes where the plan has them."""
    arena = np.full(plan.arena_bytes, 0xFF, np.uint8)
    memory = []
    for b in plan.buffers:
        kind = dt.NUMPY[b.dtype]
        if b.kind == "temporary":
            memory.append(arena[b.offset : b.offset + b.nbytes].view(kind).reshape(b.shape))
        elif b.kind == "view":
            source = memory[b.base].reshape(-1).view(np.uint8)
            memory.append(source[b.offset : b.offset + b.nbytes].view(kind).reshape(b.shape))
        else:
            memory.append(np.zeros(b.shape, kind))
    graph = program.graph
    numbers = (*plan.inputs, *plan.parameters, *plan.constants)
    for n, t in zip(numbers, (*graph.inputs, *graph.parameters, *graph.constants), strict=True):
        memory[n][...] = t.value if t in graph.constants else feeds[t]
    for source, target in plan.saves:
        memory[target][...] = memory[source]
    for call, at in zip(program.calls, plan.calls, strict=True):
        inputs, outputs = call.subgraph.tensors()
        for n in at.workspaces:
            memory[n][...] = -1
        read = {t: memory[n].copy() for t, n in zip(inputs, at.arguments[: len(inputs)], strict=True)}
        for value, n in zip(nf.evaluate(list(outputs), read), at.arguments[len(inputs) :], strict=True):
            memory[n][...] = value
    for source, target in plan.copies:
        memory[target][...] = memory[source]
    return [memory[n].copy() for n in (*plan.outputs, *plan.parameters)]
