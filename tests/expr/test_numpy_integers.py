"""An integer of NumPy is an integer wherever one is taken: nothing of it stays in what is made."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.nn import functional as F

v, images, w = nf.placeholder((3, 4)), nf.placeholder((1, 4, 8, 8)), nf.placeholder((4, 4, 3, 3))
seed, ids = nf.placeholder((), "int32"), nf.placeholder((3,), "int32")

MAKES = {
    "placeholder": lambda n: nf.placeholder((n(5), n(7))),
    "parameter": lambda n: nf.parameter((n(5),)),
    "axis": lambda n: nf.compute((4,), lambda i: nf.sum(v[(j := nf.axis(n(3))), i], axis=[j])),
    "compute": lambda n: nf.compute((n(3), n(4)), lambda i, j: v[i // n(2), (j * n(3) + n(1)) % n(4)] * n(2)),
    "expr": lambda n: nf.expr("y[i < n] = v[i, k] * k", v=v, n=n(3), k=n(1)),
    "eye": lambda n: nf.eye(n(11), n(13), n(2)),
    "full": lambda n: nf.full((n(17),), n(3)),
    "arange": lambda n: nf.arange(n(19)),
    "one_hot": lambda n: nf.one_hot(ids, n(23)),
    "reshape": lambda n: nf.reshape(v, (n(2), n(2), -1)),
    "transpose": lambda n: nf.transpose(v, (n(1), n(0))),
    "broadcast_to": lambda n: nf.broadcast_to(v, (n(29), n(3), n(4))),
    "roll": lambda n: nf.roll(v, n(1), n(0)),
    "diagonal": lambda n: nf.diagonal(v, n(1)),
    "split": lambda n: nf.split(v, n(2), n(1))[1],
    "tile": lambda n: nf.tile(v, (n(2), n(1))),
    "repeat": lambda n: nf.repeat(v, n(2), n(0)),
    "top_k": lambda n: nf.top_k(v, n(2), n(0))[0],
    "pad": lambda n: nf.pad(v, ((n(1), n(1)), (n(0), n(2)))),
    "slice": lambda n: v[n(1) : n(3), :: n(2)],
    "power": lambda n: v ** n(2),
    "scan": lambda n: nf.scan(lambda h, _: (h * 2, h), nf.placeholder((4,)), length=n(31))[1],
    "conv2d": lambda n: F.conv2d(images, w, stride=n(2), padding=(n(1), n(2)), dilation=n(1)),
    "groups": lambda n: F.conv2d(images, nf.placeholder((4, 2, 3, 3)), groups=n(2)),
    "im2col": lambda n: F.im2col(images, n(3)),
    "shift_conv2d": lambda n: F.shift_conv2d(images, nf.placeholder((5, 4)), kernel=n(3), stride=n(2)),
    "group_norm": lambda n: F.group_norm(images, n(2)),
    "softmax": lambda n: F.softmax(v, n(1)),
    "uniform": lambda n: F.uniform((n(37),), seed, n(1)),
}


def inside(root):
    """Everything that an object of neoflow is made of."""
    seen, todo = set(), [root]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, (tuple, list, frozenset)):
            todo += one
        elif isinstance(one, dict):
            todo += [*one, *one.values()]
        elif type(one).__module__.startswith("neoflow"):
            slots = (s for c in type(one).__mro__ for s in getattr(c, "__slots__", ()) if s != "__weakref__")
            todo += [getattr(one, s) for s in slots if hasattr(one, s)]
            todo += vars(one).values() if hasattr(one, "__dict__") else ()


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
@pytest.mark.parametrize("name", MAKES)
def test_integers_of_numpy_are_integers(name, kind):
    made = MAKES[name](kind)
    assert not [x for x in inside(made) if isinstance(x, np.generic)]
    assert made.shape == MAKES[name](int).shape
