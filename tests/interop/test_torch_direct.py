"""Calls that go past PyTorch's dispatcher: as the others in all but time, and only where nobody looks."""

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import neoflow as nf  # noqa: E402
from neoflow.interop.torch import direct  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.torch]


@nf.torch.operator
def directly(x, w):
    return nf.tanh(x * w)


class Passed(Exception):
    """The dispatcher was asked."""


def refused(*args):
    raise Passed


def given(needs_grad=False):
    return torch.linspace(-1, 1, 6, requires_grad=needs_grad), torch.full((6,), 0.5, requires_grad=needs_grad)


@pytest.fixture
def watched(monkeypatch):
    """The operator, known for these tensors, whose ways through the dispatcher are closed."""
    for needs_grad in (False, True):
        y = directly(*given(needs_grad))
        if needs_grad:
            y.sum().backward()
    with monkeypatch.context() as m:
        for name in ("op", "saving", "derived"):
            m.setattr(directly, name, refused)
        yield directly


def test_a_known_call_asks_no_dispatcher(watched):
    x, w = given(True)
    with torch.no_grad():
        y = watched(x, w)
    torch.testing.assert_close(y, torch.tanh(x * w))
    z = watched(x, w)
    a, b = torch.autograd.grad(z.square().sum(), [x, w])
    c, d = torch.autograd.grad(torch.tanh(x * w).square().sum(), [x, w])
    torch.testing.assert_close((z, a, b), (torch.tanh(x * w), c, d))


def test_another_shape_does(watched):
    with pytest.raises(Passed):
        watched(torch.ones(7), torch.ones(7))


class Own(torch.Tensor):
    pass


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen = [*getattr(self, "seen", []), str(function)]
        return function(*args, **(kwargs or {}))


def negated():
    """What PyTorch negates only when it is read."""
    return torch.complex(torch.zeros(6), torch.linspace(-1, 1, 6)).conj().imag


@pytest.mark.parametrize(
    "args",
    [
        lambda: (torch.ones(6).as_subclass(Own), torch.ones(6)),
        lambda: (negated(), torch.ones(6)),
        lambda: (torch.ones(6, device="meta"), torch.ones(6, device="meta")),
        lambda: (torch.ones(6).to_sparse(), torch.ones(6)),
    ],
    ids=["subclass", "negated", "meta", "sparse"],
)
def test_other_tensors_do(watched, args):
    with pytest.raises(Passed):
        watched(*args())


@pytest.mark.parametrize(
    "mode",
    [
        Watching,
        lambda: torch.autocast("cpu"),
        lambda: torch.device("cpu"),
        lambda: torch.inference_mode(),
        lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    ],
    ids=["dispatch", "autocast", "function", "inference", "profiler"],
)
def test_modes_see_the_call(watched, mode):
    assert direct.is_plain()
    with pytest.raises(Passed), mode():
        assert not direct.is_plain()
        watched(*given())
    assert direct.is_plain()


def test_a_negated_view_is_read_as_it_is_meant():
    torch.testing.assert_close(directly(negated(), torch.ones(6)), torch.tanh(negated()))


def test_a_mode_sees_the_backward_pass_and_gradients_of_gradients_are_right():
    x, w = given(True)
    y = directly(x, w)
    with Watching() as mode:
        y.sum().backward()
    assert any("directly_derived" in name for name in mode.seen)
    (g,) = torch.autograd.grad(directly(x, w).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    (p,) = torch.autograd.grad(torch.tanh(x * w).sum(), x, create_graph=True)
    torch.testing.assert_close(h, torch.autograd.grad(p.sum(), x)[0])


def test_what_was_changed_since_is_refused():
    x, w = given(True)
    y = directly(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
