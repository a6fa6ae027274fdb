"""Correlations, cyclic convolutions, products of matrices and adjoints of strided reads in many forms, of any sizes."""

from dataclasses import dataclass

import numpy as np

import neoflow as nf


@dataclass(frozen=True)
class Program:
    """roots over inputs; found: how many of its contractions have windows, go round in circles, can be halved, or are
    adjoints of strided reads."""

    roots: list
    inputs: list
    found: int


def convolution(make):
    """With its gradients, whatever the padding."""
    batch, channels, filters = make.between(1, 3), make.between(8, 9), make.between(8, 10)
    x = nf.placeholder((batch, channels, make.between(6, 9), make.between(6, 9)), name="x")
    w = nf.placeholder((filters, channels, 3, 3), name="w")
    y = nf.nn.functional.conv2d(x, w, padding=make.between(0, 2))
    g = nf.placeholder(y.shape, name="g")
    return Program([y, *nf.vjp(y, [x, w], g)], [x, w, g], 3)


def capsules(make):
    """Matrices instead of numbers, as in capsule networks."""
    x = nf.placeholder((2, 4, make.between(6, 7), make.between(6, 9), 3, 2), name="x")
    w = nf.placeholder((3, 4, 3, 3, 2, 5), name="w")
    text = "y[b, o, p, q, i, j] = sum(x[b, c, p + r, q + s, i, k] * w[o, c, r, s, k, j])"
    return Program([nf.expr(text, x=x, w=w)], [x, w], 1)


def lines(make):
    """One window, the channels last, taps the other way round, dilated or not."""
    length, step = make.between(8, 20), make.between(1, 2)
    x = nf.placeholder((2, step * (length + 1) + 1, 9), name="x")
    w = nf.placeholder((3, 9, 4), name="w")
    r, c = nf.axis(3, "r"), nf.axis(9, "c")
    sign = make.pick((1, -1))

    def body(b, p, o):
        at = p + r if sign > 0 else p - r + 2
        return nf.sum(x[b, step * at, c] * w[r, c, o], axis=[r, c])

    return Program([nf.compute((2, length, 4), body)], [x, w], 1)


def groups(make):
    """An axis that both operands and the result have."""
    size = make.between(5, 9)
    x = nf.placeholder((2, 3, 8, size + 2, size + 2), name="x")
    w = nf.placeholder((3, 5, 8, 3, 3), name="w")
    text = "y[b, g, o, p, q] = sum(x[b, g, c, p + r, q + s] * w[g, o, c, r, s])"
    return Program([nf.expr(text, x=x, w=w)], [x, w], 1)


def circulant(make):
    """With its gradients; signs and offsets of both axes are any, and so is the order of dimensions. In float64, since
    the matrices of transforms are constants of the operands' type."""
    points, sign, tap_sign = make.between(8, 13), *(make.pick((1, -1)) for _ in range(2))
    offset, ahead = make.between(0, 9), make.pick((0, 2))
    batch, blocks = make.between(12, 16), make.between(12, 16)
    x = nf.placeholder((points, batch, 13), "float64", "x")
    w = nf.placeholder((blocks, 13, points), "float64", "w")
    j, k = nf.axis(13, "j"), nf.axis(points, "k")

    def body(b, i, n):
        return nf.sum(x[(k + ahead) % points, b, j] * w[i, j, (sign * n + tap_sign * k + offset) % points], axis=[j, k])

    y = nf.compute((batch, blocks, points), body)
    g = nf.placeholder(y.shape, "float64", "g")
    return Program([y, *nf.vjp(y, [x, w], g)], [x, w, g], 3)


