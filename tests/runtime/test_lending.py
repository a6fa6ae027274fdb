"""Another library's stream and that of the GPU, which is the emulator: they wait for each other, the host for none."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import neoflow as nf
from neoflow.runtime.device.cuda import libraries
from neoflow.runtime.transfer import ADDRESSES, MOST_LENT, SPARES, OnDevice
from tests.emulator.driver import EmulatedDriver, emulated
from tests.emulator.machine import MEMORY
from tests.emulator.streams import OTHERS
from tests.runtime.foreign import STREAM, Jax, Tensor, Torch, known

pytestmark = pytest.mark.tvm
WHEN = pytest.mark.parametrize("late", [True, False])
A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def libraries_known(monkeypatch):
    known(monkeypatch)


def doubled():
    x = nf.placeholder((3, 4), name="x")
    return nf.compile([x + x], [x], target="cuda")


def exchange(monkeypatch, late):
    """What three steps give on a tensor that its library fills before each, and overwrites after it."""
    gpu = emulated(monkeypatch, late_others=late)
    f, t, found = doubled(), Torch(gpu, A), []
    for n in range(3):
        t.fill(A + n)
        found += f(t)
        t.fill(A - 100)
    assert "synchronize" not in gpu.driver.calls and "to_host" not in gpu.driver.calls
    return np.stack([np.asarray(y) for y in found])


@WHEN
def test_a_tensor_is_read_when_it_is_there_and_overwritten_when_it_was_read(monkeypatch, late):
    np.testing.assert_array_equal(exchange(monkeypatch, late), [2 * (A + n) for n in range(3)])


@pytest.mark.parametrize(("late", "left_out"), [(True, "follow"), (False, "lead")])
def test_whoever_does_not_wait_is_found_out(monkeypatch, late, left_out):
    monkeypatch.setattr(EmulatedDriver, left_out, lambda *_: None)
    assert not np.array_equal(exchange(monkeypatch, late), [2 * (A + n) for n in range(3)])


@WHEN
def test_a_result_is_read_when_it_is_there_and_used_again_when_it_was_read(monkeypatch, late):
    gpu = emulated(monkeypatch, late_others=late)
    f, t, seen = doubled(), Torch(gpu, A), []
    for n in range(3):
        t.fill(A + n)
        (y,) = f(t)
        address, capsule = y.address, y.__dlpack__(stream=STREAM)
        found = np.empty_like(A)
        gpu.driver.streams.put(OTHERS, lambda at=address, to=found: MEMORY.read(at, to))
        seen.append(found)
        del y, capsule
    assert "synchronize" not in gpu.driver.calls
    gpu.driver.streams.finish_all()
    np.testing.assert_array_equal(seen, [2 * (A + n) for n in range(3)])


@WHEN
def test_what_another_library_changes_in_a_result_is_seen(monkeypatch, late):
    gpu = emulated(monkeypatch, late_others=late)
    f = doubled()
    (y,) = f(Torch(gpu, A))
    kept = y.__dlpack__(stream=STREAM)
    gpu.driver.streams.put(OTHERS, lambda: MEMORY.write(y.address, A + 5))
    (z,) = f(y)
    gpu.driver.streams.put(OTHERS, lambda: MEMORY.write(y.address, A - 100))
    np.testing.assert_array_equal(np.asarray(z), 2 * (A + 5))
    np.testing.assert_array_equal(np.asarray(y), A - 100)
    del kept


def test_what_is_lent_goes_back_when_the_step_is_over(monkeypatch):
    gpu = emulated(monkeypatch)
    f, given = doubled(), []
    for n in range(MOST_LENT + 3):
        given.append(Jax(A + n))
        f(given[-1])
        assert sum(t.released for t in given) == max(0, n - MOST_LENT)
    assert gpu.driver.led == [] and "synchronize" not in gpu.driver.calls
    assert gpu.driver.calls.count("graph") == ADDRESSES + 1 and gpu.driver.calls.count("copy") == len(given) - ADDRESSES
    gpu.driver.streams.finish()
    f(A)
    assert all(t.released for t in given)
    last = Jax(A)
    (y,) = f(last)
    assert not last.released
    del f
    assert last.released
    np.testing.assert_array_equal(np.asarray(y), 2 * A)


def test_results_that_are_held_in_turn_need_no_new_memory(monkeypatch):
    gpu = emulated(monkeypatch)
    f, t, held, used = doubled(), Torch(gpu, A), [], []
    for n in range(12):
        t.fill(A + n)
        held = [*held[1 - SPARES :], *f(t)]
        used.append(gpu.driver.used)
    assert len(set(used[SPARES:])) == 1
    np.testing.assert_array_equal(np.stack([np.asarray(y) for y in held]), [2 * (A + n) for n in (9, 10, 11)])
    assert gpu.driver.calls.count("graph") <= SPARES + 1


def test_a_copy_of_what_kernels_cannot_read_is_made_before_it_goes_back(monkeypatch):
    gpu = emulated(monkeypatch, late_others=False)
    t = Torch(gpu, np.zeros(16, np.float32))
    t.address, t.shape = t.address + 4, (3, 4)
    MEMORY.write(t.address, A)
    f = doubled()
    (y,) = f(t)
    assert not t.released
    t.fill(A - 100)
    np.testing.assert_array_equal(np.asarray(y), 2 * A)


@WHEN
def test_the_library_waits_for_a_step_that_was_interrupted(monkeypatch, late):
    gpu = emulated(monkeypatch, late_others=late)
    f, t = doubled(), Torch(gpu, A)

    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OnDevice, "results", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f(t)
    t.fill(A - 100)
    assert f.runs == 1
    np.testing.assert_array_equal(np.asarray(f.results()[0]), 2 * A)


def test_the_host_waits_for_a_library_that_nobody_knows(monkeypatch):
    gpu = emulated(monkeypatch)
    f, order = doubled(), []
    f.run_beside(lambda: order.append(gpu.driver.calls[-1]), Tensor(A))
    assert order == ["synchronize"] and gpu.driver.led == []


def test_the_stream_of_a_library(monkeypatch):
    class Cupy:
        __module__ = "cupy"

    class Device:
        def __init__(self, ordinal):
            self.ordinal = ordinal

        def __enter__(self):
            here.append(self.ordinal)

        def __exit__(self, *_):
            pass

    here = []
    cuda = SimpleNamespace(Device=Device, get_current_stream=lambda: SimpleNamespace(ptr=0))
    assert libraries.follower(Cupy(), 3) == libraries.HOST
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    assert libraries.follower(Cupy(), 3) == libraries.LEGACY and here == [3]
    assert libraries.follower(Jax(A), 0) is None and libraries.follower(Tensor(A), 0) == libraries.HOST
    assert libraries.follower(Torch(None, A), 2) == STREAM + 2
