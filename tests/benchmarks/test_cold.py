"""Compiling from nothing: what is wanted of which model, and one from end to end."""

import pytest

from benchmarks import cold
from benchmarks.cold import Cold
from benchmarks.models.cells import BATCHES


def test_recurrent_models_are_wanted_sooner(monkeypatch, capsys):
    monkeypatch.setattr(cold, "alone", lambda name, batch: Cold(name, batch, 12.0, 31.0, {"code": 9.0, "plan": 1.0}, 7))
    cold.main([])
    said = capsys.readouterr().out
    assert "| resnet50 b16 | 12.0 | 30 | reached | 31.0 | 7 | code 9.0, plan 1.0 |" in said
    for name in (
        "mi_lstm_ptb b64",
        "scrnn_mnist b64",
        "sublstm_ptb b64",
        "lltm_mnist b64",
        "nasrnn b64",
        "sru_rnntc b64",
    ):
        assert f"| {name} | 12.0 | 10 | missed |" in said
    assert said.count("| 10 |") == 12 and said.count("\n") == 2 + sum(map(len, BATCHES.values()))


@pytest.mark.tvm
def test_a_model_in_a_process_that_knows_nothing():
    found = cold.alone("capsconv", 1)
    assert found.kernels > 1 and 0 < sum(found.stages.values()) < found.compiled < found.seconds
    assert found.stages["code"] > 0
