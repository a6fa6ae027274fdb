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
    CUevent_record_flags = SimpleNamespace(CU_EVENT_RECORD_EXTERNAL=1)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def __init__(self):
        self.failing, self.missing, self.calls, self.given, self.giving = {}, set(), [], [], {}
        for handle in ("CUstream", "CUevent", "CUmodule", "CUfunction", "CUgraphExec"):
            setattr(self, handle, int)

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, threading.get_ident()))
            self.given.append((name, *arguments))
            if name in self.missing:
                raise RuntimeError(f'Function "{name}" not found')
            if name in self.failing:
                return (Code(self.failing[name], 1),)
            found = {"cuDeviceGetName": b"board\0", "cuGetErrorString": b"words of the driver"}.get(name, 8)
            return (Code(), self.giving[name]() if name in self.giving else found)

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


def test_no_driver_is_told(api):
    """cuda-bindings finds no library then, and raises an error that is a RuntimeError too."""
    api.missing.add("cuInit")
    with pytest.raises(nf.RuntimeFault, match=r"there is no NVIDIA driver on this machine \(RuntimeError\)"):
        CudaDriver()


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


def test_other_streams_wait_for_a_graph_with_nothing_in_between(api):
    driver = CudaDriver()
    for item in driver.launches(5, (7, 9)):
        driver.judge(item)
    assert api.given[-4:] == [
        ("cuGraphLaunch", 5, 8),
        ("cuEventRecord", 8, 8),
        ("cuStreamWaitEvent", 7, 8, 0),
        ("cuStreamWaitEvent", 9, 8, 0),
    ]
    before = len(api.given)
    driver.run_graph(5)
    assert [name for name, *_ in api.given[before:]] == ["cuGraphLaunch"]
    api.failing["cuStreamWaitEvent"] = "CUDA_ERROR_INVALID_HANDLE"
    launched = list(driver.launches(5, (7,)))
    driver.judge(launched[0])
    with pytest.raises(nf.RuntimeFault, match="cuStreamWaitEvent failed: words of the driver"):
        driver.judge(launched[2])


def test_other_streams_wait_for_what_is_there_without_a_graph(api):
    driver = CudaDriver()
    before = len(api.given)
    assert list(driver.leads(())) == [] and len(api.given) == before
    found = driver.leads((7,))
    assert len(api.given) == before, "nothing is done before it is asked for"
    for item in found:
        driver.judge(item)
    assert api.given[before:] == [("cuEventRecord", 8, 8), ("cuStreamWaitEvent", 7, 8, 0)]


def test_a_stream_leads_and_follows(api):
    driver = CudaDriver()
    for call, waiting, other in ((driver.follow, 8, 7), (driver.lead, 7, 8)):
        call(7)
        names = ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"]
        assert [name for name, *_ in api.given[-4:]] == names
        assert api.given[-3] == ("cuEventRecord", 8, other) and api.given[-2][1] == waiting


def test_an_event_says_whether_its_moment_has_come(api):
    driver = CudaDriver()
    assert driver.is_over(8)
    api.failing["cuEventQuery"] = "CUDA_ERROR_NOT_READY"
    assert not driver.is_over(8)
    api.failing["cuEventQuery"] = "CUDA_ERROR_INVALID_HANDLE"
    with pytest.raises(nf.RuntimeFault, match="cuEventQuery failed"):
        driver.is_over(8)


@pytest.mark.parametrize("end", ["end_graph", "drop_graph"])
def test_what_is_freed_while_a_graph_is_made_goes_after_that(api, end):
    """A finalizer may come at any time; freeing memory would end the graph."""
    driver = CudaDriver()
    driver.begin_graph()
    driver.free(5)
    driver.free_event(6)
    driver.copy(1, 2, 3)
    assert not {"cuMemFree", "cuEventDestroy"} & {name for name, *_ in api.given}
    other = threading.Thread(target=lambda: driver.free(7))
    other.start()
    other.join()
    assert ("cuMemFree", 7) in api.given
    getattr(driver, end)()
    ended = [name for name, *_ in api.given].index("cuStreamEndCapture")
    assert api.given.index(("cuMemFree", 5)) > ended and ("cuEventDestroy", 6) in api.given
    driver.free(8)
    assert api.given[-1] == ("cuMemFree", 8)


def test_a_graph_is_made_in_a_stream_of_its_own(api):
    driver = CudaDriver()
    handles = iter((20, 21))
    api.giving["cuStreamCreate"] = lambda: next(handles)
    driver.begin_graph()
    driver.copy(1, 2, 3)
    driver.clear(1, 3)
    driver.mark(4)
    other = threading.Thread(target=lambda: driver.copy(1, 2, 3))
    other.start()
    other.join()
    driver.end_graph()
    driver.copy(1, 2, 3)
    copies = [given[-1] for given in api.given if given[0] == "cuMemcpyDtoDAsync"]
    assert copies == [20, 8, 8] and ("cuMemsetD8Async", 1, 0, 3, 20) in api.given
    assert ("cuEventRecordWithFlags", 4, 20, 1) in api.given and ("cuStreamDestroy", 20) in api.given
    driver.begin_graph()
    driver.drop_graph()
    driver.drop_graph()
    assert [given for given in api.given if given[-1] == 21 and given[0] == "cuStreamDestroy"] == [
        ("cuStreamDestroy", 21)
    ]
    assert ("cuStreamEndCapture", 21) in api.given


def test_branches_of_a_graph_wait_for_what_was_before_them_and_what_follows_for_all_of_them(api):
    driver = CudaDriver()
    streams, events = iter((20, 21, 22)), iter((31, 32, 33))
    api.giving["cuStreamCreate"], api.giving["cuEventCreate"] = lambda: next(streams), lambda: next(events)
    driver.begin_graph()
    began = len(api.given)
    for number in (1, 2, 1):
        driver.branch(number)
        driver.copy(1, 2, number)
    driver.join()
    driver.copy(1, 2, 5)
    made = [given for given in api.given[began:] if given[0] not in ("cuStreamCreate", "cuEventCreate")]
    assert made == [
        ("cuEventRecord", 31, 20),
        ("cuStreamWaitEvent", 21, 31, 0),
        ("cuMemcpyDtoDAsync", 1, 2, 1, 21),
        ("cuStreamWaitEvent", 22, 31, 0),
        ("cuMemcpyDtoDAsync", 1, 2, 2, 22),
        ("cuMemcpyDtoDAsync", 1, 2, 1, 21),
        ("cuEventRecord", 32, 21),
        ("cuStreamWaitEvent", 20, 32, 0),
        ("cuEventRecord", 33, 22),
        ("cuStreamWaitEvent", 20, 33, 0),
        ("cuMemcpyDtoDAsync", 1, 2, 5, 20),
    ]
    driver.end_graph()
    ended = [name for name, *_ in api.given].index("cuStreamEndCapture")
    gone = api.given[ended:]
    assert all(("cuStreamDestroy", s) in gone for s in (20, 21, 22))
    assert all(("cuEventDestroy", e) in gone for e in (31, 32, 33))
    driver.copy(1, 2, 7)
    assert api.given[-1] == ("cuMemcpyDtoDAsync", 1, 2, 7, 8)
