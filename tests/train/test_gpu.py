"""Training on a GPU, which is the emulator: losses, parameters and checkpoints as on the CPU."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import devices
from neoflow.architectures import gpu_target
from neoflow.report import run
from tests.emulator.driver import emulated
from tests.train.networks import Capsules, batches

pytestmark = pytest.mark.tvm


@pytest.fixture
def gpu(monkeypatch):
    return emulated(monkeypatch, checked=False)


def close(there, here):
    assert there.keys() == here.keys()
    for name in here:
        np.testing.assert_allclose(there[name], here[name], rtol=2e-4, atol=2e-6, err_msg=name)


def test_losses_and_parameters_are_those_of_the_cpu(gpu):
    here, there = Capsules(), Capsules()
    losses = [n.trainer(t).fit(batches(), 2).losses for n, t in ((here, "cpu"), (there, "cuda"))]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[1][-1] < losses[1][0]
    close(there.values(), here.values())


def test_every_template_occurs(gpu):
    used = {k.schedule.template for k in Capsules().trainer("cuda").step_function().compiled.kernels}
    assert used == {"gpu_map", "gpu_reduction", "gpu_rows", "gpu_scatter", "gpu_contraction"}


@pytest.mark.slow
def test_training_in_tf32_multiplies_by_tensor_cores(gpu):
    """Nothing that is stored changes its type, and losses are those of float32 but for rounding."""
    wide, rounded = Capsules(), Capsules()
    trainer = rounded.trainer("cuda", precision="tf32")
    losses = trainer.fit(batches(), 2).losses
    np.testing.assert_allclose(losses, wide.trainer("cuda").fit(batches(), 2).losses, rtol=1e-2)
    used = {k.schedule.template for k in trainer.step_function().compiled.kernels}
    assert "gpu_tensor_core" in used and "gpu_contraction" not in used
    assert {a.dtype for a in rounded.values().values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("first", "then"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_checkpoint_is_resumed_on_the_other_device(gpu, tmp_path, first, then):
    whole, begun, resumed = Capsules(), Capsules(), Capsules(seed=5)
    whole.trainer("cpu").fit(batches(), 1)
    begun.trainer(first, checkpoint=tmp_path / "run").fit(batches(), 1, steps=2)
    trainer = resumed.trainer(then, checkpoint=tmp_path / "run")
    assert trainer.resume().step == 2
    trainer.fit(batches(), 1)
    assert trainer.position.step == 4
    close(resumed.values(), whole.values())


def test_evaluation_and_prediction_are_those_of_the_cpu(gpu):
    net = Capsules()
    found = {}
    for target in ("cpu", "cuda"):
        trainer = net.trainer(target)
        x, words, _ = (np.concatenate(a) for a in zip(*batches(2), strict=True))
        found[target] = {**trainer.evaluate(batches(2)), "scores": trainer.predict(net.scores, (x[:7], words[:7]))}
    assert found["cuda"]["scores"].shape == (7, 5) and set(found["cuda"]) == {"loss", "right", "scores"}
    close(found["cuda"], found["cpu"])


@pytest.mark.parametrize("late", [True, False])
def test_the_next_batch_is_uploaded_while_a_step_runs(monkeypatch, late):
    gpu = emulated(monkeypatch, checked=False, late_uploads=late)
    here, there = Capsules(), Capsules()
    here.trainer().fit(batches(), 1)
    trainer = there.trainer("cuda")
    trainer.fit(batches(), 1)
    close(there.values(), here.values())
    calls = [c for c in gpu.driver.calls if c in ("upload", "run")]
    x, words, labels, lr = ["upload"] * 4
    ahead = ["run", x, words, labels, lr]
    assert calls == [x, words, labels, lr, *ahead * 3, "run"]
    assert gpu.driver.calls.count("graph") == 2


def test_what_the_data_raise_comes_after_the_step(gpu):
    def data():
        yield from batches(2)
        raise ValueError("no more")

    trainer = Capsules().trainer("cuda")
    with pytest.raises(ValueError, match="no more"):
        trainer.fit(data, 1)
    assert trainer.position.step == 2


def test_no_batch_is_taken_that_no_step_needs(gpu):
    data = iter(batches(3))
    Capsules().trainer("cuda").fit(data, 1, steps=2)
    assert len(list(data)) == 1


def test_the_last_batch_may_be_incomplete(gpu):
    here, there = Capsules(), Capsules()
    *whole, last = batches(2)
    given = [*whole, [a[:3] for a in last]]
    losses = [n.trainer(t).fit(given, 1).losses for n, t in ((here, "cpu"), (there, "cuda"))]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    close(there.values(), here.values())


def test_a_report_is_written_of_a_run_on_a_gpu(monkeypatch, tmp_path):
    emulated(monkeypatch, checked=False)
    monkeypatch.setattr(run, "measure_gpu", lambda place: {"copy": 2e12, "float32 multiply-adds": 3e13})
    net, other = Capsules(), Capsules()
    net.trainer("cuda").fit(batches(2), 1, report=tmp_path / "run.html")
    other.trainer("cuda").fit(batches(2), 1)
    page = (tmp_path / "run.html").read_text()
    assert "2000 GB/s" in page and "<b>30000 GFLOP/s</b>" in page and "sm_80, a GPU" in page
    close(net.values(), other.values())


def test_a_gpu_that_is_not_measured_has_its_data_sheet(monkeypatch, caplog):
    def missing():
        raise nf.RuntimeFault("there is no GPU")

    monkeypatch.setattr(devices, "gpu", missing)
    roofs = run.roofs_of(gpu_target("cuda", "sm_90"))
    assert (roofs.gflops, roofs.level(1 << 40).gb_s) == (67000, 4800)
    assert roofs.origin == "by the data sheet of its kind, H200"
    assert "its data sheet stands for it: there is no GPU" in caplog.text
