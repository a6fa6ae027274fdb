"""Random programs for rewrites that programs of `tests.strategies` seldom meet, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import neoflow as nf
from neoflow.expr.tensor import Tensor
from tests.chance import Chance
from tests.strategies import random_program

Feeds = dict[Tensor, np.ndarray]


@dataclass(frozen=True)
class Case:
    """Roots, gradients among them, and an array for each input."""

    roots: list[Tensor]
    feeds: Feeds

    def values(self, roots) -> list[np.ndarray]:
        return nf.evaluate(list(roots), self.feeds, dtype="float64")


def anything(seed: int) -> Case:
    program = random_program(seed)
    return Case(program.with_gradients(), program.feeds)


class Maker(Chance):
    def __init__(self, seed: int):
        super().__init__(np.random.default_rng(seed))
        self.feeds: Feeds = {}

    def input(self, *shape: int) -> Tensor:
        t = nf.placeholder(shape, name=f"x{len(self.feeds)}")
        self.feeds[t] = self.rng.uniform(-1, 1, shape).astype(np.float32)
        return t

    def case(self, roots: list[Tensor]) -> Case:
        total = roots[0]
        floats = list(self.feeds)
        return Case([*roots, *nf.vjp(total, floats, allow_unused=True)], self.feeds)


def sums(seed: int) -> Case:
    """Contractions of one shape, added with other terms in any order; some are read or returned elsewhere."""
    make = Maker(seed)
    rows, inner, width = (make.between(4, 9) for _ in range(3))
    k = nf.axis(inner, "k")
    weight = make.input(inner, width)
    made: list[Tensor] = []
    for _ in range(make.between(2, 5)):
        a, b = make.input(rows, inner), weight if make.chance(0.3) else make.input(inner, width)
        made.append(nf.compute((rows, width), lambda i, j, a=a, b=b: nf.sum(a[i, k] * b[k, j], axis=[k])))
    terms = [lambda i, j, t=t: t[i, j] for t in made]
    if make.chance(0.5):
        terms.append(lambda i, j: nf.tanh(make.pick(made)[i, j]) * 0.5)
    if make.chance(0.5):
        bias = make.input(width)
        terms.append(lambda i, j: bias[j])

    def body(i, j):
        first, *rest = [term(i, j) for term in make.shuffled(terms)]
        return sum(rest, first)

    total = nf.compute((rows, width), body)
    others = [nf.exp(t * 0.1) for t in made if make.chance(0.2)]
    return make.case([total, *others, *(t for t in made if make.chance(0.1))])


def windows(seed: int) -> Case:
    """Convolutions with strides, dilation and padding: their gradients are guarded contractions."""
    make = Maker(seed)
    stride, dilation, taps = make.between(1, 3), make.between(1, 2), make.between(1, 4)
    outer, channels, filters, border = make.between(2, 6), make.between(1, 3), make.between(1, 4), make.between(0, 2)
    extent = stride * (outer - 1) + dilation * (taps - 1) + 1 - 2 * border
    if extent < 1:
        extent, border = extent + 2 * border, 0
    x, w = make.input(channels, extent), make.input(filters, channels, taps)
    c, r = nf.axis(channels, "c"), nf.axis(taps, "r")

    def product(o, p):
        at = stride * p + dilation * r - border
        inside = (at >= 0) & (at < extent)
        return nf.sum(nf.select(inside, x[c, at] * w[o, c, r], 0.0), axis=[c, r])

    y = nf.compute((filters, outer), product)
    return make.case([nf.tanh(y) if make.chance(0.5) else y])


def borders(seed: int) -> Case:
    """Paddings of what was rounded before, with numbers that are narrow too and others."""
    make = Maker(seed)
    rows, low, high = make.between(3, 9), make.between(0, 2), make.between(1, 3)
    given = nf.cast(make.input(rows), make.pick(("float16", "bfloat16")))
    wide, around = nf.cast(given, "float32"), make.pick((0.0, 0.5, 0.1))

    def body(i):
        return nf.select((i >= low) & (i < low + rows), wide[i - low], around)

    p = nf.compute((rows + low + high,), body)
    return Case([p * 2.0, *((wide,) if make.chance(0.3) else ())], make.feeds)


def long_bodies(seed: int) -> Case:
    """One body, for every twelfth seed of hundreds of operations: a chain, partly under conditions, some used again."""
    make = Maker(seed)
    size, count = make.between(3, 7), make.between(26, 45) if seed % 12 == 0 else make.between(1, 4)
    x = make.input(size + count)

    def body(i):
        e = kept = x[i]
        for n in range(count):
            e = nf.tanh(e) + x[i + n]
            e = e if make.chance(0.8) else nf.select(x[i + n] < 0.0, e - kept, e)
            kept = e if make.chance(0.05) else kept
        return e

    y = nf.compute((size,), body, name="y")
    return Case([y, nf.sum(y * y)], make.feeds)


def rotations(seed: int) -> Case:
    """Parts that depend on fewer axes than what they are in, or on coarser indices, some of them guarded."""
    make = Maker(seed)
    rows, width, batch = make.between(4, 9), 2 * make.between(8, 12), make.between(48, 64)
    fine, coarse = make.input(rows, width), make.input(rows, width // 2)
    x = make.input(batch, rows, width)
    part = make.pick((lambda t, d: fine[t, d], lambda t, d: coarse[t, d // 2], lambda t, d: fine[0, d % 8] + 1.0))
    function = make.pick((nf.cos, nf.exp, nf.tanh))

    def body(b, t, d):
        factor = function(part(t, d) * 0.5)
        return x[b, t, d] * (nf.select(x[b, t, d] > 0, factor, 0.5) if make.chance(0.3) else factor)

    return make.case([nf.compute((batch, rows, width), body)])


def lookups(seed: int) -> Case:
    """Contractions of what is found at indices from data, and gradients of them."""
    make = Maker(seed)
    edges, nodes, inner, width = make.between(6, 12), make.between(3, 5), make.between(3, 6), make.between(8, 12)
    table, weight = make.input(nodes, inner), make.input(inner, width)
    ids = nf.placeholder((edges,), "int64", name="ids")
    scale = make.input(edges, inner)
    k = nf.axis(inner, "k")
    scaled = make.chance(0.5)

    def body(e, o):
        found = table[ids[e], k] * scale[e, k] if scaled else table[ids[e], k]
        return nf.sum(found * weight[k, o], axis=[k])

    y = nf.compute((edges, width), body)
    case = make.case([y])
    return Case(case.roots, {**case.feeds, ids: make.rng.integers(0, nodes, edges)})


def linear_sums(seed: int, least: int = 72, most: int = 80) -> Case:
    """Sums over two axes or three of terms that share factors: under conditions, divided, looked up, shared."""
    make = Maker(seed)
    rows, inner, outer = (make.between(least, most) for _ in range(3))
    g, w, a = make.input(rows, inner), make.input(inner, outer), make.input(outer, rows)
    b = make.input(outer) if make.chance(0.5) else None
    ids = nf.placeholder((rows,), "int64", name="ids") if make.chance(0.3) else None
    r, s = nf.axis(inner, "r"), nf.axis(outer, "s")
    kind = make.pick(("product", "product", "terms", "guarded", "divided", "of one axis"))

    def term(p, sign=1.0):
        at = p if ids is None else ids[p]
        product = [g[at, r], w[r, s], a[s, p] * sign if kind == "terms" else a[s, p]]
        first, second, third = make.shuffled(product)
        return first * second * third if make.chance(0.5) else first * (second * third)

    def body(p):
        e = term(p)
        if kind == "terms":
            e = e - (g[p if ids is None else ids[p], r] * w[r, s]) * nf.tanh(b[s] if b is not None else a[s, p])
        elif kind == "guarded":
            e = nf.select(a[s, p] > 0.0, e, 0.0)
        elif kind == "divided":
            e = -(e / (1.5 + a[s, p] * a[s, p]))
        elif kind == "of one axis":
            return nf.sum(g[p, r] * w[r, 0] / (1.5 + nf.exp(a[0, p])) * a[1, p], axis=[r])
        return nf.sum(e, axis=[r, s] if make.chance(0.5) else [s, r])

    case = make.case([nf.compute((rows,), body)])
    return case if ids is None else Case(case.roots, {**case.feeds, ids: make.rng.integers(0, rows, rows)})


def steps(seed: int) -> Case:
    """Bodies that differ in where they read and in the numbers of their conditions; few in a chain, or many."""
    make = Maker(seed)
    is_chain, width = make.chance(0.5), make.between(3, 6)
    count = 11 if is_chain else 36
    x, border = make.input(2, width, count + width), make.between(0, 2)
    y = make.input(count * width + 2)

    reads = (
        lambda t, b, i: x[b, i, t + border],
        lambda t, b, i: nf.select(i <= t, x[b, i, t + width - 1 - i], 0.0),
        lambda t, b, i: nf.select((t - i >= 0) & (t - i < count - border), x[b, i, t - i], 0.5),
        lambda t, b, i: y[t * width + i] * y[t + i + 1],
        lambda t, b, i: nf.select((i >= 1) & (i + t >= width), x[b, i - 1, (t + 1) % 7], y[t]),
    )
    read = make.pick(reads)
    h = make.input(2, width)
    made = [h]
    for t in range(count):
        h = nf.compute((2, width), lambda b, i, t=t, h=made[-1 if is_chain else 0]: nf.tanh(h[b, i]) + read(t, b, i))
        made.append(h)
    return make.case([h, *make.shuffled(made[1:-1])[:3]]) if is_chain else Case(made[1:], make.feeds)


def recurrences(seed: int) -> Case:
    """Cells unrolled over slices, computed inputs or both: every step projects by the same weights and adds to their
    gradients; some states are read or returned elsewhere."""
    make = Maker(seed)
    count, batch, size = make.between(3, 6), make.between(4, 6), make.between(4, 6)
    given, h = make.input(count, batch, size), make.input(batch, size)
    w, u = make.input(size, size), make.input(size, size)
    k = nf.axis(size, "k")
    back, is_deep, skips = make.chance(0.3), make.chance(0.5), make.chance(0.3)

    def projected(x, by):
        return nf.compute((batch, size), lambda b, o: nf.sum(x[b, k] * by[o, k], axis=[k]))

    xs = [given[t] if make.chance(0.9) else make.input(batch, size) for t in range(count)]
    xs = [nf.tanh(x) for x in xs] if is_deep else xs
    states: list[Tensor] = []
    for x in reversed(xs) if back else xs:
        h = nf.tanh(projected(x, w) + projected(h, u) + (states[0] if skips and states else 0.0))
        states.append(h)
    if make.chance(0.5):
        states += [nf.tanh(projected(s, w if make.chance(0.5) else u)) for s in states]
    last = nf.stack(states) if make.chance(0.5) else states[-1]
    return make.case([nf.sum(last * last), *(s for s in states if make.chance(0.15))])


def norms(seed: int) -> Case:
    """Normalisations over rows or the other way, of what several sums read; means and weights kept broadcastable."""
    make = Maker(seed)
    batch, channels, space = make.between(2, 4), make.between(2, 5), make.between(2, 4)
    over = make.pick(((0, 2), (0, 2), (2,), (0,)))
    x, weight = make.input(batch, channels, space), make.input(channels)
    gamma = nf.compute((1, channels, 1), lambda _, c, __: weight[c], name="gamma")
    mean = nf.mean(x, over, keepdims=True)
    centred = x - mean
    variance = nf.mean(centred * centred, over, keepdims=True)
    y = centred * nf.rsqrt(variance + 0.1)
    y = y * gamma if make.chance(0.7) else gamma * y * 0.5
    y = nf.tanh(y) if make.chance(0.5) else y * make.input(batch, channels, space)
    others = [nf.sum(y * centred, over), nf.sum(y * gamma, over), nf.sum(gamma * (x - y), over)]
    return make.case([nf.sum(y * y), *(t for t in others if make.chance(0.4)), *((mean,) if make.chance(0.2) else ())])


def branches(seed: int) -> Case:
    """Convolutions and products that share what they read, or add what they give: weights that are slices, given or
    computed, results side by side along any dimension, in any order, added, or read one by one."""
    make = Maker(seed)
    count, batch, channels, filters = make.between(2, 5), make.between(2, 4), make.between(2, 5), make.between(2, 5)
    taps, stride, border = make.between(1, 3), make.between(1, 2), make.between(0, 1)
    outer = make.between(3, 6)
    extent = max(1, stride * (outer - 1) + taps - 2 * border)
    outer = (extent + 2 * border - taps) // stride + 1
    c, r = nf.axis(channels, "c"), nf.axis(taps, "r")
    shape = (filters, channels, taps)
    kind = make.pick(("slices", "last", "given", "computed"))
    every = make.input(count, *shape) if kind == "slices" else make.input(*shape, count)
    weights = {
        "slices": lambda n: every[n],
        "last": lambda n: every[..., n],
        "given": lambda n: make.input(*shape),
        "computed": lambda n: nf.tanh(every[..., n] * (n + 1.0)),
    }
    ws = make.shuffled([weights[kind](n) for n in range(count)])
    x = make.input(batch, channels, extent)
    xs = [x] * count if make.chance(0.7) else [make.input(batch, channels, extent) for _ in range(count)]
    shared = make.chance(0.3)

    def convolved(x, w):
        padded = nf.pad(x, [(0, 0), (0, 0), (border, border)])
        return nf.compute(
            (batch, w.shape[0], outer), lambda b, o, p: nf.sum(padded[b, c, stride * p + r] * w[o, c, r], axis=[c, r])
        )

    ys = [convolved(x, ws[0] if shared else w) for x, w in zip(xs, ws, strict=True)]
    ys = [nf.tanh(y) for y in ys] if make.chance(0.2) else ys
    if make.chance(0.4):
        total = nf.compute(ys[0].shape, lambda b, o, p: sum((y[b, o, p] for y in ys[1:]), ys[0][b, o, p]))
        return make.case([total * total, *(y for y in ys if make.chance(0.1))])
    y = nf.stack(make.shuffled(ys), axis=make.between(0, 3))
    return make.case([nf.sum(y * y) if make.chance(0.5) else y, *(y for y in ys if make.chance(0.1))])


def widths(seed: int) -> Case:
    """Projections of one matrix to several widths, by weights that are given or computed, in one order of axes."""
    make = Maker(seed)
    rows, inner, last = make.between(60, 70), make.between(3, 6), make.chance(0.5)
    x, k = make.input(rows, inner), nf.axis(inner, "k")
    ws = [make.input(make.between(3, 6), inner) for _ in range(make.between(2, 3))]
    ws = [nf.tanh(w) for w in ws] if make.chance(0.3) else ws

    def projected(w):
        if last:
            return nf.compute((rows, w.shape[0]), lambda i, j: nf.sum(x[i, k] * w[j, k], axis=[k]))
        return nf.compute((w.shape[0], rows), lambda j, i: nf.sum(x[i, k] * w[j, k], axis=[k]))

    ys = [projected(w) for w in ws]
    y = nf.concat([nf.tanh(y) for y in ys] if make.chance(0.5) else ys, axis=1 if last else 0)
    return make.case([y * y, *(y for y in ys if make.chance(0.1))])


def overlaps(seed: int) -> Case:
    """Products of some of several matrices by some of several weights, of one width or of two: groups that share the
    matrix, or the weight, and overlap; read one by one or put together."""
    make = Maker(seed)
    rows, inner, widths = make.between(60, 70), make.between(3, 6), (make.between(3, 6), make.between(3, 6))
    k = nf.axis(inner, "k")
    xs = [make.input(rows, inner) for _ in range(make.between(1, 3))]
    ws = [make.input(inner, make.pick(widths)) for _ in range(make.between(2, 4))]

    def product(x, w):
        return nf.compute((rows, w.shape[1]), lambda i, j: nf.sum(x[i, k] * w[k, j], axis=[k]))

    ys = [product(x, w) for x in xs for w in ws if make.chance(0.8)] or [product(xs[0], ws[0])]
    read = [nf.tanh(y) if make.chance(0.5) else nf.exp(-y[::2]) for y in make.shuffled(ys)]
    return make.case([nf.concat(read, axis=1) if len({r.shape[0] for r in read}) == 1 else nf.sum(read[0]), *read])


def samples(seed: int) -> Case:
    """Sums over all samples of what is made for several readers, channel by channel; at times another one needs one."""
    make = Maker(seed)
    batch, channels, more = make.between(2, 3), make.between(2, 3), (make.between(2, 3),) if make.chance(0.3) else ()
    shape = (batch, *more, channels, 30_000 // (batch * channels) + make.between(0, 9))
    a, b = make.input(*shape), make.input(*shape)
    x = a * b - a if make.chance(0.8) else a + 1.0
    over = tuple(d for d in range(len(shape)) if d != len(shape) - 2)
    total = nf.sum(x, axis=list(over))
    weighed = nf.sum(x * b, axis=list(over)) if make.chance(0.5) else total
    centred = nf.compute(shape, lambda *i: x[i] - total[i[-2]] * weighed[i[-2]])
    spread = nf.sum(centred * centred, axis=list(over))
    y = nf.compute(shape, lambda *i: centred[i] * (spread[i[-2]] if make.chance(0.3) else 2.0))
    roots = [nf.sum(y * y), *make.shuffled([x, total])[: make.between(0, 2)]]
    return make.case(roots) if make.chance(0.3) else Case(roots, make.feeds)


PROGRAMS = (
    anything,
    sums,
    windows,
    borders,
    long_bodies,
    rotations,
    lookups,
    linear_sums,
    steps,
    recurrences,
    norms,
    branches,
    widths,
    overlaps,
    samples,
)
