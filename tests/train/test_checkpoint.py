"""Continuing gives the bits of never having stopped; what is damaged is refused, and what was before it stays."""

import dataclasses
import fcntl
import gc
import json
import os
import signal

import numpy as np
import pytest

import neoflow as nf
from neoflow import CheckpointError
from neoflow.runtime.parameters import get_value, set_value
from neoflow.train import trainer as training
from neoflow.train.checkpoint import Position, checkpoints, load_checkpoint, save_checkpoint
from tests.runtime.programs import InterpretedTrainer, Softmax, batches


def schedule(n):
    return 0.05 / (1 + n)


@pytest.mark.parametrize("kind", [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)])
@pytest.mark.parametrize("stop", [1, 6, 9, 12])
def test_resuming_gives_the_same_bits(tmp_path, kind, stop):
    straight = Softmax().trainer(kind)
    whole = straight.fit(batches(), 3, schedule=schedule)
    first = Softmax().trainer(kind, checkpoint=tmp_path).fit(batches(), 3, steps=stop, schedule=schedule)
    model = Softmax()
    again = model.trainer(kind, checkpoint=tmp_path)
    assert again.resume().step == stop
    rest = again.fit(batches(), 3, schedule=schedule)
    assert first.losses + rest.losses == whole.losses
    assert rest.epochs[-1].training == whole.epochs[-1].training
    for p, q in zip(again.all_parameters, straight.all_parameters, strict=True):
        np.testing.assert_array_equal(get_value(p), get_value(q))


def test_resuming_with_batches_that_have_no_state(tmp_path):
    data = list(batches())
    whole = Softmax().trainer().fit(data, 2).losses
    first = Softmax().trainer(checkpoint=tmp_path).fit(data, 2, steps=8).losses
    again = Softmax().trainer(checkpoint=tmp_path)
    again.resume()
    assert first + again.fit(data, 2).losses == whole


def test_the_newest_two_are_kept(tmp_path):
    trainer = Softmax().trainer(checkpoint=tmp_path, checkpoint_every=4)
    trainer.fit(batches(), 2)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [f"step-000000{n}.{s}" for n in ("08", "12") for s in ("json", "safetensors")]
    content = json.loads((tmp_path / "step-00000012.json").read_text())
    assert content["format"] == "neoflow" and (content["step"], content["epoch"], content["taken"]) == (12, 2, 0)


def two_checkpoints(folder):
    w = nf.parameter((4,), name="w")
    for step in (1, 2):
        set_value(w, np.full(4, step))
        save_checkpoint(folder, [w], Position(step))
    set_value(w, np.zeros(4))
    return w, checkpoints(folder)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"cut", b"foreign", None])
def test_a_damaged_one_is_refused_and_the_one_before_is_usable(tmp_path, suffix, content):
    w, (older, newer) = two_checkpoints(tmp_path)
    path = newer.with_suffix(suffix)
    if content is None:
        path.unlink()
        if suffix == ".json":  # without its JSON there is no checkpoint
            assert load_checkpoint(tmp_path, [w]).step == 1
            return
    else:
        path.write_bytes(path.read_bytes()[:-3] if content == b"cut" else content)
    with pytest.raises(CheckpointError, match=r"checkpoint .*; the one before it is .*step-00000001.json: delete"):
        load_checkpoint(tmp_path, [w])
    assert (get_value(w) == 0).all()
    assert load_checkpoint(older, [w]).step == 1 and (get_value(w) == 1).all()


