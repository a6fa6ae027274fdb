"""Which narrow float an expression's values exactly are."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.narrow import holds, is_held, narrowed

X, H, B = (nf.placeholder((4, 6), d, name=n) for d, n in (("float32", "x"), ("float16", "h"), ("bfloat16", "b")))


def body(make):
    return nf.compute((4, 6), make).definition.body


def wide(t):
    return lambda i, j: nf.cast(t[i, j], "float32")


HELD = {
    "a cast": wide(H),
    "rounded": lambda i, j: nf.cast(nf.cast(nf.exp(X[i, j]), "float16"), "float32"),
    "chosen": lambda i, j: nf.select(i > 2, nf.cast(H[i, j], "float32"), 0.0),
    "the larger": lambda i, j: nf.maximum(-nf.cast(H[i, j], "float32"), 0.5),
    "relu": lambda i, j: nf.relu(nf.cast(H[i, j], "float32")),
}
OTHER = {
    "float32": lambda i, j: X[i, j],
    "another type": wide(B),
    "a product": lambda i, j: nf.cast(H[i, j], "float32") * 2.0,
    "a number between": lambda i, j: nf.maximum(nf.cast(H[i, j], "float32"), 0.1),
    "one of two": lambda i, j: nf.select(i > 2, nf.cast(H[i, j], "float32"), X[i, j]),
}


@pytest.mark.parametrize("make", HELD.values(), ids=HELD)
def test_held(make):
    e = body(make)
    found = narrowed(e, "float16")
    assert is_held(e, "float16") and found.dtype == "float16"


@pytest.mark.parametrize("make", OTHER.values(), ids=OTHER)
def test_other(make):
    e = body(make)
    assert not is_held(e, "float16") and narrowed(e, "float16") is None


def test_what_is_known_of_a_read():
    e = body(lambda i, j: nf.relu(X[i, j]))
    assert is_held(e, "float16", lambda _: True) and not is_held(e, "float16", lambda _: False)


def test_numbers():
    assert holds("float16", 65504.0) and not holds("float16", 65505.0) and holds("bfloat16", np.inf)
