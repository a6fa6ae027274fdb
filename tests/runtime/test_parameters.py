"""Values of parameters, and their files."""

import gc

import numpy as np
import pytest

import neoflow as nf
from neoflow import CheckpointError, RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.runtime.parameters import get_value, set_value
from neoflow.runtime.store import STORE


def make(**shapes):
    return [nf.parameter(shape, name=name) for name, shape in shapes.items()]


def test_first_values():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(get_value(nf.parameter((2, 3), init=array)), array)
    np.testing.assert_array_equal(get_value(nf.parameter((2, 3))), np.zeros((2, 3)))
    drawn = [nf.parameter((4,), name=n, init=lambda shape, rng: rng.normal(size=shape)) for n in ("a", "b", "a")]
    a, b, same = map(get_value, drawn)
    assert (a != b).all() and (a == same).all()


def test_a_seed_changes_only_what_has_no_value():
    p, q = (nf.parameter((4,), name="p", init=lambda shape, rng: rng.normal(size=shape)) for _ in range(2))
    before = get_value(p)
    STORE.initialize(p, 7)
    STORE.initialize(q, 7)
    np.testing.assert_array_equal(get_value(p), before)
    assert (get_value(q) != before).all()


def test_values_die_with_their_parameters():
    count = len(STORE._memory)
    for _ in range(5):
        get_value(nf.parameter((1000,)))
    gc.collect()
    assert len(STORE._memory) <= count + 1


def test_set_refuses_another_shape():
    with pytest.raises(RuntimeFault, match=r"parameter w has shape \(2,\), the value \(1, 2\)"):
        set_value(nf.parameter((2,), name="w"), np.zeros((1, 2)))


def test_file_round_trip(tmp_path):
    a, step = nf.parameter((3, 2), name="a"), nf.parameter((), "int64", name="step")
    set_value(a, np.random.default_rng(0).normal(size=(3, 2)))
    set_value(step, np.array(2**53 + 1))
    kept = get_value(a)
    nf.save_parameters(tmp_path / "w.safetensors", [a, step], {"epoch": "3"})
    set_value(a, np.zeros((3, 2)))
    set_value(step, np.array(0))
    assert nf.load_parameters(tmp_path / "w.safetensors", [a, step])["epoch"] == "3"
    np.testing.assert_array_equal(get_value(a), kept)
    assert get_value(step) == 2**53 + 1
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize("dtype", sorted(dt.NUMPY))
def test_every_type_round_trips_through_a_file(tmp_path, dtype):
    p, one = nf.parameter((2, 3), dtype, name="p"), nf.parameter((), dtype, name="one")
    values = np.array([[0, 1, 0], [1, 1, 0]]) if dtype == "bool" else np.array([[0, 1, -2], [3, 64, -128]])
    set_value(p, values.astype(dt.NUMPY[dtype]))
    set_value(one, np.array(1).astype(dt.NUMPY[dtype]))
    before = [get_value(q) for q in (p, one)]
    nf.save_parameters(tmp_path / "w.safetensors", [p, one])
    for q in (p, one):
        set_value(q, np.zeros(q.shape, dt.NUMPY[dtype]))
    nf.load_parameters(tmp_path / "w.safetensors", [p, one])
    for q, value in zip((p, one), before, strict=True):
        assert get_value(q).dtype == dt.NUMPY[dtype]
        np.testing.assert_array_equal(get_value(q), value)


@pytest.mark.torch
def test_a_file_of_bfloat16_is_pytorch_s(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    p, path = nf.parameter((5,), "bfloat16", name="p"), tmp_path / "w.safetensors"
    save_file({"p": torch.tensor([1.0, -2.5, 3e38, float("inf"), 1e-40], dtype=torch.bfloat16)}, path)
    nf.load_parameters(path, [p])
    assert get_value(p).astype(np.float32).tolist()[:2] == [1.0, -2.5]
    nf.save_parameters(tmp_path / "again.safetensors", [p])
    assert torch.equal(load_file(tmp_path / "again.safetensors")["p"], load_file(path)["p"])


def test_refusals_change_nothing(tmp_path):
    path = tmp_path / "w.safetensors"
    a, b = make(a=(2,), b=(3,))
    nf.save_parameters(path, [a, b])
    other = nf.parameter((4,), name="b")
    set_value(a, np.ones(2))
    with pytest.raises(CheckpointError, match=r"b is float32\(3,\), the program wants float32\(4,\)"):
        nf.load_parameters(path, [a, other])
    with pytest.raises(CheckpointError, match="has no parameter c; it holds a, b"):
        nf.load_parameters(path, [a, *make(c=(1,))])
    with pytest.raises(CheckpointError, match="two parameters are named a"):
        nf.load_parameters(path, [a, *make(a=(2,))])
    for content in (b"", b"\x00" * 7, b"PK\x03\x04" * 40, path.read_bytes()[:-1]):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="is no readable safetensors file"):
            nf.load_parameters(path, [a, b])
    with pytest.raises(CheckpointError, match="is no readable safetensors file"):
        nf.load_parameters(tmp_path / "none", [a])
    np.testing.assert_array_equal(get_value(a), np.ones(2))
