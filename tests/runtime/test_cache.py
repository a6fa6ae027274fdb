"""The kernel cache: what it refuses, drops and rebuilds."""

import os
import threading
import time
import warnings

import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError
from neoflow.kernel import Code, Entry
from neoflow.runtime.cache import CacheWarning, KernelCache


def code(symbol):
    return Code((Entry(symbol, 1, False),))


def test_found_by_key_in_another_process(tmp_path):
    name = KernelCache(tmp_path).publish(b"module", {"k1": code("f"), "k2": code("g")})
    again = KernelCache(tmp_path)
    entry = again.find("k2")
    assert entry is not None and (entry.module, entry.code) == (name, code("g"))
    assert again.data(name) == b"module"
    assert again.find("k3") is None


def test_folders_are_private(tmp_path):
    KernelCache(tmp_path / "new")
    assert all((tmp_path / "new" / f).stat().st_mode & 0o777 == 0o700 for f in ("", "modules", "index"))


@pytest.mark.parametrize("folder", ["", "modules", "index"])
def test_folder_others_can_write_to_is_refused(tmp_path, folder):
    KernelCache(tmp_path)
    os.chmod(tmp_path / folder, 0o770)
    with pytest.raises(ConfigError, match=r"can be written by others \(mode 770.*chmod 700"):
        KernelCache(tmp_path)


def test_damaged_index_is_dropped_with_one_warning(tmp_path):
    KernelCache(tmp_path).publish(b"module", {"k": code("f")})
    (tmp_path / "index" / "k.json").write_text('{"module": "12')
    cache = KernelCache(tmp_path)
    with pytest.warns(CacheWarning, match=r"k\.json is damaged; it is dropped and built again") as found:
        assert cache.find("k") is None
        assert cache.find("k") is None
    assert len(found) == 1


@pytest.mark.parametrize("content", [b"", b"other", b"modul"])
def test_damaged_module_is_dropped_with_one_warning(tmp_path, content):
    cache = KernelCache(tmp_path)
    name = cache.publish(b"module", {"k": code("f"), "k2": code("g")})
    cache.module_path(name).write_bytes(content)
    cache = KernelCache(tmp_path)
    with pytest.warns(CacheWarning, match=r"module .* is damaged") as found:
        assert cache.find("k") is None
        assert cache.find("k2") is None
    assert len(found) == 1
    cache.publish(b"module", {"k": code("f")})
    assert cache.find("k") is not None


def test_missing_module_is_no_entry(tmp_path):
    cache = KernelCache(tmp_path)
    cache.module_path(cache.publish(b"module", {"k": code("f")})).unlink()
    assert KernelCache(tmp_path).find("k") is None


def test_the_least_recently_used_go_first(tmp_path):
    cache = KernelCache(tmp_path, limit_bytes=250)
    names = [cache.publish(bytes([n]) * 100, {f"k{n}": code("f")}) for n in range(2)]
    old = time.time() - 100
    os.utime(cache.module_path(names[0]), (old, old))
    os.utime(cache.module_path(names[1]), (old - 100, old - 100))
    KernelCache(tmp_path, 250).find("k1")  # used: now the newer
    names.append(cache.publish(b"2" * 100, {"k2": code("f")}))
    left = {p.stem for p in (tmp_path / "modules").iterdir()}
    assert left == {names[1], names[2]}


def test_a_module_beyond_the_limit_stays_until_the_next(tmp_path):
    cache = KernelCache(tmp_path, limit_bytes=10)
    cache.publish(b"1" * 100, {"a": code("f")})
    assert KernelCache(tmp_path, 10).find("a") is not None
    cache.publish(b"2" * 100, {"b": code("f")})
    assert sum(p.stat().st_size for p in (tmp_path / "modules").iterdir()) == 100


def test_concurrent_publishes_leave_whole_entries(tmp_path):
    def publish(n):
        cache = KernelCache(tmp_path)
        for m in range(10):
            cache.publish(b"%d" % m * 100, {f"k{m}": code(f"f{m}"), f"own{n}-{m}": code("f")})

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    cache = KernelCache(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for m in range(10):
            entry = cache.find(f"k{m}")
            assert entry is not None and entry.code == code(f"f{m}") and cache.data(entry.module) == b"%d" % m * 100
            assert all(cache.find(f"own{n}-{m}") == type(entry)(entry.module, code("f")) for n in range(4))
    assert not [p for p in (tmp_path / "modules").iterdir() if p.suffix != ".o"]  # no temporary file is left


@pytest.mark.tvm
def test_a_program_survives_a_damaged_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "kernels"))
    x = nf.placeholder((3, 5), name="x")
    y = x * 2.0 + 1.0
    value = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert nf.compile(y, [x]).compiled.built == 1
    assert nf.compile(y, [x]).compiled.cached == 1
    monkeypatch.setenv("NEOFLOW_CACHE_BYTES", str(1 << 21))  # other settings: another look at the same folder
    for path in (tmp_path / "kernels" / "modules").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(CacheWarning) as found:
        f = nf.compile(y, [x])
    assert len(found) == 1 and f.compiled.built == 1
    np.testing.assert_array_equal(f(value)[0], value * 2 + 1)
