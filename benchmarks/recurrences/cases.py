"""Which recurrences of how many steps at which sizes: the rows."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from benchmarks.rows.cases import Row, Shape

STEPS = (16, 128, 1024, 4096)
SMALL = 6
"""Steps of a dry run."""
Sizes = tuple[tuple[Shape, float], ...]
"""Of each input its shape, and what standard normal numbers are multiplied by."""


def _lstm(t: int, b: int = 16, i: int = 64, h: int = 64) -> Sizes:
    return ((t, b, i), 1.0), ((4 * h, i), 0.1), ((4 * h, h), 0.1), ((4 * h,), 0.1)


def _mi_lstm(t: int, b: int = 16, i: int = 64, h: int = 64) -> Sizes:
    vectors: Sizes = (((4 * h,), 0.1),) * 2 + (((4 * h,), 1.0),) * 3
    return ((t, b, i), 1.0), ((4 * h, i), 0.1), ((4 * h, h), 0.1), *vectors


def _selective_scan(t: int, b: int = 4, d: int = 64, n: int = 16) -> Sizes:
    return ((t, b, d), 1.0), ((d, d), 0.1), ((d,), 1.0), ((d, n), 0.1), ((d, n), 0.1), ((d, n), 0.5), ((d,), 1.0)


def _rwkv(t: int, b: int = 4, d: int = 128) -> Sizes:
    mixes, matrices, vectors = ((((d,), 1.0),) * 3, (((d, d), 0.08),) * 4, (((d,), 1.0),) * 2)
    return ((t, b, d), 1.0), *mixes, *matrices, *vectors


def _soft_dtw(t: int, b: int = 1, d: int = 8) -> Sizes:
    return ((t, b, d), 1.0), ((t, b, d), 1.0)


def _ctc(t: int, b: int = 8, c: int = 32, s: int = 64) -> Sizes:
    return ((t, b, c), 1.0), ((b, min(s, t // 4)), 1.0)


def _ode(t: int, b: int = 32, d: int = 32, h: int = 64) -> Sizes:
    return ((b, d), 1.0), ((d, h), 0.2), ((h,), 0.1), ((h, d), 0.2), ((d,), 0.1)


def _decoder(t: int, b: int = 2, d: int = 64, v: int = 256) -> Sizes:
    squares: Sizes = (((d, d), 0.2),) * 4
    return ((v, d), 0.5), ((t, d), 0.5), *squares, ((d, 4 * d), 0.1), ((4 * d, d), 0.1), ((b,), 1.0)


KINDS: dict[str, tuple[str, Callable[..., Sizes], dict[str, int]]] = {
    "lstm": ("LSTM", _lstm, {"b": 2, "i": 3, "h": 4}),
    "mi_lstm": ("MI-LSTM", _mi_lstm, {"b": 2, "i": 3, "h": 4}),
    "selective_scan": ("selective scan", _selective_scan, {"b": 2, "d": 3, "n": 4}),
    "rwkv": ("RWKV", _rwkv, {"b": 2, "d": 5}),
    "soft_dtw": ("soft-DTW", _soft_dtw, {"b": 2, "d": 3}),
    "ctc": ("CTC", _ctc, {"b": 2, "c": 4, "s": 2}),
    "euler": ("neural ODE, Euler", _ode, {"b": 2, "d": 3, "h": 5}),
    "rk4": ("neural ODE, RK4", _ode, {"b": 2, "d": 3, "h": 5}),
    "decoder": ("decoder", _decoder, {"b": 2, "d": 4, "v": 7}),
}
"""By form: title, sizes, small sizes."""
GAMMA = 1.0
IDS = {"ctc": "c", "decoder": "v"}
"""By form, which size the integers of the last input are below; of labels, the last class is no one's."""


def rows(dry: bool = False) -> tuple[Row, ...]:
    """All of them. dry: of the same names at tiny sizes. The decoder only generates: its gradients would take all that
    is kept of all steps once a step."""
    return tuple(
        of_steps(form, SMALL if dry else t, f"{title}, T = {t}", dry, form != "decoder")
        for form, (title, _, _) in KINDS.items()
        for t in STEPS
    )


def of_steps(form: str, t: int, name: str = "", is_small: bool = False, with_gradients: bool = True) -> Row:
    """A recurrence of t steps."""
    _, sizes, small = KINDS[form]
    given = small if is_small else {}
    found = sizes(t, **given)
    shapes = tuple(s for s, _ in found)
    chosen = {p.name: p.default for p in signature(sizes).parameters.values()} | given
    ids = chosen[IDS[form]] - (form == "ctc") if form in IDS else 0
    options: dict[str, float] = {"steps": t} if form in ("euler", "rk4") else {}
    options |= {"gamma": GAMMA} if form == "soft_dtw" else {}
    wrt = tuple(range(len(shapes) - bool(ids))) if with_gradients else ()
    cotangents = (out_of(form, shapes),) if with_gradients else ()
    scales = (*(s for _, s in found), *(1.0 for _ in cotangents))
    return Row(name, form, shapes, options, wrt, cotangents, ids=ids, scales=scales)


def out_of(form: str, shapes: tuple[Shape, ...]) -> Shape:
    """The shape of the value."""
    first = shapes[0]
    if form in ("lstm", "mi_lstm"):
        return (*first[:2], shapes[2][1])
    if form in ("soft_dtw", "ctc"):
        return (first[1],)
    return (shapes[1][0], *shapes[-1]) if form == "decoder" else first
