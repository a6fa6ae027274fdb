"""Memory of a GPU, which is the emulator, from and to another library by DLPack: no copies, and in the right order."""

import gc

import numpy as np
import pytest

import neoflow as nf
from neoflow.runtime.device.cuda import DeviceArray, dlpack
from tests.emulator.driver import emulated
from tests.runtime.foreign import Tensor

pytestmark = pytest.mark.tvm


@pytest.fixture
def gpu(monkeypatch):
    return emulated(monkeypatch)


def taken(capsule):
    """What another library makes of a capsule: the address, shape and dtype; given back with the last holder."""
    return dlpack.Foreign(capsule)


def doubled(dtype="float32", shape=(3, 4)):
    x = nf.placeholder(shape, dtype, name="x")
    return nf.compile([x + x], [x], target="cuda")


A = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_a_tensor_is_used_where_it_lies_and_results_stay_there(gpu):
    f, t = doubled(), Tensor(A)
    (y,) = f(t)
    assert isinstance(y, DeviceArray) and t.streams == [gpu.driver.stream]
    assert f._executor.arrays[f.plan.inputs[0]].address == t.address and "upload" not in gpu.driver.calls
    np.testing.assert_array_equal(np.asarray(y), 2 * A)
    assert isinstance(f(A)[0], np.ndarray)
    gc.collect()
    assert t.released == 1


def test_a_call_returns_when_the_inputs_were_read(gpu):
    f = doubled()
    f(Tensor(A))
    assert gpu.driver.calls[-1] == "synchronize"


def test_results_that_somebody_holds_keep_their_values(gpu):
    f = doubled()
    (first,) = f(Tensor(A))
    (second,) = f(Tensor(A + 1))
    np.testing.assert_array_equal(np.asarray(first), 2 * A)
    np.testing.assert_array_equal(np.asarray(f(f(second)[0])[0]), 8 * (A + 1))
    address = first.address
    there = taken(first.__dlpack__(stream=7))
    assert (there.address, there.shape, there.dtype, there.device) == (address, (3, 4), "float32", (2, 0))
    del first
    f(A)
    np.testing.assert_array_equal(
        np.asarray(DeviceArray(f._executor.arrays[f.plan.outputs[0]].block, 0, (3, 4), "float32")), 2 * A
    )
    assert f._executor.arrays[f.plan.outputs[0]].address != address
    before = len(dlpack._given)
    del there
    assert len(dlpack._given) == before - 1


def test_memory_is_used_again_after_its_readers(gpu):
    f = doubled()
    (y,) = f(Tensor(A))
    capsule = y.__dlpack__(stream=7)
    del y, capsule
    f(A)
    assert gpu.driver.followed == [7]


def test_graphs_of_the_addresses_seen_lately_are_kept(gpu):
    f, tensors = doubled(), [Tensor(A + n) for n in range(3)]
    for n in range(9):
        np.testing.assert_array_equal(np.asarray(f(tensors[n % 3])[0]), 2 * (A + n % 3))
    assert gpu.driver.calls.count("graph") == 3


@pytest.mark.parametrize("options", [{"shift": 4}, {"shape": (3, 4), "strides": (1, 3)}])
def test_what_kernels_cannot_read_is_copied(gpu, options):
    t = Tensor(A.reshape(4, 3).copy() if "strides" in options else A, **options)
    wanted = A.reshape(4, 3).T if "strides" in options else A
    np.testing.assert_array_equal(np.asarray(doubled()(t)[0]), 2 * wanted)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (lambda: Tensor(A.T.copy()), r"input x has shape \(3, 4\), the array \(4, 3\)"),
        (lambda: Tensor(A.astype(np.float64)), "input x is float32, the array float64; convert it to float32"),
        (lambda: Tensor(A, place=(dlpack.CUDA, 1)), "input x: it is on device cuda:1, the program on cuda:0"),
        (lambda: Tensor(A, place=(10, 0)), "input x: the Tensor is on device rocm:0; bring it to the CPU first"),
    ],
)
def test_what_does_not_fit_is_refused(gpu, tensor, message):
    with pytest.raises(nf.RuntimeFault, match=message):
        doubled()(tensor())


def test_a_library_that_gives_nothing_is_told_of(gpu):
    class Detached(Tensor):
        def __dlpack__(self, *, stream=None):
            raise BufferError("requires grad; use detach()")

    with pytest.raises(nf.RuntimeFault, match=r"input x: the Detached gives no memory by DLPack: requires grad"):
        doubled()(Detached(A))


def test_what_is_given_is_given_as_it_is(gpu):
    (y,) = doubled()(Tensor(A))
    for options in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="as it is and where it is"):
            y.__dlpack__(**options)
    with pytest.raises(ValueError, match="only as a copy"):
        y.__array__(copy=False)
    x = nf.placeholder((3, 4), name="x")
    with pytest.raises(nf.RuntimeFault, match="is on device cuda:0; bring it to the CPU first"):
        nf.compile([x + 1.0], [x])(y)
