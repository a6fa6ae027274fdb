"""Small programs, one or more for every template, of shapes that are no multiple of anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import neoflow as nf
from neoflow.nn import functional as F

Shape = tuple[int, ...]
Build = Callable[..., Sequence[nf.Tensor]]


@dataclass(frozen=True)
class Form:
    """build: roots over placeholders of the shapes, and of small ones in a dry run. precision: of the program.
    template: by which its kernels are, where it fits."""

    name: str
    build: Build
    shapes: tuple[Shape, ...]
    dry: tuple[Shape, ...]
    dtype: str = "float32"
    precision: str = "fp32"
    template: str = ""

    def title(self) -> str:
        sizes = " ".join("x".join(map(str, s)) for s in self.shapes)
        how = [self.precision] * (self.precision != "fp32") + [f"by {self.template}"] * bool(self.template)
        return " ".join((self.name, sizes, self.dtype, *how))

    def program(self, dry: bool) -> tuple[Sequence[nf.Tensor], list[nf.Tensor]]:
        """Roots and inputs."""
        inputs = [nf.placeholder(s, self.dtype, name=f"x{n}") for n, s in enumerate(self.dry if dry else self.shapes)]
        return self.build(*inputs), inputs


def matmul(a: nf.Tensor, b: nf.Tensor) -> list[nf.Tensor]:
    """Narrow floats are added up in float32; they are cast where they are read, as tensor cores do it."""
    wide, k = "float64" if a.dtype == "float64" else "float32", nf.axis(a.shape[1], "k")

    def product(i: Any, j: Any) -> Any:
        return nf.sum(nf.cast(a[i, k], wide) * nf.cast(b[k, j], wide), axis=[k])

    return [nf.cast(nf.compute((a.shape[0], b.shape[1]), product, name="y"), a.dtype)]


def turned(a: nf.Tensor, b: nf.Tensor) -> list[nf.Tensor]:
    return [nf.expr("y[m,n] = sum(a[k,m] * b[n,k])", a=a, b=b)]


def batched(a: nf.Tensor, b: nf.Tensor) -> list[nf.Tensor]:
    return [nf.tanh(nf.expr("y[s,m,n] = sum(a[s,m,k] * b[s,k,n])", a=a, b=b))]


def with_gradients(operator: Callable[..., nf.Tensor]) -> Build:
    """An operator and the gradients of its mean square."""

    def build(*inputs: nf.Tensor) -> list[nf.Tensor]:
        y = operator(*inputs)
        return [y, *nf.grad(nf.mean(y * y), list(inputs))]

    return build


def convolution(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
    return F.conv2d(x, w, stride=2, padding=1)


def depthwise(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
    return F.depthwise_conv2d(x, w, padding=1)


def capsules(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
    return F.capsule_conv(x, w, stride=2)


def elementwise(x: nf.Tensor, g: nf.Tensor) -> list[nf.Tensor]:
    return [F.gelu(x * g) + nf.erf(x) * nf.exp(-nf.abs(x)), nf.tanh(x) * nf.sigmoid(x)]


def gathered(x: nf.Tensor) -> list[nf.Tensor]:
    """A turned copy, a padded one and a strided one."""
    rows, columns = x.shape
    turn = nf.compute((columns, rows), lambda i, j: x[j, i] * 2.0)
    strided = nf.compute((rows, columns // 2), lambda i, j: x[i, 2 * j] - x[i, 2 * j + 1])
    return [turn, strided]


def sums(x: nf.Tensor) -> list[nf.Tensor]:
    return [nf.sum(x * x, axis=1), nf.sum(x, axis=0), nf.mean(x), nf.max(x, axis=1), nf.argmax(x, axis=0)]


def looked_up(table: nf.Tensor, places: nf.Tensor) -> list[nf.Tensor]:
    """An embedding and its gradient. places: only their shape counts."""
    ids = nf.placeholder(places.shape, "int64", name="ids")
    y = F.embedding(table, ids)
    return [y, *nf.grad(nf.mean(y * y), [table])]


FORMS = (
    Form("elementwise", elementwise, ((1025, 771), (771,)), ((5, 7), (7,))),
    Form("copies", gathered, ((1031, 258),), ((5, 6),)),
    Form("reductions", sums, ((1031, 517),), ((9, 5),)),
    Form("softmax", lambda x: [F.softmax(x), F.log_softmax(x)], ((129, 1001),), ((3, 37),)),
    Form("softmax", lambda x: [F.softmax(x)], ((5, 20011),), ((2, 300),)),
    Form("layer norm", with_gradients(F.layer_norm), ((257, 771),), ((3, 20),)),
    Form("matmul", matmul, ((127, 333), (333, 65)), ((7, 33), (33, 9))),
    Form("matmul", matmul, ((1, 1000), (1000, 77)), ((1, 40), (40, 5))),
    Form("matmul", matmul, ((513, 1025), (1025, 257)), ((17, 20), (20, 18))),
    Form("matmul, turned", turned, ((333, 127), (65, 333)), ((10, 7), (6, 10))),
    Form("matmul, batched", batched, ((7, 33, 65), (7, 65, 19)), ((2, 3, 5), (2, 5, 4))),
    Form("convolution", with_gradients(convolution), ((3, 5, 31, 29), (7, 5, 3, 3)), ((1, 2, 5, 5), (3, 2, 3, 3))),
    Form("depthwise", with_gradients(depthwise), ((3, 17, 31, 29), (17, 1, 3, 3)), ((1, 3, 5, 5), (3, 1, 3, 3))),
    Form(
        "capsules",
        with_gradients(capsules),
        ((3, 5, 9, 9, 4, 4), (7, 5, 3, 3, 4, 4)),
        ((1, 2, 5, 5, 2, 2), (3, 2, 3, 3, 2, 2)),
    ),
    Form("embedding", looked_up, ((101, 33), (257,)), ((5, 3), (9,))),
    Form("matmul", matmul, ((127, 336), (336, 72)), ((16, 16), (16, 16)), "float16"),
    Form("matmul", matmul, ((127, 336), (336, 72)), ((16, 16), (16, 16)), "bfloat16"),
    Form("matmul", matmul, ((127, 336), (336, 72)), ((16, 16), (16, 16)), "float32", "tf32"),
    *(
        Form("matmul", matmul, shapes, ((16, 80), (80, 24)), dtype, precision, "gpu_wgmma")
        for dtype, precision in (("float16", "fp32"), ("bfloat16", "fp32"), ("float32", "tf32"))
        for shapes in (((127, 336), (336, 72)), ((513, 1032), (1032, 264)))
    ),
    Form("matmul", matmul, ((65, 129), (129, 33)), ((5, 6), (6, 4)), "float64"),
    Form("elementwise", elementwise, ((1025, 771), (771,)), ((5, 7), (7,)), "float16"),
    Form("elementwise", elementwise, ((1025, 771), (771,)), ((5, 7), (7,)), "bfloat16"),
    Form("elementwise", elementwise, ((1025, 771), (771,)), ((5, 7), (7,)), "float64"),
)
