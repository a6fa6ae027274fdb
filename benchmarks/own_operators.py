"""Five operators that nobody has registered, each in a program as somebody might write it: for `benchmarks.superopt`.

`small` are sizes for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import neoflow as nf

Program = tuple[nf.Tensor, list[nf.Tensor]]
"""What it gives, and its inputs."""


@dataclass(frozen=True)
class Own:
    """build: the program, at some sizes."""

    name: str
    build: Callable[..., Program]
    small: Mapping[str, int]


def capsules(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
    """A convolution of matrices: [B, C, H, W, D, D] and [O, C, 3, 3, D, D]."""
    return nf.expr("y[b,o,p,q,i,j] = sum(x[b,c,2*p+r,2*q+s,i,k] * w[o,c,r,s,k,j])", x=x, w=w)


def capsule_heads(
    batch: int = 4, channels: int = 8, each: int = 8, image: int = 14, d: int = 4, heads: int = 3
) -> Program:
    """Heads of one image side by side, each the sum of what a shared and an own kernel give."""
    x = nf.placeholder((batch, channels, image, image, d, d), name="x")
    shape = (each, channels, 3, 3, d, d)
    shared = nf.parameter(shape, name="shared")
    found = [capsules(x, shared) + capsules(x, nf.parameter(shape, name=f"w{n}")) for n in range(heads)]
    return nf.concat([nf.relu(y) for y in found], axis=1), [x]


def tropical(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
    """The product of matrices with max for the sum and + for the product: [B, I] and [I, O]."""
    return nf.expr("y[b,o] = max[i](x[b,i] + w[i,o])", x=x, w=w)


def tropical_layer(batch: int = 64, inputs: int = 512, outputs: int = 256) -> Program:
    """Two groups of outputs of one input, each clipped."""
    x = nf.placeholder((batch, inputs), name="x")
    groups = [nf.relu(tropical(x, nf.parameter((inputs, outputs), name=f"w{n}"))) for n in range(2)]
    return nf.concat(groups, axis=1), [x]


def circulant(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
    """A linear map whose blocks are circulant: [B, J, N] and [I, J, N]."""
    n = x.shape[2]
    return nf.expr(f"y[b,i,p] = sum(w[i,j,(p - q + {n}) % {n}] * x[b,j,q])", extents={"p": n}, x=x, w=w)


def block_circulant(batch: int = 256, blocks: int = 8, size: int = 64) -> Program:
    """A layer with an adapter beside it, and its input's twin: c(x, w) + c(x, v) + c(z, w) + c(z, v)."""
    x, z = (nf.placeholder((batch, blocks, size), name=n) for n in "xz")
    w, v = (nf.parameter((blocks, blocks, size), name=n) for n in "wv")
    return nf.tanh(circulant(x, w) + circulant(x, v) + circulant(z, w) + circulant(z, v)), [x, z]


def involution(x: nf.Tensor, k: nf.Tensor) -> nf.Tensor:
    """A convolution whose kernel differs from place to place: [B, G, C, H, W] and [B, G, 3, 3, P, Q]."""
    return nf.expr("y[b,g,c,p,q] = sum(x[b,g,c,p+r,q+s] * k[b,g,r,s,p,q])", x=x, k=k)


def two_involutions(batch: int = 4, groups: int = 4, channels: int = 16, image: int = 30) -> Program:
    """Of one image by two kernels, one of them scaled, added."""
    x = nf.placeholder((batch, groups, channels, image, image), name="x")
    k, m = (nf.placeholder((batch, groups, 3, 3, image - 2, image - 2), name=n) for n in "km")
    scale = nf.parameter((), name="scale")
    return nf.relu(involution(x, k) + involution(x, m) * scale), [x, k, m]


def users_cell(batch: int = 8, width: int = 512, steps: int = 4) -> Program:
    """h = f h + (1 - f) c with f and c of x and h, and what is added to both kept apart, as its equations say."""
    xs = nf.placeholder((steps, batch, width), name="x")
    names = ("wf", "uf", "wc", "uc", "vf", "vc")
    wf, uf, wc, uc, vf, vc = (nf.parameter((width, width), name=n) for n in names)
    h = nf.placeholder((batch, width), name="h")
    y = h
    for t in range(steps):
        x = xs[t]
        f = nf.sigmoid(x @ wf + y @ uf + y @ vf)
        c = nf.tanh(x @ wc + y @ uc + y @ vc)
        y = f * y + (1.0 - f) * c
    return y, [xs, h]


OWN = (
    Own("capsule heads", capsule_heads, {"batch": 1, "channels": 2, "each": 2, "image": 7, "d": 2}),
    Own("tropical layer", tropical_layer, {"batch": 3, "inputs": 5, "outputs": 4}),
    Own("block-circulant layer", block_circulant, {"batch": 2, "blocks": 2, "size": 4}),
    Own("involution", two_involutions, {"batch": 1, "groups": 1, "channels": 2, "image": 6}),
    Own("a user's recurrent cell", users_cell, {"batch": 2, "width": 6, "steps": 2}),
)
