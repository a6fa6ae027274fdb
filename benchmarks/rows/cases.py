"""Which operators at which sizes: the rows, each a form that `ours`, `in_torch` and `in_jax` have by the same name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

Shape = tuple[int, ...]
RESOLUTIONS = ((64, 56), (128, 28), (256, 14), (512, 7))
"""Channels and extent of ResNet-50's 3x3 convolutions."""
FIRST = ((64, 64, 56), (128, 256, 56), (256, 512, 28), (512, 1024, 14))
"""Of the first bottleneck of each stage, the channels out of and into its first 1x1 convolution, and the extent: the
stride comes after it, and what comes in is the pooled stem's, or the stage's before."""
CUBES = (256, 512, 1024, 2048)
OBLONG = ((64, 2048, 512), (64, 512, 2048), (1280, 2048, 512))
"""m, n, k."""
LAYOUTS = {"A B": ("mk", "kn"), "A^T B": ("km", "kn"), "A B^T": ("mk", "nk")}
LEAST_FLOPS = 50e6
"""A contraction of fewer operations has no goal of its own."""


@dataclass(frozen=True)
class Row:
    """form: of the operator. shapes: of its inputs, float32; ids: below what the last one's integers are, instead.
    scales: what the standard normal numbers of each are multiplied by; 1 where there are none.

    options: sizes that the form takes. wrt: inputs whose gradients are computed, with_value: and the value beside them.
    cotangents: shapes of the outputs, where there are gradients; they are inputs too, after the others. kind:
    "contraction" or "memory", by what bounds it.
    """

    name: str
    form: str
    shapes: tuple[Shape, ...]
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    wrt: tuple[int, ...] = ()
    cotangents: tuple[Shape, ...] = ()
    with_value: bool = True
    kind: str = "contraction"
    ids: int = 0
    scales: tuple[float, ...] = ()

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of the inputs, cotangents among them."""
        last = "int64" if self.ids else "float32"
        return (*["float32"] * (len(self.shapes) - 1), last, *["float32"] * len(self.cotangents))


def rows(dry: bool = False) -> tuple[Row, ...]:
    """All of them. dry: of the same names at tiny sizes, for a run that only shows that all is well."""
    return (
        *_matmuls(dry),
        *_convolutions(dry),
        *_grouped(dry),
        *_capsules(dry),
        *_in_rows(dry),
        *_in_planes(dry),
        *_cells(dry),
    )


def _matmuls(dry: bool) -> Iterator[Row]:
    small = {"m": 5, "n": 7, "k": 6}
    for m, n, k in (*((c, c, c) for c in CUBES), *OBLONG):
        sizes = small if dry else {"m": m, "n": n, "k": k}
        said = str(m) if m == n == k else f"{m}x{k}x{n}"
        for layout, (left, right) in LAYOUTS.items():
            shapes = tuple(tuple(sizes[c] for c in side) for side in (left, right))
            yield Row(f"matmul {said} {layout}", "matmul", shapes, {"left": left, "right": right})
    batched = ((2, 5, 6), (2, 6, 7)) if dry else ((96, 128, 128), (96, 128, 64))
    yield Row("matmul batched 96x128x64x128", "batched", batched)


def _convolution(
    name: str, batch: int, o: int, c: int, size: int, window: int, stride: int, groups: int, dry: bool
) -> Iterator[Row]:
    """The value, the gradient of the input and that of the kernel, a row each."""
    if dry:
        groups = min(groups, 2)
        batch, o, c, size = 1, 2 * groups, 2 * groups, window + stride + 1
    pad = window // 2
    out = (size + 2 * pad - window) // stride + 1
    shapes: tuple[Shape, ...] = ((batch, c, size, size), (o, c // groups, window, window))
    options = {"stride": stride, "padding": pad, "groups": groups}
    yield Row(f"{name}, y", "convolution", shapes, options)
    for n, what in enumerate(("dx", "dw")):
        yield Row(f"{name}, {what}", "convolution", shapes, options, (n,), ((batch, o, out, out),), False)


def _convolutions(dry: bool) -> Iterator[Row]:
    """ResNet-50's: (what, out channels, in channels, extent, window, stride)."""
    kinds = [("3x3", c, c, size, 3, 1) for c, size in RESOLUTIONS]
    kinds += [("1x1", 4 * c, c, size, 1, 1) for c, size in RESOLUTIONS]
    kinds += [("1x1", c, 4 * c, size, 1, 1) for c, size in RESOLUTIONS]
    kinds += [("1x1", c, inputs, size, 1, 1) for c, inputs, size in FIRST]
    kinds += [("3x3 stride 2", c, c, 2 * size, 3, 2) for c, size in RESOLUTIONS[1:]]
    kinds += [("1x1 stride 2", 4 * c, 2 * c, 2 * size, 1, 2) for c, size in RESOLUTIONS[1:]]
    kinds += [("7x7 stride 2", 64, 3, 224, 7, 2)]
    for batch in (1, 16):
        for what, o, c, size, window, stride in kinds:
            name = f"conv {what} {c}->{o} {size}x{size} b{batch}"
            yield from _convolution(name, batch, o, c, size, window, stride, 1, dry)


