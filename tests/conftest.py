"""Every test session has a kernel cache of its own."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("kernels")
        patch.setenv("NEOFLOW_CACHE_DIR", str(folder))
        yield folder