def tori(make):
    """Two circles at once, in both of which the same operand is gone round, or either of them."""
    n, m, is_crossed = make.between(7, 9), make.between(6, 8), make.chance(0.5)
    x, w = nf.placeholder((14, 9, n, m), "float64", "x"), nf.placeholder((12, 9, n, m), "float64", "w")
    c, k, l = nf.axis(9, "c"), nf.axis(n, "k"), nf.axis(m, "l")

    def body(b, o, p, q):
        first, second = ((q - l) % m, l) if is_crossed else (l, (q - l) % m)
        return nf.sum(x[b, c, k, first] * w[o, c, (p - k) % n, second], axis=[c, k, l])

    return Program([nf.compute((14, 12, n, m), body)], [x, w], 1)


def rings(make):
    """Windows along one axis, a circle along another, and an axis that all have."""
    points = make.between(9, 12)
    x, w = nf.placeholder((2, 20, 7, points), "float64", "x"), nf.placeholder((2, 12, 3, 7, points), "float64", "w")
    c, r, k = nf.axis(7, "c"), nf.axis(3, "r"), nf.axis(points, "k")

    def body(g, p, o, n):
        return nf.sum(x[g, p + r, c, (n + k) % points] * w[g, o, r, c, k], axis=[c, r, k])

    return Program([nf.compute((2, 18, 12, points), body)], [x, w], 1)


TAPS = ((1, 7), (7, 1), (5, 5), (1, 3), (3, 1), (3, 5), (2, 2), (1, 5), (2, 7))


def any_taps(make):
    """With its gradients, of other taps along each side, or of one tap along one of them."""
    (r, s), high, wide = make.pick(TAPS), make.between(8, 9), make.between(8, 9)
    x = nf.placeholder((2, 8, high + r - 1, wide + s - 1), name="x")
    w = nf.placeholder((9, 8, r, s), name="w")
    y = nf.nn.functional.conv2d(x, w)
    g = nf.placeholder(y.shape, name="g")
    return Program([y, *nf.vjp(y, [x, w], g)], [x, w, g], 3)


def many_taps(make):
    """More taps, and more results, than are one tile."""
    x = nf.placeholder((1, 8, 16 + make.between(0, 1), 16), name="x")
    w = nf.placeholder((3, 8, 9, 8), name="w")
    return Program([nf.nn.functional.conv2d(x, w)], [x, w], 1)


def matrices(make):
    """A product with its gradients, either of both transposed, of a batch or not; a side may have any half."""
    m, n, k = (2 * make.between(1, 9) for _ in range(3))
    flips = make.chance(0.5), make.chance(0.5)
    batch = make.pick(((), (3,)))
    x = nf.placeholder((*batch, *((k, m) if flips[0] else (m, k))), name="x")
    w = nf.placeholder((*batch, *((n, k) if flips[1] else (k, n))), name="w")
    left, right = "k, m" if flips[0] else "m, k", "n, k" if flips[1] else "k, n"
    b = "b, " if batch else ""
    y = nf.expr(f"y[{b}m, n] = sum(x[{b}{left}] * w[{b}{right}])", x=x, w=w)
    g = nf.placeholder(y.shape, name="g")
    return Program([y, *nf.vjp(y, [x, w], g)], [x, w, g], 3)


def points(make):
    """A filter of one tap, with strides or without: rows have several axes, the first even one is halved."""
    step = make.between(1, 2)
    high, wide = (step * n - make.between(0, step - 1) for n in (make.between(1, 5), 2 * make.between(1, 3)))
    x = nf.placeholder((make.pick((2, 3, 4)), 6, high, wide), name="x")
    w = nf.placeholder((2 * make.between(1, 4), 6), name="w")
    return Program([nf.expr(f"y[b, o, p, q] = sum(x[b, c, {step}*p, {step}*q] * w[o, c])", x=x, w=w)], [x, w], 1)


def strides(make):
    """The gradient of an image by a convolution with any steps, taps, dilations and borders, which may be cut off."""
    image = make.between(13, 18), make.between(13, 18)
    steps = make.between(2, 3), make.between(1, 3)
    how = {"stride": steps, "dilation": (make.between(1, 3), make.between(1, 2)), "padding": make.between(0, 2)}
    x = nf.placeholder((2, 3, *image), name="x")
    w = nf.placeholder((2, 3, make.between(2, 3), make.between(1, 3)), name="w")
    return adjoint(lambda: nf.nn.functional.conv2d(x, w, **how), x, w)