def _grouped(dry: bool) -> Iterator[Row]:
    for what, o, c, size, window, groups in (
        ("conv 3x3 grouped 32x4d", 128, 128, 56, 3, 32),
        ("conv 1x1 3 groups", 240, 240, 28, 1, 3),
    ):
        yield from _convolution(f"{what} {c}->{o} {size}x{size} b16", 16, o, c, size, window, 1, groups, dry)
    for c, size in ((64, 56), (240, 28)):
        for row in _convolution(f"depthwise 3x3 {c} {size}x{size} b16", 16, c, c, size, 3, 1, c, dry):
            yield replace(row, kind="memory")


def _capsules(dry: bool) -> Iterator[Row]:
    c, o, size, window, i = (2, 3, 5, 3, 2) if dry else (32, 32, 20, 9, 4)
    out = (size - window) // 2 + 1
    for b in (1, 16):
        batch = 1 if dry else b
        shapes: tuple[Shape, ...] = ((batch, c, size, size, i, i), (o, c, window, window, i, i))
        yield Row(f"capsule convolution b{b}, y", "capsule", shapes)
        for n, what in enumerate(("dx", "dw")):
            cotangent = (batch, o, out, out, i, i)
            yield Row(f"capsule convolution b{b}, {what}", "capsule", shapes, {}, (n,), (cotangent,), False)
    units, channels, filters = (2, 3, 2) if dry else (8, 256, 32)
    batch = 1 if dry else 16
    shapes = ((batch, channels, size, size), (units, filters, channels, window, window))
    yield Row("capsules by 8 convolutions b16, y", "capsules_by_convolutions", shapes)
    for n, what in enumerate(("dx", "dw")):
        name, cotangent = f"capsules by 8 convolutions b16, {what}", (batch, units, filters, out, out)
        yield Row(name, "capsules_by_convolutions", shapes, {}, (n,), (cotangent,), False)


def _in_rows(dry: bool) -> Iterator[Row]:
    """In the level-2 cache, in the last one, in memory."""
    for m, n in ((64, 512), (2048, 768), (16384, 1024)):
        x: Shape = (3, 5) if dry else (m, n)
        vector = x[1:]
        forms: tuple[tuple[str, str, tuple[Shape, ...], tuple[int, ...]], ...] = (
            ("softmax", "softmax", (x,), (0,)),
            ("layer norm", "layer_norm", (x, vector, vector), (0, 1, 2)),
            ("gelu", "gelu", (x,), (0,)),
            ("tanh", "tanh", (x,), (0,)),
        )
        for title, form, shapes, wrt in forms:
            yield from _both(f"{title} {m}x{n}", form, shapes, x, wrt)


def _both(name: str, form: str, shapes: tuple[Shape, ...], out: Shape, wrt: tuple[int, ...]) -> Iterator[Row]:
    """Forward; and forward and backward together, since the one needs what the other keeps."""
    yield Row(f"{name}, forward", form, shapes, kind="memory")
    yield Row(f"{name}, with gradients", form, shapes, {}, wrt, (out,), kind="memory")


def _in_planes(dry: bool) -> Iterator[Row]:
    for b, c, size in ((1, 64, 28), (16, 64, 112)):
        x: Shape = (2, 3, 6, 6) if dry else (b, c, size, size)
        channels = (x[1],)
        yield from _both(f"batch norm {b}x{c}x{size}x{size}", "batch_norm", (x, channels, channels), x, (0, 1, 2))
        pooled = (*x[:2], (x[2] - 1) // 2 + 1, (x[3] - 1) // 2 + 1)
        yield from _both(f"max pool 3x3/2 {b}x{c}x{size}x{size}", "max_pool", (x,), pooled, (0,))


def _cells(dry: bool) -> Iterator[Row]:
    b, i, h = (2, 3, 4) if dry else (64, 512, 512)
    state, gates = (b, h), 4 * h
    lstm: tuple[Shape, ...] = ((b, i), state, state, (gates, i), (gates, h), (gates,))
    for name, form, shapes in (("LSTM", "lstm", lstm), ("MI-LSTM", "mi_lstm", (*lstm, *[(gates,)] * 4))):
        # of weights as they are initialized: gates that saturate have denormal gradients, which slow Intel's cores
        scales = (1.0, 1.0, 1.0, i**-0.5, h**-0.5, *[1.0] * (len(shapes) - 5))
        yield Row(f"{name} cell b64 512, forward", form, shapes, scales=scales)
        wrt, pulled = tuple(range(len(shapes))), (state, state)
        name = f"{name} cell b64 512, with gradients"
        yield Row(name, form, shapes, {}, wrt, pulled, scales=(*scales, 1.0, 1.0))
    words, width, ids = (9, 3, 5) if dry else (10000, 512, 1280)
    name, looked_up = "embedding gradient 10000x512, 1280 ids", ((words, width), (ids,))
    yield Row(name, "embedding", looked_up, {}, (0,), ((ids, width),), False, "memory", words)
