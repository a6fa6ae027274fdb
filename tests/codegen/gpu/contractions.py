"""Contractions of every form as kernels: at the edges of tiles, convolutions, gradients, prologues, epilogues."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Tensor
from neoflow.graph import make_graph
from neoflow.loops import fits, problem_of
from neoflow.nn import functional as F
from neoflow.partition.subgraph import Subgraph
from neoflow.rewriting import stages
from neoflow.trace import Trace
from tests.codegen.kernels import subgraph_of
from tests.loops.programs import product, subgraphs


def matmul(m: int, n: int, k: int, dtype: str = "float32") -> Subgraph:
    """[m, k] times [k, n]."""
    a, b = nf.placeholder((m, k), dtype), nf.placeholder((k, n), dtype)
    return subgraph_of([product(a, b)], [a, b])


def turned(a: Tensor, b: Tensor) -> Tensor:
    """[k, m] times [n, k]."""
    k = nf.axis(a.shape[0], "k")
    return nf.compute((a.shape[1], b.shape[0]), lambda i, j: nf.sum(a[k, i] * b[j, k], axis=[k]))


def narrow(a: Tensor, b: Tensor) -> Tensor:
    """A product of narrow floats in float32, with an epilogue."""
    return nf.tanh(product(nf.cast(a, "float32"), nf.cast(b, "float32"))) * 0.5


CAPSULES = ((2, 3, 7, 6, 4, 4), (5, 3, 3, 3, 4, 4))
FORMS: tuple[tuple[str, tuple[tuple[int, ...], ...], Callable[..., Tensor]], ...] = (
    ("turned", ((36, 40), (24, 36)), turned),
    ("epilogue", ((21, 53), (53, 75)), lambda a, b: nf.tanh(nf.exp(product(a, b) * 0.01) + 1.0)),
    ("prologue", ((12, 33), (33, 17), (33,)), lambda a, b, c: product(a * c, nf.tanh(b) + 1.0)),
    ("batched", ((3, 18, 20), (3, 20, 36)), lambda a, b: nf.expr("y[s,i,j] = sum(a[s,i,k] * b[s,k,j])", a=a, b=b)),
    ("inner batch", ((18, 3, 20), (20, 3, 16)), lambda a, b: nf.expr("y[i,s,j] = sum(a[i,s,k] * b[k,s,j])", a=a, b=b)),
    ("convolution", ((2, 5, 11, 13), (7, 5, 3, 3)), lambda x, w: F.conv2d(x, w, stride=2, padding=1)),
    ("grouped", ((2, 6, 9, 11), (8, 3, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1, groups=2)),
    ("capsules", CAPSULES, lambda x, w: F.capsule_conv(x, w, stride=2)),
    ("deep", ((16, 1100), (1100, 24)), product),
)


@lru_cache(maxsize=4)
def forms(gradients: bool = True, dtype: str = "float32") -> dict[str, Subgraph]:
    """The contractions of each form, and of its gradients."""
    found: dict[str, Subgraph] = {}
    for name, shapes, function in FORMS:
        inputs = [nf.placeholder(s, dtype, name=f"x{n}") for n, s in enumerate(shapes)]
        y = function(*inputs)
        roots = [y, *(nf.vjp(nf.sum(y * y), inputs) if gradients else ())]
        kernels = [s for s in subgraphs(roots, inputs) if fits("gpu_contraction", problem_of(s)).ok]
        found |= {f"{name} {n}": s for n, s in enumerate(kernels)}
    return found


@lru_cache(maxsize=4)
def narrow_forms(dtype: str) -> dict[str, Subgraph]:
    """The same of inputs of a narrow type, whose products are added in float32."""
    return {name: narrowly(s, dtype) for name, s in forms().items()}


def narrowly(subgraph: Subgraph, dtype: str) -> Subgraph:
    """The kernel with the float32 inputs of its contraction of a narrow type, from which it casts them."""
    given, outputs = subgraph.tensors()
    assert subgraph.anchor is not None
    read = {n for node in subgraph.nodes[: subgraph.anchor + 1] for n in node.inputs}
    stored = {
        t: nf.placeholder(t.shape, dtype) if n in read and t.dtype == "float32" else t for n, t in enumerate(given)
    }
    cast = {t: nf.cast(s, "float32") for t, s in stored.items() if s is not t}
    return subgraph_of(replaced(outputs, cast.get), list(stored.values()))


@lru_cache(maxsize=1)
def in_tf32() -> dict[str, Subgraph]:
    """Products in TF32: of odd shapes and of large ones, of expressions, padded; capsules and their gradients."""
    v, u = nf.placeholder((1, 3, 5, 6, 4, 4)), nf.placeholder((4, 3, 3, 3, 4, 4))
    y = F.capsule_conv(v, u, stride=2)
    programs: dict[str, tuple[list[Tensor], list[Tensor]]] = {"capsules": ([y, *nf.vjp(nf.sum(y * y), [v, u])], [v, u])}
    for name, shapes, function in (
        ("product", ((33, 42), (42, 50)), product),
        ("large", ((4096, 1024), (1024, 4096)), product),
        ("expression", ((33, 42), (42, 50), (42,)), lambda a, b, c: product(nf.relu(a) * c, b)),
        ("convolution", ((2, 3, 7, 9), (8, 3, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1)),
    ):
        inputs = [nf.placeholder(s) for s in shapes]
        programs[name] = [function(*inputs)], inputs
    found: dict[str, Subgraph] = {}
    for name, (outputs, inputs) in programs.items():
        divided = stages(make_graph(outputs, inputs), Trace(), gpu_target("cuda", "sm_80"), "tf32")[1]
        kernels = [s for s in dict.fromkeys(divided.subgraphs) if fits("gpu_contraction", problem_of(s)).ok]
        found |= {f"{name} {n}": s for n, s in enumerate(kernels)}
    return found
