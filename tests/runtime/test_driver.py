"""`CudaDriver` over a driver API that is made up: what its errors say, and what every thread has to do first."""

import threading
from types import SimpleNamespace

import pytest

import neoflow as nf
from neoflow.runtime.device.cuda import CudaDriver


class Code(int):
    """A `CUresult`."""

    def __new__(cls, name="CUDA_SUCCESS", number=0):
        made = super().__new__(cls, number)
        made.name = name
        return made


class Api:
    """`cuda.bindings.driver`: every function gives 8; those of `failing` end with a code of that name."""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=2,
    )

    def __init__(self):
        self.failing, self.missing, self.calls = {}, set(), []
        for handle in ("CUstream", "CUevent", "CUmodule", "CUfunction", "CUgraphExec"):
            setattr(self, handle, int)

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, threading.get_ident()))
            if name in self.missing:
                raise RuntimeError(f'Function "{name}" not found')
            if name in self.failing:
                return (Code(self.failing[name], 1),)
            found = {"cuDeviceGetName": b"board\0", "cuGetErrorString": b"words of the driver"}.get(name, 8)
            return (Code(), found)

        return call


@pytest.fixture
def api(monkeypatch):
    made = Api()
    monkeypatch.setattr("cuda.bindings.driver", made, raising=False)
    return made


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("CUDA_ERROR_NO_DEVICE", "no GPU is seen: look at nvidia-smi and CUDA_VISIBLE_DEVICES"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the driver was updated: restart the machine"),
        ("CUDA_ERROR_STUB_LIBRARY", "take its folder out of LD_LIBRARY_PATH"),
    ],
)
def test_no_device_is_told(api, name, advice):
    api.failing["cuInit"] = name
    with pytest.raises(nf.RuntimeFault) as caught:
        CudaDriver()
    assert f"cuInit failed: words of the driver ({name}); " in str(caught.value) and advice in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name", "advice"),
    [
        (
            lambda d: d.load(b""),
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "the driver is older than the compiler: update it",
        ),
        (lambda d: d.load(b""), "CUDA_ERROR_NO_BINARY_FOR_GPU", "the code is for another architecture"),
        (lambda d: d.allocate(8), "CUDA_ERROR_OUT_OF_MEMORY", "take a smaller batch, or end what else uses the GPU"),
        (lambda d: d.synchronize(), "CUDA_ERROR_NOT_INITIALIZED", "a child of fork cannot use the GPU of its parent"),
        (lambda d: d.synchronize(), "CUDA_ERROR_UNKNOWN", "(CUDA_ERROR_UNKNOWN)"),
    ],
)
def test_an_error_says_what_to_do(api, call, name, advice):
    driver = CudaDriver()
    api.failing = dict.fromkeys(("cuModuleLoadData", "cuMemAlloc", "cuStreamSynchronize"), name)
    with pytest.raises(nf.RuntimeFault) as caught:
        call(driver)
    assert advice in str(caught.value) and "words of the driver" in str(caught.value)
    api.failing = {}
    driver.synchronize()


def test_a_driver_without_a_function_is_too_old(api):
    driver = CudaDriver()
    api.missing.add("cuMemHostAlloc")
    with pytest.raises(nf.RuntimeFault, match=r"it has no cuMemHostAlloc .*; the driver is older than the compiler"):
        driver.pinned(8)


def test_after_an_illegal_address_every_call_tells_of_it_once(api):
    driver = CudaDriver()
    api.failing["cuStreamSynchronize"] = "CUDA_ERROR_ILLEGAL_ADDRESS"
    with pytest.raises(nf.RuntimeFault) as first:
        driver.synchronize()
    assert "(CUDA_ERROR_ILLEGAL_ADDRESS); nothing runs on the GPU any more in this process" in str(first.value)
    api.failing = {}
    before = len(api.calls)
    for call in (driver.synchronize, driver.free_bytes, lambda: driver.allocate(8), lambda: driver.run_graph(1)):
        with pytest.raises(nf.RuntimeFault) as later:
            call()
        assert str(later.value) == str(first.value)
    driver.free(8)
    driver.free_pinned(8)
    driver.free_graph(8)
    assert len(api.calls) == before


def test_every_thread_has_the_context(api):
    driver = CudaDriver()
    api.calls.clear()
    thread = threading.Thread(target=lambda: [driver.synchronize() for _ in range(2)])
    thread.start()
    thread.join()
    driver.synchronize()
    names = [name for name, _ in api.calls]
    assert names == ["cuCtxSetCurrent", "cuStreamSynchronize", "cuStreamSynchronize", "cuStreamSynchronize"]
