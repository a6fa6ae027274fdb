"""The LSTM that is written operator by operator: its peers are the same model, and the table beside them."""

import numpy as np
import pytest

import neoflow as nf
from benchmarks import mapping
from benchmarks.steps.compare import Comparison
from models.ptb_lstm_native import build
from neoflow.models import load_file, peer_file
from neoflow.roofs import Roofs


@pytest.mark.torch
@pytest.mark.parametrize("name", mapping.FORMS.values())
def test_the_peers_are_the_same_model(name):
    pytest.importorskip("torch")
    model = build(2, words=7, hidden=4, steps=3)
    values = model.values()
    peer = getattr(load_file(peer_file("torch", mapping.MODEL)), name)(values)
    x, labels = model.example()
    gradients = nf.grad(model.loss, list(model.parameters.values()))
    feeds = {model.x: x, model.labels: labels, **{p: values[n] for n, p in model.parameters.items()}}
    wanted = nf.evaluate([model.loss, *gradients], feeds)
    loss, found = peer.loss_and_grads(x, labels)
    assert loss == pytest.approx(float(wanted[0]), rel=1e-5)
    for parameter, w in zip(values, wanted[1:], strict=True):
        np.testing.assert_allclose(found[parameter], w, rtol=1e-4, atol=1e-6)


def test_the_table_has_a_line_a_form_and_setting(monkeypatch, capsys):
    asked, written = [], {}
    monkeypatch.setattr(mapping, "measure_machine", lambda: Roofs(100.0, ()))
    monkeypatch.setattr(mapping, "write", lambda section, title, how, lines: written.update({section: lines}))

    def measure(model, batch, roofs, before, seconds, block, only, say, peer):
        asked.append((peer, batch, tuple(only)))
        blocks = {"neoflow": [0.01, 0.02, 0.01], "PyTorch": [0.05, 0.08, 0.05]}
        return Comparison(model, batch, blocks=blocks, missing={"PyTorch expert": "no gcc"})

    assert mapping.main(["--write", "--batch", "3"], measure) == 0
    assert [m for m, *_ in asked] == list(mapping.FORMS.values())
    assert asked[0][1:] == (3, ("neoflow", "PyTorch", "PyTorch expert"))
    printed = capsys.readouterr().out.splitlines()
    assert "| operators | PyTorch | 50.00 | 10.00 | 5.00 | 4.12 |" in printed
    assert "| torch.nn.LSTM | PyTorch expert | - | 10.00 | - | 1.00 |" in printed
    assert printed == written["mapping"] and printed[-1] == "- torch.nn.LSTM: no PyTorch expert: no gcc."
