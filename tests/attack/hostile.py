"""Texts and arguments made to hurt: too deep, too large, of characters that no text has.

A case is a call; it ends within a second, in a result or in one of neoflow's own errors, which can be printed, is not
longer than a page and shows no frame of neoflow.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

import neoflow as nf
from neoflow.code import Code
from neoflow.errors import NeoflowError
from neoflow.graph import Graph
from neoflow.loops import schedule_from_json
from neoflow.pipeline import compile_program
from tests.text.nouns import TARGET, nouns_of

Case = Callable[[], object]
SECONDS, PAGE = 1.0, 4000
PACKAGE = str(Path(nf.__file__).parent)
x, v = nf.placeholder((4, 5), name="x"), nf.placeholder((5,), name="v")
ids, s = nf.placeholder((4,), "int64", name="ids"), nf.placeholder((), name="s")
MANY = 100_000
LARGE = (2**31 - 1, 2**31, 2**32, 2**40, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**100, 10**5000)
RANKS = (10, 17, 31, 32, 33, 40, 63, 64, 65, 1000, 10**5)

TEXTS = (
    # numbers
    "y = s * (((10**64)**64)**64)**64",
    "y = s * (9**64)**(9**64)",
    "y = s * 10**-400",
    "y = s * (-8)**0.5",
    "y = s * 2.0**5000",
    f"y = s * (0x{'F' * 20000}**64)",
    f"y = s * {'*'.join(['0x' + 'F' * 200] * 200)}",
    f"y = s * {'9' * 5000}",
    f"y = s * 1{'0' * 400}",
    f"y = v[1{'0' * 30}]",
    "y[i] = v[i * 10**30]",
    "y[i] = v[i] * (1/0)",
    "y[i] = v[i % 0]",
    "y[i] = v[i // (1 - 1)]",
    "y[i] = v[nan]",
    "y[i] = v[i] * 1j",
    "y[i] = cast(v[i], int8) + 1000",
    # length and depth
    f"y[i] = v[i] if {' < '.join(['i'] * MANY)} else 0.0",
    f"y[i] = v[i] if {' < '.join(['1'] * MANY)} else 0.0",
    f"y[i] = v[i] if {' < '.join(['v[i]'] * MANY)} else 0.0",
    f"y[i] = v[i] if {' and '.join(['i < 3'] * MANY)} else 0.0",
    f"y[i] = {' + '.join(['v[i]'] * MANY)}",
    f"y[i] = v[i] + {' + '.join(['1'] * 2000)}",
    f"y[i] = v[i]{' ** 2' * 2000}",
    f"y[i] = {'-' * MANY}v[i]",
    f"y[i] = {'-' * 2000}v[i]",
    f"y[i] = v[i] if {'not ' * 2000}(i<3) else 0.0",
    f"y[i] = {'(' * MANY}v[i]{')' * MANY}",
    f"y[i] = {'(' * 150}v[i]{')' * 150}",
    f"y[i] = {'(' * MANY}",
    f"y[i] = {'v[' * MANY}i{']' * MANY}",
    f"y[i] = {'ids[' * 150}i{']' * 150}",
    f"y[i] = {'exp(' * 190}v[i]{')' * 190}",
    f"y[i] = {'v[i] if i < 2 else ' * 20000}v[i]",
    f"y[i] = {'lambda: ' * 1000}v[i]",
    f"y[i] = {'[' * 190}{']' * 190}",
    ";" * MANY,
    "\n" * MANY + "y[i] = v[i]",
    "# a\n" * MANY + "y[i] = v[i]",
    f"y[i] = 'abc{'a' * MANY}",
    f"y[i] = {chr(39) * MANY}",
    f"y[i] = {'q' * 20000}[i]",
    f"y[{'i' * 20000}] = v[{'i' * 20000}]",
    f"y[i] = {'f' * 20000}(v[i])",
    f"y[i] = v[i]{' ' * 5_000_000}",
    f"y[i] = v[i] + {'1 + ' * 5000}q",
    "y = " + "".join(f"sum[i{n}<2](" for n in range(40)) + "s" + ")" * 40,
    f"y[i<2**31] = v[{'(' * 50}i{'*2147483647)' * 50} % 5]",
    f"y[i<1000] = v[{'(' * 90}i{' * 7 % 1000003)' * 90} % 5]",
    f"y[i<1000000] = v[{'(' * 60}i{' // 3 + 1)' * 60} % 5]",
    # characters
    "y[i] = v[i]\0",
    "y[i] = v[\ud800]",
    "y[i] = '\udfff'",
    "y[i] = v[😀]",
    "y[i] = v[ש]",
    "ש[א] = v[א]",
    "y[i] = v[i] \u202e + 1",
    "\ufeffy[i] = v[i]",
    "y[i] = v[i]\x0c + q",
    "y[i] = v[i]\u2028 + q",
    "y[i] = v[i]\x85 + é",
    "y[ï] = v[ï] + ééé[ï]",
    "y[i] =\x0bv[i] + q",
    "y[i] = v[i]\ry = q[i]",
    "y[i] = v[i]\r\nz[i] = y[i] * q",
    "y[i]\u00a0= v[i]",
    "y[i\u200d] = v[i\u200d]",
    "y[ｉ] = v[ｉ]",
    "y[i] = v[i]²",
    "\ty[i] = v[i]\n\tz[i] = y[i]",
    "y[i] = v[i]\n    z[i] = y[i]",
    "y[i] = \\\n v[i]",
    "y[i] = v[i] \\",
    "\\",
    # what Python has and the notation lacks
    "y[i] = 'abc'",
    "y[i] = b'abc'",
    "y[i] = f'{v[i]}'",
    f"y[i] = f'{{{'f{' * 50}",
    "y[i] = (z := v[i])",
    "y[i] = v[*i]",
    "y[i] = exp(*v[i])",
    "y[i] = sum(**v)",
    "y[i] = cast(**v)",
    "y[i] = v[1:2]",
    "y[i] = v[...]",
    "y[i] = None",
    "y[i] = await v[i]",
    "y[i] = yield v[i]",
    "y[i] = [v[i] for i in v]",
    "y[i] = {1: v[i]}",
    "y[i] = v.shape",
    "y[i] = v.__class__.__bases__",
    "import os",
    "y = __import__('os').system('true')",
    "del y",
    "y[i] += v[i]",
    "y[i]: int = v[i]",
    "y = z = s",
    "y, z = s, s",
    "y.a = s",
    "y() = s",
    "3 = s",
    "None = s",
    "y[()] = s",
    "",
    " \n ",
    "y[i] = v[i] if i is 3 else 0.0",
    "y[i] = v[i] if i in v else 0.0",
    "y = v @ v",
    "y[i] = v[i << 2]",
    # extents
    "y[i<inf] = 1.0",
    "y[i<nan] = 1.0",
    "y[i<10**30] = 1.0",
    "y[i<2**63] = 1.0",
    "y[i<2**62] = 1.0",
    "y[i<2**40] = 1.0",
    "y[i<2**40,j<2**40] = 1.0",
    "y[i<2**31] = 1.0",
    f"y[{', '.join(f'i{n}<2' for n in range(33))}] = 1.0",
    f"y[{', '.join(f'i{n}<1' for n in range(64))}] = 1.0",
    f"y[{', '.join(f'i{n}<1' for n in range(1000))}] = 1.0",
    f"y = sum[{', '.join(f'i{n}<1' for n in range(1000))}](s)",
    "y = sum[i<2**35, j<2**35](1.0)",
    "y[i<3000,j<3000] = v[i*j//2000000]",
    "y[i<99991,j<99989] = v[((i*1234577 + j*7654321) % 99907 + (j*3) % 88811) % (i % 3 + 1)]",
    "y[i<2**62] = v[i % 5]",
    "y[i<2**31] = v[i * 2**31 * 2 % 5]",
    "y[i<5] = scatter(v[i], at=[])",
    "y[i<5] = scatter[b](v[b], at=v)",
    "y[i<2**62] = scatter[b<4](1.0, at=[ids[b]])",
)

BINDINGS = (
    {"\ud800": 3},
    {"s": 10**5000},
    {"s": float("nan")},
    {"s": 1j},
    {"s": object()},
    {"s": "text"},
    {"extents": {"i": 10**5000}},
    {"extents": {3: 4}},
    {"extents": {"i": -1}},
    {"extents": {"i": float("nan")}},
    {"extents": {"\ud800": 4}},
    {"extents": [4]},
    {"name": "a" * 10**6},
    {"name": 3},
    {"outputs": [[1]]},
    {"outputs": 3},
    {f"b{n}": 1 for n in range(20000)},
)

DTYPES = (
    *(
        "",
        "float32\0",
        "\ud800",
        "f" * 10**6,
        "<f4",
        "float128",
        "complex64",
        "object",
        "U5",
        "M8[s]",
        "🙂",
        3,
        10**100,
    ),
    *(
        [("a", "f4")],
        ("f4", -1),
        ("f4", (2,)),
        {"names": ["a"], "formats": ["f4"]},
        complex,
        object,
        None,
        ["f4"],
        type,
    ),
)

NAMES = (
    *("\ud800", "a\0b", "a" * 10**6, "a" * 999, "שלום", "😀", "a\nb", "a\tb", " ", '"', "\\", "{}", "%s", "\u202eabc"),
    *("../../x", "__metadata__", "select", "e\u0301", "None", "\x1b[31m", 3, None, b"x", ["x"]),
)

SIZED = {
    "placeholder": lambda n: nf.placeholder((n,)),
    "sum": lambda n: nf.sum(nf.placeholder((n,)) + 1.0),
    "axis": nf.axis,
    "arange": nf.arange,
    "pad": lambda n: nf.pad(v, n),
    "tile": lambda n: nf.tile(v, n),
    "repeat": lambda n: nf.repeat(v, n, 0),
    "index": lambda n: v[n],
    "slice": lambda n: v[:n],
    "full": lambda n: nf.full((3,), n),
    "full of integers": lambda n: nf.full((3,), n, "int32"),
    "added": lambda n: v + n,
    "added to integers": lambda n: ids + n,
    "power": lambda n: v**n,
    "take": lambda n: nf.take(v, n),
    "eye": lambda n: nf.eye(3, k=n),
    "roll": lambda n: nf.roll(v, n),
    "one_hot": lambda n: nf.one_hot(ids, n),
    "dimension": lambda n: nf.sum(x, axis=n),
    "reshape": lambda n: nf.reshape(x, (n, -1)),
    "broadcast_to": lambda n: nf.broadcast_to(v, (n, 5)),
    "outer": lambda n: nf.placeholder((n, 1)) + nf.placeholder((1, n)),
}

RANKED = {
    "placeholder": lambda r: nf.placeholder((1,) * r),
    "add": lambda r: nf.placeholder((1,) * r) + nf.placeholder((2,) + (1,) * (r - 1)),
    "sum": lambda r: nf.sum(nf.placeholder((1,) * r)),
    "evaluate": lambda r: _evaluated(nf.placeholder((1,) * r)),
    "terms": lambda r: _terms(min(r, 100)),
}


def _evaluated(t: nf.Tensor) -> None:
    (value,) = nf.evaluate(nf.sum(t + 1.0), {t: np.zeros(t.shape, np.float32)})
    assert value == 1


def _terms(count: int) -> None:
    """A sum of sums, each over an axis of its own."""
    total: object = 0.0
    for _ in range(count):
        k = nf.axis(5)
        total = total + nf.sum(v[k], axis=[k])
    (value,) = nf.evaluate(nf.compute((), lambda: total), {v: np.ones(5, np.float32)})
    assert value == 5 * count


def _named(name: object) -> None:
    t, w = nf.placeholder((3,), name=name), nf.parameter((3,), name=name)
    k = nf.axis(3, name)
    y = nf.compute((), lambda: nf.sum(t[k] * w[k], axis=[k]), name=name)
    assert str(y) and repr(t)
    t + nf.placeholder((4,), name=name)


def _repeated(count: int, step: Callable, start: object) -> object:
    for _ in range(count):
        start = step(start)
    return start


DAGS = {
    "products": lambda: nf.compute((5,), lambda i: _repeated(60, lambda t: t * t, v[i])),
    "in a message": lambda: nf.compute((5,), lambda i: _repeated(60, lambda t: t * t, v[i]) + ids[0]),
    "long in a message": lambda: nf.compute((5,), lambda i: _repeated(2000, lambda t: t + 1.0, v[i]) + ids[0]),
    "truth": lambda: bool(_repeated(60, lambda t: t * t, nf.axis(5))),
    "index": lambda: nf.compute((5,), lambda i: v[_repeated(40, lambda t: t * t, i)]),
    "index with remainder": lambda: nf.compute((5,), lambda i: v[_repeated(40, lambda t: (t * t) % 5, i)]),
    "condition": lambda: nf.compute((5,), lambda i: nf.select(_repeated(60, lambda t: (t & t) | t, i < 3), v[i], 0.0)),
}


def _code(entries: str = "[]", workspaces: str = "[]", faults: str = "[]") -> str:
    return f'{{"entries": {entries}, "workspaces": {workspaces}, "faults": {faults}}}'


JSONS = (
    *("", "{", "null", "[]", "3", '"a"', "NaN", "1" * 5000, "[" * MANY, '{"template": ' * 2000, "\0", "\ud800", "é"),
    *(
        '{"template": null, "knobs": {}}',
        '{"template": "map", "knobs": []}',
        '{"template": "map", "knobs": {"a": 1e999}}',
    ),
    *('{"template": "map", "knobs": {}, "inner": {}}', '{"template": "map", "knobs": {}, "inner": [3]}'),
    '{"template": "map", "knobs": {}, "inner": [' * 400 + "]}" * 400,
    '{"template": {"a": 1}, "knobs": {}}',
    '{"template": "' + "a" * MANY + '", "knobs": {}}',
    *(3, None, b"{}", ["{}"]),
    *(_code(entries=e) for e in ("null", "[3]", "[{}]", '[{"symbol": 3, "tasks": 1, "is_parallel": true}]')),
    *(_code(workspaces=w) for w in ("{}", '[{"nbytes": 1e9, "is_shared": true}]', '[{"bytes": 1}]')),
    *(_code(faults=f) for f in ("3", '[{"value": "0", "extent": 3}]', '[{"value": null, "extent": NaN}]')),
)


LEAVES = (
    3,
    "x",
    [x],
    {"x": 3},
    {"x": None},
    {3: x},
    {"q": x},
    {"x": v},
    {"x": x + 1.0},
    {"\ud800": x},
    {"w": x},
    {None: x},
)


def _insertions(text: str) -> list[object]:
    """A text with something hostile inside of it, and what is no text."""
    middle = text.index("\n") + 1
    inside = [
        "\0",
        "\ud800",
        "😀",
        "\u202e",
        "(" * MANY,
        "-" * MANY,
        "9" * 5000,
        "x" * MANY,
        "\n" * MANY,
        "\r",
        "\x0c",
        '"' * 99,
    ]
    return [text[:middle] + bad + text[middle:] for bad in inside] + [
        "",
        text[:middle],
        text * 2,
        3,
        None,
        b"x",
        [text],
    ]


def nouns() -> list:
    """A value of each kind that can be read back."""
    w = nf.parameter((4, 5), name="w")
    found = nouns_of([nf.sum(x * w)], [x])
    return [found.written, found.plan, TARGET, found.subgraphs[0], found.schedules[0]]


def cases() -> dict[str, Case]:
    """Every case by what it is."""
    found: dict[str, Case] = {}
    for text in TEXTS:
        found[f"text {text[:60]!r}"] = lambda text=text: nf.expr(text, x=x, v=v, ids=ids, s=s)
    for n, given in enumerate(BINDINGS):
        found[f"binding {n}"] = lambda given=given: nf.expr("y[i] = v[i] * s", **{"v": v, "s": s, **given})
    for n, dtype in enumerate(DTYPES):
        found[f"dtype {n}"] = lambda dtype=dtype: nf.placeholder((3,), dtype)
    for n, name in enumerate(NAMES):
        found[f"name {n}"] = lambda name=name: _named(name)
    for what, of in SIZED.items():
        for n in LARGE:
            found[f"{what} of {n.bit_length()} bits"] = lambda of=of, n=n: of(n)
    for what, of in RANKED.items():
        for r in RANKS:
            found[f"{what} of rank {r}"] = lambda of=of, r=r: of(r)
    for what, of in DAGS.items():
        found[f"shared: {what}"] = of
    for n, text in enumerate(JSONS):
        found[f"json {n}"] = lambda text=text: schedule_from_json(text)
        found[f"json of code {n}"] = lambda text=text: Code.from_json(text)
    written = nouns()
    for n, leaves in enumerate(LEAVES):
        found[f"leaves {n}"] = lambda leaves=leaves: Graph.from_text(written[0].to_text(), leaves)
    for value in written:
        read = type(value).from_text
        for n, text in enumerate(_insertions(value.to_text())):
            found[f"{type(value).__name__} {n}"] = lambda read=read, text=text: read(text)
    return found


def compiled() -> dict[str, Case]:
    """Programs whose tensors or loops are too large, and the largest ones that are not; nothing is allocated."""
    found: dict[str, Case] = {}
    for shape in ((2**31,), (2**32,), (2**40,), (65536, 32768), (65536, 65536), (2**20, 2**20), (2**16,) * 3):
        t = nf.placeholder(shape, "int8", name="large")
        found[f"copy of {shape}"] = lambda t=t: compile_program([t + t], [t])
        found[f"sum of {shape}"] = lambda t=t: compile_program([nf.max(t, axis=-1)], [t])
        found[f"transpose of {shape}"] = lambda t=t: compile_program([nf.transpose(t)], [t])
    for n in (2**31, 2**40, 2**62 - 1):
        k = nf.axis(n, "k")
        found[f"sum over {n}"] = lambda k=k: compile_program(
            [nf.compute((), lambda: nf.sum(nf.cast(k, "float32"), axis=[k]))]
        )
    return found


def ended(case: Case) -> str:
    """How a case ends: "right", "refused", or what is wrong about it."""
    began = time.process_time()
    try:
        case()
        end = "right"
    except NeoflowError as error:
        text = str(error)
        text.encode()
        end = "refused" if len(text) <= PAGE else f"an error of {len(text)} characters"
        if inside := [f.name for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]:
            end = f"an error with the frames {inside}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    seconds = time.process_time() - began
    return end if seconds <= SECONDS else f"{end} after {seconds:.1f} s"
