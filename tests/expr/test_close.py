"""What the compiler derives is closed once for equal bodies: the same definition, whatever is read."""

import numpy as np

import neoflow as nf
from neoflow.expr import close
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Const, Read, Slot
from neoflow.graph import own_indices

SHAPE = (4, 6)


def body(factor):
    """A sum of what two slots read, times a number that no other test takes."""
    first, second = (Read(Slot(n, SHAPE, "float32"), own_indices(SHAPE)) for n in range(2))
    return Apply("mul", (Apply("add", (first, second)), Const(factor, "float32")))


def inputs(*names):
    return tuple(nf.placeholder(SHAPE, name=n) for n in names)


def defined(monkeypatch):
    """Names of what is closed from now on."""
    names, define = [], close.define

    def counted(shape, axes, body, name, where=None):
        names.append(name)
        return define(shape, axes, body, name, where)

    monkeypatch.setattr(close, "define", counted)
    return names


def test_equal_bodies_are_closed_once(monkeypatch):
    names, e = defined(monkeypatch), body(1.125)
    (a, b), (c, d) = inputs("a", "b"), inputs("c", "d")
    first, second = build(SHAPE, e, (a, b), "first"), build(SHAPE, e, (c, d), "second")
    assert names == ["first"]
    assert first.definition is second.definition and second.name == "second"
    assert second.inputs[0] is c and second.inputs[1] is d


def test_a_tensor_read_twice_is_another_program(monkeypatch):
    names, e = defined(monkeypatch), body(2.125)
    a, b = inputs("a", "b")
    twice, apart = build(SHAPE, e, (a, a), "twice"), build(SHAPE, e, (a, b), "apart")
    assert names == ["twice", "apart"] and len(twice.inputs) == 1 and len(apart.inputs) == 2
    assert build(SHAPE, e, (b, b), "again").definition is twice.definition and names[2:] == []


def test_unread_inputs_are_dropped_again():
    a, b, c = inputs("a", "b", "c")
    e = body(3.125)
    for tensors in ((a, b, c), (b, c, a)):
        assert [t.name for t in build(SHAPE, e, tensors, "y").inputs] == [t.name for t in tensors[:2]]


def test_a_body_that_names_its_tensors_is_closed_every_time():
    at = own_indices(SHAPE)
    a, b = inputs("a", "b")
    x = np.ones(SHAPE, np.float32)
    for t in (a, b):
        y = build(SHAPE, Apply("add", (Read(t, at), Read(t, at))), (), "y")
        assert y.inputs == (t,)
        np.testing.assert_array_equal(nf.evaluate([y], {t: x})[0], 2 * x)