def test_foreign_ones_are_refused(tmp_path):
    w, (_, newer) = two_checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match=r"w is float32\(4,\), the program wants float32\(5,\)"):
        load_checkpoint(newer, [nf.parameter((5,), name="w")])
    with pytest.raises(CheckpointError, match="has no parameter v"):
        load_checkpoint(newer, [nf.parameter((4,), name="v")])
    content = earlier(json.loads(newer.read_text()))
    for change, message in (
        ({"version": 99}, "has version 99, this neoflow reads 1 and 2"),
        ({"version": True}, "has version True"),
        ({"version": 2}, "is damaged or was edited: its text has another checksum than it says"),
        ({"format": "other"}, "is no checkpoint of neoflow"),
        ({"step": "many"}, "says not where its run stood"),
        ({"step": float("inf")}, "says not where its run stood"),
        ({"step": 1.5}, "says not where its run stood"),
        ({"step": -1}, "says not where its run stood"),
        ({"epoch": True}, "says not where its run stood"),
        ({"taken": 10**30}, "says not where its run stood"),
        ({"data": [3]}, "says not where its run stood"),
        ({"data": {"seed": None}}, "says not where its run stood"),
        ({"totals": {"loss": "x"}}, "says not where its run stood"),
        ({"totals": None}, "says not where its run stood"),
        ({"bytes": "all"}, "has another checksum|with another checksum"),
    ):
        newer.write_text(json.dumps({**content, **change}))
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(newer, [w])
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        load_checkpoint(tmp_path / "..", [w])
    assert (get_value(w) == 0).all()


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"format":' * 5000, "1" * 5000, "\ud800", "[]", "null", "\0" * 9, "x" * (2 << 20)]
)
def test_what_is_no_checkpoint_is_refused(tmp_path, text):
    w, (_, newer) = two_checkpoints(tmp_path)
    newer.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(CheckpointError, match=r"(cannot be read|is no checkpoint).*the one before it is"):
        load_checkpoint(tmp_path, [w])


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_pipe_or_a_folder_is_refused(tmp_path, suffix):
    w, (_, newer) = two_checkpoints(tmp_path)
    path = newer.with_suffix(suffix)
    for make in (os.mkfifo, os.mkdir):
        path.unlink()
        make(path)
        with pytest.raises(CheckpointError, match="is no regular file; the one before it is"):
            load_checkpoint(tmp_path, [w])
        path.rmdir() if path.is_dir() else path.unlink()
        path.touch()


def earlier(content):
    """A checkpoint's content as version 1 had it."""
    return {**{k: v for k, v in content.items() if k not in ("checksum", "optimizer")}, "version": 1}


def test_the_earlier_version_is_read(tmp_path):
    w, (_, newer) = two_checkpoints(tmp_path)
    newer.write_text(json.dumps(earlier(json.loads(newer.read_text())), indent=1))
    assert load_checkpoint(tmp_path, [w], "SGD").step == 2 and (get_value(w) == 2).all()
    with pytest.raises(
        CheckpointError, match=r"does not fit this run \(with Adam\): it has no parameter w.m; continue"
    ):
        load_checkpoint(tmp_path, [w, nf.parameter((4,), name="w.m")], "Adam")


def test_many_steps_are_in_order(tmp_path):
    w = nf.parameter((1,), name="w")
    for step in (99_999_998, 99_999_999, 100_000_000, 1_000_000_001):
        save_checkpoint(tmp_path, [w], Position(step))
    assert [p.stem for p in checkpoints(tmp_path)] == ["step-100000000", "step-1000000001"]
    assert load_checkpoint(tmp_path, [w]).step == 1_000_000_001


def test_what_is_not_named_like_a_checkpoint_is_none(tmp_path):
    w, paths = two_checkpoints(tmp_path)
    for name in ("step-x.json", "step-3.json", "step-000000004.json", "step-00000005.json.bak"):
        (tmp_path / name).write_text("{}")
    assert checkpoints(tmp_path) == paths and checkpoints(tmp_path / "none") == []
    assert load_checkpoint(tmp_path, [w]).step == 2


@pytest.mark.parametrize(("made", "wanted"), [("Adam", "SGD"), ("SGD", "Adam")])
def test_another_optimizer_is_refused(tmp_path, made, wanted):
    def trainer(name):
        return Softmax().trainer(checkpoint=tmp_path, optimizer=getattr(nf.optim, name)(lr=0.05))

    trainer(made).fit(batches(), 1)
    other = trainer(wanted)
    before = [get_value(p) for p in other.all_parameters]
    message = rf"was made with {made}, this run has {wanted}: continue with the optimizer it was made with, or load"
    with pytest.raises(CheckpointError, match=message):
        other.resume()
    assert all((get_value(p) == b).all() for p, b in zip(other.all_parameters, before, strict=True))


def test_more_tensors_than_there_are_places_are_refused(tmp_path):
    w, v = nf.parameter((2,), name="w"), nf.parameter((2,), name="v")
    save_checkpoint(tmp_path, [w, v], Position(1))
    with pytest.raises(CheckpointError, match="does not fit this program: it has v, for which there is no place; cont"):
        load_checkpoint(tmp_path, [w])


