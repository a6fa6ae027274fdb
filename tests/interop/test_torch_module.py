"""Layers and models of neoflow as modules of PyTorch."""

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

import neoflow as nf  # noqa: E402
from models import capsnet  # noqa: E402
from neoflow.errors import ArgumentError, RuntimeFault  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.torch]


@pytest.fixture(scope="module")
def normed():
    """A layer with parameters and state, and its module."""
    layer = nf.nn.Sequential(nf.nn.Linear(4, 3), nf.nn.BatchNorm(3), nf.relu)
    return layer, nf.torch.module(layer)


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def peer(state):
    """The same in PyTorch, with the values that a module has now."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3, eps=1e-5), torch.nn.ReLU())
    with torch.no_grad():
        net[0].weight.copy_(state["linear.weight"])
        net[0].bias.copy_(state["linear.bias"])
        net[1].running_mean.copy_(state["norm.running_mean"])
        net[1].running_var.copy_(state["norm.running_variance"])
    return net


def test_it_trains_as_its_peer_does(normed):
    _, module = normed
    other, x = peer(module.state_dict()), drawn(8, 4)
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, other))
    for _ in range(3):
        losses = []
        for m, optimizer in ((module, mine), (other, theirs)):
            optimizer.zero_grad()
            loss = m(x).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    found, expected = module.state_dict(), other.state_dict()
    torch.testing.assert_close(found["norm.running_mean"], expected["1.running_mean"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["norm.running_variance"], expected["1.running_var"], rtol=1e-4, atol=1e-4)
    for m in (module, other):
        m.eval()
    torch.testing.assert_close(module(x), other(x), rtol=1e-4, atol=1e-4)
    assert torch.equal(module(x), module(x))
    module.train()


def test_values_go_both_ways(normed, tmp_path):
    layer, module = normed
    every = [*layer.parameters(), *layer.state()]
    assert list(module.state_dict()) == [
        p.name for p in sorted(every, key=lambda p: list(module.state_dict()).index(p.name))
    ]
    save_file(module.state_dict(), tmp_path / "torch.safetensors")
    nf.load_parameters(tmp_path / "torch.safetensors", every)
    for p in every:
        np.testing.assert_array_equal(nf.get_value(p), module.state_dict()[p.name].numpy())
    nf.set_value(layer.parameters()[0], np.full((3, 4), 2, np.float32))
    nf.save_parameters(tmp_path / "neoflow.safetensors", every)
    module.load_state_dict(load_file(tmp_path / "neoflow.safetensors"))
    assert (module.state_dict()["linear.weight"] == 2).all()
    with torch.no_grad():
        module.get_parameter("linear.weight").fill_(3)
    module.push()
    assert (nf.get_value(layer.parameters()[0]) == 3).all()
    nf.set_value(layer.parameters()[0], np.full((3, 4), 4, np.float32))
    module.pull()
    assert (module.get_parameter("linear.weight") == 4).all()


def test_copies(normed):
    _, module = normed
    module.eval()
    other, x = copy.deepcopy(module), drawn(8, 4)
    assert torch.equal(other(x), module(x))
    with torch.no_grad():
        other.get_parameter("linear.weight").zero_()
    assert not torch.equal(other(x), module(x))
    with pytest.raises(ArgumentError, match=r"holds expressions, which are not pickled: save its state_dict\(\)"):
        pickle.dumps(module)
    assert "Sequential sequential" in repr(module)
    module.train()


def test_refusals(normed):
    _, module = normed
    with pytest.raises(ArgumentError, match="the module of Sequential sequential takes 1 tensors, got 2"):
        module(drawn(8, 4), drawn(8, 4))


def test_layers_of_several_tensors():
    module = nf.torch.module(nf.nn.GRUCell(3, 4))
    y = module(drawn(2, 3), drawn(2, 4))
    assert y.shape == (2, 4) and y.requires_grad


@pytest.mark.slow
def test_layers_of_several_results_and_further_arguments():
    h, c = nf.torch.module(nf.nn.LSTMCell(3, 4))(drawn(2, 3), drawn(2, 4), drawn(2, 4))
    assert h.shape == c.shape == (2, 4)
    attention, x = nf.nn.MultiHeadAttention(8, 2), drawn(2, 5, 8)
    causal, free = nf.torch.module(attention, causal=True), nf.torch.module(attention)
    torch.testing.assert_close(causal(x)[:, -1], free(x)[:, -1])
    assert not torch.allclose(causal(x)[:, 0], free(x)[:, 0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Inductor as it is imported
def test_a_model_gives_scores_and_its_loss():
    model = capsnet.build(batch=2, image=20, primary=2, capsules=3)
    module = nf.torch.module(model)
    x, labels = map(torch.from_numpy, model.example())
    loss = module(x, labels)
    loss.backward()
    roots = [model.loss, *nf.grad(model.loss, list(model.parameters.values())), model.scores]
    feeds = {model.x: x.numpy(), model.labels: labels.numpy(), **model.initial()}
    expected = nf.evaluate(roots, feeds)
    np.testing.assert_allclose(loss.item(), expected[0], rtol=1e-4)
    for p, g in zip(model.parameters, expected[1:-1], strict=True):
        np.testing.assert_allclose(module.get_parameter(p).grad, g, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(module(x).detach(), expected[-1], rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeFault, match=r"model capsnet was built for x float32\[2, .*: build it for such batches"):
        module(x[:1])
    with pytest.raises(ArgumentError, match="module of model capsnet takes no causal"):
        nf.torch.module(model, causal=True)
    compiled = torch.compile(module, fullgraph=True)
    torch.testing.assert_close(compiled(x, labels), loss)
