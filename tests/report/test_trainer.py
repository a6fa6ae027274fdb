"""`report=PATH`: a run of any program as one HTML file, which leaves the run as it was."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError
from neoflow.runtime.parameters import get_value
from neoflow.train.trainer import Trainer
from tests.runtime.programs import Softmax, batches, dataset


@pytest.mark.tvm
def test_a_report_from_any_program(tmp_path):
    model = Softmax()
    run = model.trainer(nf.Trainer)
    told = run.fit(batches(), 2, validation=dataset(), report=tmp_path / "runs" / "{model}.html")
    page = (tmp_path / "runs" / "programs.html").read_text()
    assert "<h1>programs</h1>" in page and "Test accuracy" in page and "from the call of fit" in page
    plain = Softmax().trainer(nf.Trainer)
    assert plain.fit(batches(), 2, validation=dataset()).losses == told.losses
    for p, q in zip(run.all_parameters, plain.all_parameters, strict=True):
        np.testing.assert_array_equal(get_value(p), get_value(q))


@pytest.mark.tvm
def test_a_report_without_validation_metrics_or_steps(tmp_path):
    model = Softmax()
    run = model.trainer(nf.Trainer, metrics={}, accumulate=2)
    run.fit(batches(), 1, report=tmp_path / "one.html")
    page = (tmp_path / "one.html").read_text()
    assert "Test accuracy" not in page and "<dt>Loss</dt>" in page and "nan" not in page.lower().split("<h2>")[0]
    run.fit(batches(), 1, report=tmp_path / "two.html")
    assert "No step was made" in (tmp_path / "two.html").read_text()


def test_a_path_that_cannot_be_written_is_found_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    run = Softmax().trainer(nf.Trainer)
    for path in (tmp_path, tmp_path / "file" / "run.html"):
        with pytest.raises(ConfigError, match=r"the report cannot be written to .*; give another path"):
            run.fit(batches(), 1, report=path)
    assert run.position.step == 0 and not run.functions


def test_the_trainer_below_the_report_knows_none(tmp_path):
    with pytest.raises(ConfigError, match=r"reports are written by nf\.Trainer"):
        run = Softmax().trainer()
        run.fit(batches(), 1, report=tmp_path / "one.html")
    assert run.position.step == 0
    assert issubclass(nf.Trainer, Trainer) and not list(tmp_path.iterdir())
