"""Packages and tuning, by the command."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow import pipeline
from neoflow.models import build_model
from neoflow.report import packaged, tuning
from neoflow.report.tuning import TunedModel
from neoflow.train.dynamic import PATIENCE
from neoflow.tune import Limits
from tests.emulator.driver import emulated


@pytest.mark.tvm
def test_build(run, folder):
    status, out, _ = run("build", "tiny", "--json")
    said = json.loads(out)
    assert status == 0 and said["path"] == "tiny.nflib" and said["functions"] == ["step", "infer"]
    assert set(said["files"]) == {"program.json", "parameters.safetensors", "libnf_tiny.so", "tiny.h"}
    model, package = build_model("tiny"), nf.load("tiny.nflib")
    x, labels = model.example()
    (scores,) = package.infer(x)
    np.testing.assert_allclose(scores, nf.evaluate([model.scores], {model.x: x, **model.initial()})[0], rtol=1e-4)
    assert package.step(x, labels)[0] > package.step(x, labels)[0]
    status, out, _ = run("build", "tiny_wide", "-o", folder / "wide", "--batch", "3")
    assert status == 0 and re.search(r"wide: step and infer of tiny for cpu.*\n +[\d,]+ program\.json", out)
    assert nf.load(folder / "wide").infer.inputs[0].shape == (3, 1, 10, 10)


@pytest.mark.tvm
def test_build_for_a_gpu(run, folder, monkeypatch):
    """It has C functions too, and its modules."""
    emulated(monkeypatch)
    status, out, _ = run("build", "tiny", "--target", "cuda:sm_90", "--json")
    files = set(json.loads(out)["files"])
    modules = {name for name in files if name.startswith("kernels_") and name.endswith(".cubin")}
    assert status == 0 and modules
    both = {"program.json", "parameters.safetensors", "constants.bin", "libnf_tiny.so", "tiny.h"}
    assert files == both | modules
    header = (folder / "tiny.nflib" / "tiny.h").read_text()
    assert "int32_t tiny_step(tiny *model, const float *x, const int64_t *labels, float *" in header
    assert "int32_t tiny_get(const tiny *model, int32_t number, void *array);" in header


def test_build_tunes_both_functions_within_its_seconds(run, monkeypatch):
    asked = []

    def tuning(outputs, inputs, updates=None, target="cpu", precision="fp32", tune=None, fleet=None):
        asked.append((tune, fleet))
        if updates is None:
            raise nf.ConfigError("as far as this")

    monkeypatch.setattr(packaged.pipeline, "compile_program", tuning)
    assert "as far as this" in run("build", "tiny", "--tune", "2", "--fleet", "10.0.0.1:6379")[2]
    assert asked == [(Limits(seconds=s), "10.0.0.1:6379") for s in (1.5, 0.5)]
    assert "as far as this" in run("build", "tiny")[2] and asked[2:] == [(None, None)] * 2
    assert "as far as this" in run("build", "tiny", "--tune", "2", "--rounding", "256")[2]
    assert asked[4:] == [(Limits(seconds=s, rounding=256), None) for s in (1.5, 0.5)]
    for more in ((), ("--rounding", "256")):
        status, _, err = run("build", "tiny", "--fleet", "local", *more)
    assert status == 1 and "--fleet: its machines measure for a search, and there is none: add --tune SECONDS" in err


@pytest.mark.tvm
@pytest.mark.slow
def test_build_measures_candidates(run):
    said = json.loads(run("build", "tiny", "--tune", "4", "--json")[1])
    assert said["trials"] > 0 and json.loads(run("cache", "--json")[1])["trials"] > 0
    model = build_model("tiny")
    (scores,) = nf.load("tiny.nflib").infer(model.example()[0])
    expected = nf.evaluate([model.scores], {model.x: model.example()[0], **model.initial()})[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_the_page_of_a_tuning_is_written(run, monkeypatch, tmp_path):
    found = TunedModel("tiny", 1, "train", "cpu", 1.0, 0, "seconds", None, None, ())
    monkeypatch.setattr(tuning, "tune", lambda *arguments, **options: found)
    status, out, _ = run("tune", "tiny", "--report", tmp_path / "page.html", "--json")
    assert status == 0 and json.loads(out)["model"] == "tiny" and "tiny, tuned" in (tmp_path / "page.html").read_text()
    status, _, err = run("tune", "tiny", "--report", tmp_path)
    assert status == 1 and f"the report cannot be written to {tmp_path}: Is a directory" in err


ALONE, TUNED = Limits(seconds=0, rounding=256), Limits(seconds=2, rounding=256)
ROUNDED = {
    ("neoflow.report.tuning.tune", "tune", "--seconds", "2"): TUNED,
    ("neoflow.report.packaged.build_package", "build"): ALONE,
    ("neoflow.report.stages.explain", "explain"): ALONE,
    ("neoflow.train.session.Trainer", "train"): ALONE,
    ("neoflow.train.session.Trainer", "train", "--tune", "2"): TUNED,
    ("neoflow.train.session.Trainer", "train", "--mode", "dynamic"): replace(PATIENCE, rounding=256),
    ("neoflow.pipeline.compile_program", "bench"): ALONE,
    ("neoflow.pipeline.compile_program", "bench", "--tune", "2"): TUNED,
}
"""What each command hands on of `--rounding 256`."""


@pytest.mark.parametrize("command", ROUNDED, ids=" ".join)
def test_what_algorithms_may_round_is_handed_on(run, monkeypatch, command):
    asked, (where, name, *more) = [], command

    def called(*arguments, **options):
        asked.extend([*arguments, *options.values()])
        raise nf.ConfigError("as far as this")

    monkeypatch.setattr(where, called)
    assert "as far as this" in run(name, "tiny", *more, "--rounding", "256")[2]
    assert [a for a in asked if isinstance(a, Limits)] == [ROUNDED[command]]
    status, _, err = run(name, "tiny", "--rounding", "0.5")
    assert status == 2 and "--rounding" in err


@pytest.mark.parametrize("command", [("tune", "tiny", "--seconds", "1"), ("build", "tiny", "--tune", "1")])
def test_a_fleet_measures_where_its_address_says(run, monkeypatch, command):
    def fleet(target, address):
        raise nf.RuntimeFault(f"no fleet answers at {address!r}")

    monkeypatch.setattr(pipeline, "Fleet", fleet)
    status, _, err = run(*command, "--fleet", "10.0.0.1:6379")
    assert status == 1 and "no fleet answers at '10.0.0.1:6379'" in err
