"""Steps beside their floors: models are kept as they end, and the table says what limits them."""

import json
from dataclasses import asdict

import pytest

from benchmarks import floors
from benchmarks.floors import Step
from neoflow.report.gaps import KernelGap


def test_models_are_kept_and_the_rest_goes_on(tmp_path, capsys):
    done, path = [], tmp_path / "floors.jsonl"
    kernels = tuple(KernelGap(f"k{n}", 1, 2e-3, 1e-3, "arithmetic, at 50% of the peak", "s") for n in range(14))

    def perform(key, tune, seconds):
        done.append(key)
        if key == "resnet50/1":
            return Step(key, "2026-01-01", missing="its process ended with status -9: no word")
        return Step(key, "2026-01-01", 50e-3, 30e-3, 27e-3, 14e-3, 99, 60.0, kernels=kernels)

    arguments = ["--models", "capsnet/16,resnet50/1", "--out", str(path)]
    floors.main(arguments, perform)
    out = capsys.readouterr().out
    assert "| capsnet/16 | 50.00 | 30.00 | 27.00 | 0.54 | 0.90 | 0.88 | reached | 99 candidates in 60 s |" in out
    assert "| resnet50/1 | - | - | - | - | - | - | its process ended with status -9: no word | |" in out
    assert "| k0 | 1 | 2000 | 1000 | 50% | 6% | arithmetic, at 50% of the peak |" in out
    assert (
        "| 2 others | 2 | 4000 | 2000 | 50% | 13% |  |" in out and "| between the kernels | | 2000 | | | 12% |" in out
    )
    with path.open("a") as file:
        file.write('{"model": "shuff')
    floors.main(arguments, perform)
    assert done == ["capsnet/16", "resnet50/1", "resnet50/1"]
    step = floors.read(path)["capsnet/16"]
    assert floors.from_json(json.dumps(asdict(step))) == step


@pytest.mark.slow
@pytest.mark.tvm
def test_a_model_in_a_process_of_its_own():
    found = floors.alone("mi_lstm_mnist/2", 2.0, 0.5)
    assert not found.missing and found.before > 0 and found.after > 0 and found.trials > 0
    assert found.floor > 0 and found.kernels and all(k.floor > 0 and k.limit for k in found.kernels)
    assert "there is no model absent" in floors.alone("absent/1", 1.0, 0.1).missing
