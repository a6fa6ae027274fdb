"""Batches that lie on the GPU, which is the emulator: steps, evaluations and predictions as of NumPy's arrays."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.runtime.device.cuda import DeviceArray
from neoflow.train.feed import as_array
from tests.emulator.driver import emulated
from tests.runtime.foreign import Jax, Torch, known
from tests.train.networks import Capsules, batches
from tests.train.test_gpu import close

pytestmark = pytest.mark.tvm
WHEN = pytest.mark.parametrize("late", [True, False])


@pytest.fixture(autouse=True)
def libraries_known(monkeypatch):
    known(monkeypatch)


def overwritten(gpu, given):
    """The batches of another library that has one of each array, and fills it anew."""
    made = [Torch(gpu, np.zeros_like(a)) for a in given[0]]
    for batch in given:
        for tensor, array in zip(made, batch, strict=True):
            tensor.fill(array)
        yield made


@WHEN
def test_steps_on_tensors_that_are_filled_anew(monkeypatch, late):
    gpu = emulated(monkeypatch, checked=False, late_others=late)
    here, there = Capsules(), Capsules()
    losses = here.trainer().fit(batches(), 1).losses
    found = there.trainer("cuda").fit(lambda: overwritten(gpu, batches()), 1).losses
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    close(there.values(), here.values())
    assert gpu.driver.calls.count("upload") == 4  # of the learning rate


def test_steps_on_arrays_of_which_some_lie_there(monkeypatch):
    emulated(monkeypatch, checked=False)
    here, there = Capsules(), Capsules()
    *whole, last = batches(3)
    given = [*whole, [a[:3] for a in last]]
    losses = here.trainer().fit(given, 1).losses
    mixed = [[Jax(x), words, Jax(labels)] for x, words, labels in given]
    np.testing.assert_allclose(there.trainer("cuda").fit(mixed, 1).losses, losses, rtol=1e-4)
    close(there.values(), here.values())


@WHEN
def test_evaluation_and_prediction(monkeypatch, late):
    gpu = emulated(monkeypatch, checked=False, late_others=late)
    net, (x, words, _) = Capsules(), (np.concatenate(a) for a in zip(*batches(3), strict=True))
    here, there = net.trainer(), net.trainer("cuda")
    close(there.evaluate(lambda: overwritten(gpu, batches())), here.evaluate(batches()))
    wanted = here.predict(net.scores, (x[:7], words[:7]))
    for kind in (lambda a: Torch(gpu, a), Jax):
        found = there.predict(net.scores, (kind(x[:7]), kind(words[:7])))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(nf.RuntimeFault, match=r"input x has shape \(4, 2, 6, 6\), the array \(7, 2\)"):
        there.predict(net.scores, (Torch(gpu, x[:7, :, 0, 0]), words[:7]))


def test_a_loss_that_is_not_finite_is_explained(monkeypatch):
    gpu = emulated(monkeypatch, checked=False)
    batch = batches(1)[0]
    batch[0][1, 0, 2, 3] = np.nan
    with pytest.raises(nf.RuntimeFault, match=r"the first to go bad is input x\[1, 0, 2, 3\] = nan"):
        Capsules().trainer("cuda").fit([[Torch(gpu, a) for a in batch]], 1)


def test_results_may_be_batches(monkeypatch):
    emulated(monkeypatch, checked=False)
    x = nf.placeholder((4, 3), name="x")
    (y,) = nf.compile([x * 2.0], [x], target="cuda")(Jax(np.ones((4, 3), np.float32)))
    assert isinstance(y, DeviceArray)
    np.testing.assert_array_equal(as_array(y), np.full((4, 3), 2.0))


@WHEN
@pytest.mark.parametrize("what", ["evaluate", "predict"])
def test_the_next_batch_is_uploaded_while_one_is_judged(monkeypatch, late, what):
    gpu = emulated(monkeypatch, checked=False, late_uploads=late)
    net, given = Capsules(), batches(3)
    here, there = net.trainer(), net.trainer("cuda")
    there.evaluate(given) if what == "evaluate" else there.predict(net.scores, given)
    gpu.driver.calls.clear()
    if what == "evaluate":
        found, wanted = (t.evaluate(given) for t in (there, here))
    else:
        found, wanted = ({"scores": t.predict(net.scores, given)} for t in (there, here))
    close(found, wanted)
    arrays = 4 if what == "evaluate" else 2  # images, words; labels, weights
    assert gpu.driver.calls.count("upload") == 3 * arrays
    order = [c for c in gpu.driver.calls if c in ("run", "upload", "to_host")]
    assert order.index("upload", order.index("run")) < order.index("to_host")


def test_what_the_data_of_an_evaluation_raise_comes_after_its_batches(monkeypatch):
    gpu = emulated(monkeypatch, checked=False)

    def data():
        yield from batches(2)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        Capsules().trainer("cuda").evaluate(data)
    assert gpu.driver.calls.count("run") == 2


def test_tensors_of_the_host_are_brought_too(monkeypatch):
    gpu = emulated(monkeypatch)
    x = nf.placeholder((3, 4), name="x")
    f = nf.compile([x * 2.0], [x], target="cuda")
    a, b = (np.full((3, 4), n, np.float32) for n in (1, 2))

    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    there = Tensor(b)
    f.run_beside(lambda: f.bring([there]), a)
    before = gpu.driver.calls.count("upload")
    np.testing.assert_array_equal(f(there)[0], 2 * b)
    assert gpu.driver.calls.count("upload") == before
