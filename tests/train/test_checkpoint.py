"""Continuing gives the bits of never having stopped; what is damaged is refused, and what was before it stays."""

import json

import numpy as np
import pytest

import neoflow as nf
from neoflow import CheckpointError
from neoflow.runtime.parameters import get_value, set_value
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
    content = json.loads(newer.read_text())
    for change, message in (
        ({"version": 99}, "has version 99, this neoflow reads 1"),
        ({"format": "other"}, "is no checkpoint of neoflow"),
        ({"step": "many"}, "says not where its run stood"),
    ):
        newer.write_text(json.dumps({**content, **change}))
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(newer, [w])
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        load_checkpoint(tmp_path / "..", [w])
    assert (get_value(w) == 0).all()


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
