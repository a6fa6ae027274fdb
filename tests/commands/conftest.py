"""A folder with a small model and its peer, and the command run in it."""

import sys
import textwrap

import pytest

from neoflow import cli

MODEL = """
import neoflow as nf
from neoflow import nn

VARIANTS = {"tiny": {}, "tiny_wide": {"size": 10}}

def build(batch=8, size=8):
    p = nn.Parameters("tiny")
    x = nf.placeholder((batch, 1, size, size), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    scores = nf.expr("s[b,k] = sum(x[b,i] * w[k,i])", x=nf.reshape(x, (batch, size * size)), w=p("w", 10, size * size))
    loss = nn.functional.cross_entropy(scores, labels)
    return nn.Model("tiny", x, labels, p, loss, scores, 10)
"""
PEER = """
import torch

class Peer:
    def __init__(self, parameters):
        self.w = torch.tensor(parameters["w"], requires_grad=True)

    def loss_and_grads(self, x, labels):
        scores = torch.from_numpy(x).flatten(1) @ self.w.T
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
        return loss.item(), {"w": torch.autograd.grad(loss, self.w)[0].numpy()}

    def step(self, x, labels, lr=0.01):
        loss, gradients = self.loss_and_grads(x, labels)
        with torch.no_grad():
            self.w -= lr * torch.from_numpy(gradients["w"])
        return loss

    def infer(self, x):
        with torch.inference_mode():
            return (torch.from_numpy(x).flatten(1) @ self.w.T).numpy()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with one model and its peer, which the commands run in."""
    for path, text in (("models/tiny.py", MODEL), ("benchmarks/peers/torch_tiny.py", PEER)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command: (exit status, standard output, standard error)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["neoflow", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder of an empty cache."""
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"