def by_channels(make):
    """The same, channel by channel: a class of one tap sums nothing."""
    image = make.between(9, 13), make.between(9, 13)
    x, w = nf.placeholder((2, 3, *image), name="x"), nf.placeholder((3, 1, 3, 3), name="w")
    stride = 2, make.between(2, 3)
    return adjoint(lambda: nf.nn.functional.conv2d(x, w, stride=stride, padding=make.between(0, 1), groups=3), x, w)


def matrices_in_steps(make):
    """Matrices instead of numbers, as in capsule networks."""
    x = nf.placeholder((1, 2, make.between(7, 9), make.between(7, 10), 2, 3), name="x")
    w = nf.placeholder((3, 2, 3, 3, 3, 2), name="w")
    return adjoint(lambda: nf.nn.functional.capsule_conv(x, w, 2, make.between(0, 1)), x, w)


def apart(make):
    """Taps that do not overlap, of an image that may be longer than they reach: each element has one."""
    n = make.between(2, 3)
    x = nf.placeholder((2, 3, n * 3 + make.between(0, n - 1), n * 4), name="x")
    w = nf.placeholder((4, 3, n, n), name="w")
    return adjoint(lambda: nf.nn.functional.conv2d(x, w, stride=n), x, w)


def transposed(make):
    """A transposed convolution: classes are an axis of one contraction."""
    steps = make.between(2, 3), make.between(1, 3)
    how = {"stride": steps, "padding": make.between(0, 1), "output_padding": (steps[0] - 1, 0)}
    x = nf.placeholder((2, 3, make.between(3, 6), make.between(3, 6)), name="x")
    w = nf.placeholder((3, 2, make.between(2, 5), make.between(2, 3)), name="w")
    how["dilation"] = (1, make.between(1, 2))
    return Program([nf.nn.functional.conv_transpose2d(x, w, **how)], [x, w], 1)


def by_hand(make):
    """The same in one line, every tap of each element tried."""
    step, dilation, taps, points = make.between(2, 4), make.between(1, 3), make.between(2, 4), make.between(4, 7)
    border = make.between(0, 2)
    x, w = nf.placeholder((2, 3, points), name="x"), nf.placeholder((3, 4, taps), name="w")
    c, r = nf.axis(3, "c"), nf.axis(taps, "r")

    def body(b, o, z):
        at = z + border - dilation * r
        is_there = nf.equal(at % step, 0) & (at >= 0) & (at // step < points)
        return nf.sum(nf.select(is_there, x[b, c, at // step], 0.0) * w[c, o, r], axis=[c, r])

    extent = step * (points - 1) + dilation * (taps - 1) + 1 - border + make.between(-2, 2)
    return Program([nf.compute((2, 4, extent), body)], [x, w], 1)


def large_windows(make):
    """Few of them, most elements near a border: products are summed first, and gathered after."""
    x = nf.placeholder((1, 8, make.between(15, 18), 15, 2, 2), name="x")
    w = nf.placeholder((8, 8, 7, 7, 2, 2), name="w")
    return adjoint(lambda: nf.nn.functional.capsule_conv(x, w, 2), x, w)


def adjoint(forward, x, w):
    y = forward()
    g = nf.placeholder(y.shape, name="g")
    return Program(nf.vjp(y, [x], g), [x, w, g], 1)


CORRELATIONS = (lines, convolution, capsules, groups, any_taps, many_taps)
CYCLIC = (circulant, tori, rings)
MATRICES = (matrices, points)
UNSPLIT = (apart, transposed, by_hand, large_windows)
STRIDED = (strides, by_channels, matrices_in_steps, *UNSPLIT)


def arrays(program, seed):
    rng = np.random.default_rng(seed)
    return {t: rng.standard_normal(t.shape).astype(t.dtype) for t in program.inputs}
