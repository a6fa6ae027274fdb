"""Every test session has a kernel cache of its own; what needs a compiler that is not here is skipped."""

import signal

import pytest

from neoflow import machine, target
from tests.emulator.faults import NoCompiler


def pytest_addoption(parser):
    parser.addoption(
        "--narrow", action="store_true", help="as on a processor of 256-bit vectors, whatever this one has"
    )


def pytest_configure(config):
    """Before any test asks what this machine is, or is interrupted: what a shell runs in the background ignores that,
    and so would what it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--narrow"):
        info = machine.cpuinfo()
        info["flags"] = " ".join(f for f in info.get("flags", "").split() if not f.startswith(("avx512", "amx")))
        machine.cpuinfo = target.cpuinfo = lambda: dict(info)
        target._l2_bytes = lambda: 1 << 19


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("kernels")
        patch.setenv("NEOFLOW_CACHE_DIR", str(folder))
        patch.setattr("neoflow.tuning.roofs.share_of_others", lambda: 1.0)  # kernels are cut by what is stated
        patch.setattr("neoflow.measure.near.are_near", lambda: True)  # no test waits for cores that are apart
        yield folder


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A folder for the kernels and records of one test, which are nobody else's."""
    kernels = tmp_path / "kernels"
    kernels.mkdir(mode=0o700)
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(kernels))
    return kernels


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """A test that comes to the emulator on a machine without g++ is skipped, and the summary says why."""
    try:
        return (yield)
    except NoCompiler as error:
        pytest.skip(str(error))
