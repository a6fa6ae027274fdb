"""`neoflow train` on every model file: its data in the form the model takes, and text whose best loss is known."""

import math

import numpy as np
import pytest

import neoflow as nf
from neoflow import data
from neoflow.errors import ConfigError, DataError
from neoflow.models import build_model
from neoflow.nn import Model, Parameters
from neoflow.nn import functional as F
from neoflow.report.run import report_session
from neoflow.train.arrange import Arranged, load_data
from neoflow.train.session import run_session


@pytest.mark.parametrize("name", ["capsnet", "mi_lstm", "mi_lstm_ptb", "ptb_lstm", "bert", "resnet", "shufflenet"])
def test_batches_fit_the_model(name):
    model = build_model(name, 4, small=True)
    split, arrange = load_data(None, model)
    batches = Arranged(split.train, 4, seed=0)
    batches.arrange = arrange
    x, labels = next(iter(batches))
    assert (x.shape, x.dtype) == (model.x.shape, np.dtype(model.x.dtype))
    assert (labels.shape, labels.dtype) == (model.labels.shape, np.dtype(model.labels.dtype))
    assert x.flags.c_contiguous and labels.max() < model.classes and (x != x.reshape(-1)[0]).any()


def test_a_variant_keeps_its_sizes():
    assert build_model("resnet50", 1, small=True).x.shape == (1, 3, 64, 64)
    small = {n: build_model(n, 1, small=True) for n in ("bert", "bert_layer")}
    assert {n: sum(p.endswith("qkv_w") for p in m.parameters) for n, m in small.items()} == {"bert": 2, "bert_layer": 1}


def test_samples_stay_apart():
    """Sample b of a batch is sample b of the data, whichever axis counts samples."""
    images = np.arange(3, dtype=np.float32).reshape(3, 1, 1, 1) * np.ones((3, 1, 8, 8), np.float32)
    for axis, shape in ((0, (3, 2, 8, 5)), (0, (3, 8, 5)), (1, (8, 3, 5))):
        x, labels = nf.placeholder(shape), nf.placeholder((3,), "int64")
        scores = nf.zeros((3, 10))
        model = Model("m", x, labels, Parameters("m"), F.cross_entropy(scores, labels), scores, 10, batch_axis=axis)
        found, _ = load_data(None, model)[1](images, np.zeros(3, np.int64))
        assert found.shape == shape
        np.testing.assert_array_equal(np.moveaxis(found, axis, 0).reshape(3, -1)[:, 0], [0, 1, 2])


def test_models_that_there_is_no_data_for(tmp_path):
    with pytest.raises(ConfigError, match=r"images \[B, C, H, W\].* has 4 classes"):
        load_data(None, build_model("mi_lstm", 2, classes=4))
    with pytest.raises(ConfigError, match=r"ptb_lstm learns words.*leave out --data"):
        load_data(tmp_path, build_model("ptb_lstm", 2, small=True))
    with pytest.raises(ConfigError, match="capsnet learns no words: leave out --text"):
        load_data(None, build_model("capsnet", 2), text=True)


def test_characters():
    """Each label is the character after, also from window to window; what is judged by is not learned from."""
    split = data.characters(length=24, train=300, test=50)
    learned, held_out = split.train, split.test
    assert (learned.inputs.shape, held_out.inputs.shape) == ((300, 24), (50, 24)) and learned.classes == 128
    text = bytes(learned.inputs.reshape(-1).tolist()).decode("ascii")
    assert " the " in text and text[1:] == bytes(learned.labels.reshape(-1).tolist()).decode("ascii")[:-1]
    assert bytes(held_out.inputs.reshape(-1).tolist()).decode("ascii") not in text and split.floor is None
    for arguments in ((24, 300, 50, 100), (0, 300, 50), (24, 0, 50)):
        with pytest.raises(DataError, match="characters need a vocabulary of 128"):
            data.characters(*arguments)
    with pytest.raises(DataError, match=r"the text has \d+ characters, too few for 1000050 windows of 24"):
        data.characters(24, 1_000_000, 50)


def test_words_of_a_model_are_characters():
    for name in ("ptb_lstm", "mi_lstm_text"):
        model = build_model(name, 4, small=True)
        split, arrange = load_data(None, model, text=True)
        x, labels = arrange(split.train.inputs[:4], split.train.labels[:4])
        assert x.shape == labels.shape == model.x.shape and labels.max() < 128 <= model.classes


def test_chain():
    """Every word is followed by four others, as often as the floor is computed with."""
    split = data.chain(vocabulary=100, length=20, train=2000, test=10)
    assert len(split.train) == 2000 and len(split.test) == 10 and split.train.classes == 100
    before, after = split.train.inputs, split.train.labels
    np.testing.assert_array_equal(before[:, 1:], after[:, :-1])
    counts = np.zeros((100, 100))
    np.add.at(counts, (before, after), 1)
    seen = counts[counts.sum(axis=1) > 0]
    assert ((seen > 0).sum(axis=1) == 4).all()
    frequencies = np.sort(seen / seen.sum(axis=1, keepdims=True), axis=1)[:, -4:]
    np.testing.assert_allclose(frequencies.mean(axis=0), [0.125, 0.125, 0.25, 0.5], atol=0.02)
    assert split.floor == pytest.approx(1.75 * math.log(2))
    np.testing.assert_array_equal(data.chain(100, 20, 2000, 10).test.inputs, split.test.inputs)
    with pytest.raises(DataError, match="a chain needs 4 words"):
        data.chain(3, 20, 10, 10)


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epochs", "accuracy"),
    [("mi_lstm", 4, 0.8), ("ptb_lstm", 4, 0.45), ("bert", 4, 0.8), ("shufflenet", 2, 0.8)],
)
def test_trains(name, epochs, accuracy, tmp_path):
    summary = report_session(run_session(name, epochs=epochs, progress=False), tmp_path / "{model}.html")
    assert summary.accuracy > accuracy
    assert summary.report is not None
    if summary.floor is not None:
        assert summary.test_loss > 0.97 * summary.floor and "at best 1.213" in str(summary)