def test_what_a_killed_run_left_is_removed(tmp_path):
    w, _ = two_checkpoints(tmp_path)
    ours = [".step-00000003.json.abcd_123.part", ".step-00000003.safetensors.abcdefgh.part"]
    old, young = ".step-00000002.safetensors.ijklmnop", ".step-00000002.json.qrstuvwx"  # as they were named earlier
    foreign = [".step-00000003.json.swp", ".notes.abcdefgh.part", "step-00000003.json.abcdefgh.part"]
    orphan = "step-00000001.safetensors"
    for name in (*ours, old, young, *foreign):
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (1, 1))
    (tmp_path / "step-00000001.json").unlink()  # killed between the two removals
    with open(tmp_path / ours[0]) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        load_checkpoint(tmp_path, [w])
        left = {p.name for p in tmp_path.iterdir()}
        assert {ours[0], young, *foreign} <= left and not {ours[1], old} & left
    save_checkpoint(tmp_path, [w], Position(3))
    left = {p.name for p in tmp_path.iterdir()}
    assert {young, *foreign} <= left and not {*ours, orphan} & left


def test_a_folder_that_cannot_be_written_is_said_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    seen = []
    trainer = Softmax().trainer(checkpoint=tmp_path / "file" / "kept")
    with pytest.raises(CheckpointError, match=r"no checkpoint can be written to .*file/kept: "):
        trainer.fit(batches(), 1, on_step=seen.append)
    assert not seen and not trainer.functions
    trainer = Softmax().trainer(checkpoint=tmp_path / "new" / "kept")
    trainer.fit(batches(), 1)
    assert len(list((tmp_path / "new" / "kept").iterdir())) == 2


def test_a_place_in_other_data_is_refused(tmp_path):
    Softmax().trainer(checkpoint=tmp_path).fit(batches(), 1)
    trainer = Softmax().trainer(checkpoint=tmp_path)
    trainer.resume()
    trainer.position = dataclasses.replace(trainer.position, data={"line": 3})
    with pytest.raises(CheckpointError, match=r"the checkpoint's place in the data does not fit these batches: .*line"):
        trainer.fit(batches(), 2)


class Stop(BaseException):
    """What a signal's handler may raise."""


@pytest.mark.tvm
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 9))])
def test_an_exception_at_any_moment_leaves_parameters_and_position_of_one_step(tmp_path, seed):
    """The run goes on from there, in the same process or from a checkpoint, to the same bits."""
    straight, rng = Softmax().trainer(nf.Trainer), np.random.default_rng(seed)
    straight.fit(batches(), 8)
    trainer = Softmax().trainer(nf.Trainer, checkpoint=tmp_path)

    def raise_it(number, frame):
        raise Stop if rng.random() < 0.5 else KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_it)
    stops = 0
    gc.freeze()  # what other tests left is not gone through at every stop
    try:
        while trainer.position.epoch < 8:
            trainer.step_function()
            gc.collect()  # what is raised in a finalizer is lost
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-3, 1e-2) + (0 if stops < 25 else 1e3))
                trainer.fit(batches(), 8)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except (Stop, KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0)
            stops += 1
            if stops % 5 == 0 and not trainer.begun.is_made:
                trainer.save()
                again = Softmax().trainer(nf.Trainer, checkpoint=tmp_path)
                if checkpoints(tmp_path):
                    again.resume()
                    trainer = again
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.unfreeze()
    for p, q in zip(trainer.all_parameters, straight.all_parameters, strict=True):
        np.testing.assert_array_equal(get_value(p), get_value(q))


def test_a_failed_write_leaves_the_older_one(tmp_path, monkeypatch):
    w, _ = two_checkpoints(tmp_path)

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match=r"no checkpoint can be written to .*no space left"):
        save_checkpoint(tmp_path, [w], Position(3))
    monkeypatch.undo()
    assert load_checkpoint(tmp_path, [w]).step == 2
    assert len(list(tmp_path.iterdir())) == 4


def test_a_new_run_does_not_mix_with_an_old_one(tmp_path):
    Softmax().trainer(checkpoint=tmp_path).fit(batches(), 1)
    with pytest.raises(CheckpointError, match=r"has checkpoints of another run \(up to step-00000006\.json\): resume"):
        Softmax().trainer(checkpoint=tmp_path).fit(batches(), 1)
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        Softmax().trainer().resume()


@pytest.mark.tvm
def test_an_interrupt_behind_the_first_checkpoint_leaves_the_folder_to_the_run(tmp_path, monkeypatch):
    trainer = Softmax().trainer(nf.Trainer, checkpoint=tmp_path)
    written = training.save_checkpoint

    def interrupted(*given):
        written(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "save_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(batches(), 1)
    assert checkpoints(tmp_path)
    monkeypatch.undo()
    trainer.fit(batches(), 2)
    assert trainer.position.epoch == 2
