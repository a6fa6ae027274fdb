"""The kernel cache: what it keeps, drops, rebuilds and does without."""

import fcntl
import gc
import hashlib
import json
import os
import threading
import time
import warnings

import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError
from neoflow.code import Code, Entry, kernel_symbol
from neoflow.runtime import cache as limits
from neoflow.runtime.cache import CacheWarning, KernelCache
from neoflow.runtime.records import packed, sealed, unpacked, unsealed


def key(n):
    return hashlib.sha256(str(n).encode()).hexdigest()


def code(n, tasks=1):
    return Code((Entry(f"{kernel_symbol(key(n))}_0", tasks, False),))


def codes(*numbers):
    return {key(n): code(n) for n in numbers}


def kept(folder, kind="module"):
    return {p.stem for p in folder.glob(f"*.{kind}")}


def used(folder, name, seconds_ago):
    then = time.time() - seconds_ago
    os.utime(folder / name, (then, then))


def test_found_by_key_in_another_process(tmp_path):
    name = KernelCache(tmp_path).publish(b"library", codes(1, 2)).name
    module = KernelCache(tmp_path).find(key(2))
    assert module is not None and (module.name, module.library) == (name, b"library")
    assert module.codes == codes(1, 2)
    assert KernelCache(tmp_path).find(key(3)) is None


def test_a_request_leads_to_a_kernel(tmp_path):
    KernelCache(tmp_path).remember(key("r"), key(1))
    assert KernelCache(tmp_path).kernel_of(key("r")) == key(1)
    assert KernelCache(tmp_path).kernel_of(key("s")) is None


def test_a_certificate_holds_for_one_content_and_one_subgraph(tmp_path):
    cache = KernelCache(tmp_path)
    module, other = cache.publish(b"library", codes(1)), packed(b"another", codes(1))[0]
    cache.certify(key(1), key("s"), module, {"verifier": "v"})
    again = KernelCache(tmp_path)
    assert again.certificate(key(1), key("s"), module) == {
        **{"verifier": "v", "module": module.name, "subgraph": key("s")},
    }
    assert again.certificate(key(1), key("s"), other) is None
    assert again.certificate(key(1), key("s")[:16] + key("t")[16:], module) is None
    again.drop(key(1))
    assert again.find(key(1)) is None and not kept(tmp_path, "certificate")


def test_a_record_says_nothing_under_another_name():
    data = sealed("a.kernel", {"module": key(1)})
    assert unsealed("a.kernel", data) == {"module": key(1)}
    with pytest.raises(ValueError, match="is damaged"):
        unsealed("b.kernel", data)


def test_functions_are_named_by_the_keys_of_their_kernels():
    for wrong in ({key(1): code(2)}, {key(1): Code((Entry("system", 1, False),))}):
        module, data = packed(b"library", wrong)
        with pytest.raises(ValueError, match="has functions that its keys do not name"):
            unpacked(module.name, data)


def test_what_somebody_holds_is_found_in_memory(tmp_path):
    cache = KernelCache(tmp_path)
    module = cache.publish(b"library", codes(1))
    for path in tmp_path.iterdir():
        path.unlink()
    assert cache.find(key(1)) is module
    del module
    gc.collect()
    assert cache.find(key(1)) is None


def test_damaged_records_are_dropped_with_one_warning(tmp_path):
    names = KernelCache(tmp_path).publish(b"library", codes(*range(5))).codes
    for name in names:
        (tmp_path / f"{name}.kernel").write_text('{"module": "12')
    cache = KernelCache(tmp_path)
    with pytest.warns(
        CacheWarning, match=r"cannot be read: \w+\.kernel is damaged; .* dropped and built again"
    ) as found:
        assert [cache.find(name) for name in names for _ in range(2)] == [None] * 10
    assert len(found) == 1 and not kept(tmp_path, "kernel")
    cache.publish(b"library", codes(0))
    assert KernelCache(tmp_path).find(key(0)) is not None


@pytest.mark.parametrize("content", [b"", b"other", b"modul"])
def test_a_damaged_module_is_dropped_with_one_warning(tmp_path, content):
    name = KernelCache(tmp_path).publish(b"module", codes(1, 2)).name
    (tmp_path / f"{name}.module").write_bytes(content)
    cache = KernelCache(tmp_path)
    with pytest.warns(CacheWarning, match=r"\.module is damaged") as found:
        assert cache.find(key(1)) is None and cache.find(key(2)) is None
    assert len(found) == 1 and not kept(tmp_path) and not kept(tmp_path, "kernel")


def test_what_leads_to_a_module_that_went_is_no_damage(tmp_path):
    name = KernelCache(tmp_path).publish(b"library", codes(1)).name
    (tmp_path / f"{name}.module").unlink()
    assert KernelCache(tmp_path).find(key(1)) is None
    assert not kept(tmp_path, "kernel")


def test_the_least_recently_used_go_first_with_what_leads_to_them(tmp_path):
    modules = [KernelCache(tmp_path).publish(bytes([n]) * 5000, codes(n, -n - 1)) for n in range(2)]
    size = (tmp_path / f"{modules[0].name}.module").stat().st_size
    cache = KernelCache(tmp_path)
    for n, m in enumerate(modules):
        cache.certify(key(n), key("s"), m, {})
        used(tmp_path, f"{m.name}.module", 10_000 + 10_000 * n)
    KernelCache(tmp_path).find(key(1))  # now the newer
    new = KernelCache(tmp_path, int(2.5 * size)).publish(b"2" * 5000, codes(2))
    assert kept(tmp_path) == {modules[1].name, new.name}
    assert kept(tmp_path, "kernel") == {key(1), key(-2), key(2)}
    assert kept(tmp_path, "certificate") == {f"{key(1)}-{key('s')[:16]}"}


def test_a_module_beyond_the_limit_stays_until_the_next(tmp_path):
    cache = KernelCache(tmp_path, limit_bytes=10)
    cache.publish(b"1" * 100, codes(1))
    assert KernelCache(tmp_path, 10).find(key(1)) is not None
    new = cache.publish(b"2" * 100, codes(2))
    assert kept(tmp_path) == {new.name}


def test_records_that_nobody_uses_go(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "RECORDS", 5)
    cache = KernelCache(tmp_path)
    for n in range(8):
        cache.remember(key(n), key(1))
        used(tmp_path, f"{key(n)}.request", 1000 - n)
    used(tmp_path, f"{key(7)}.request", limits.RECORD_SECONDS + 100)
    KernelCache(tmp_path).kernel_of(key(7))  # used
    cache.remember(key(8), key(1))
    used(tmp_path, f"{key(8)}.request", limits.RECORD_SECONDS + 100)
    cache.publish(b"library", codes(*range(4)))
    assert kept(tmp_path, "request") == {key(n) for n in range(3, 8)}
    assert kept(tmp_path, "kernel") == {key(n) for n in range(4)}


def test_files_of_killed_processes_are_swept(tmp_path):
    for name, age in ((".new-old", 10_000), (".new-young", 10), ("mine", 10**9), (f"{key(1)}.txt", 10**9)):
        (tmp_path / name).write_text("x")
        used(tmp_path, name, age)
    KernelCache(tmp_path).publish(b"library", codes(1))
    assert {".new-young", "mine", f"{key(1)}.txt"} < {p.name for p in tmp_path.iterdir()}
    assert not (tmp_path / ".new-old").exists()


def test_clear_leaves_what_is_not_the_cache(tmp_path):
    cache = KernelCache(tmp_path)
    (tmp_path / "mine").write_text("x")
    module = cache.publish(b"library", codes(1))
    cache.remember(key("r"), key(1))
    cache.certify(key(1), key("s"), module, {})
    cache.clear()
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
    assert cache.find(key(1)) is None


def test_no_process_waits_for_another(tmp_path):
    """Whoever holds locks on whatever is there."""
    cache = KernelCache(tmp_path, limit_bytes=1)
    cache.publish(b"library", codes(1))
    (tmp_path / "lock").write_text("")
    held = [os.open(p, os.O_RDONLY) for p in tmp_path.iterdir()]
    try:
        for file in held:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        cache.publish(b"another", codes(2))
        assert KernelCache(tmp_path).find(key(2)) is not None
        cache.clear()
    finally:
        for file in held:
            os.close(file)


def test_a_folder_that_is_removed_is_made_again(tmp_path):
    cache = KernelCache(tmp_path / "kernels")
    (tmp_path / "kernels").rmdir()
    cache.refresh()
    cache.publish(b"library", codes(1))
    assert KernelCache(tmp_path / "kernels").find(key(1)) is not None


def test_what_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    cache = KernelCache(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(
        CacheWarning, match="cannot be written: No space left on device; .*set NEOFLOW_CACHE_DIR"
    ) as found:
        modules = [cache.publish(b"library", codes(n)) for n in range(3)]
        cache.remember(key("r"), key(1))
        cache.certify(key(1), key("s"), modules[1], {})
    assert len(found) == 1 and not list(tmp_path.iterdir())
    assert [cache.find(key(n)) for n in range(3)] == modules


def test_few_calls_of_the_system(tmp_path, monkeypatch):
    """A kernel of the cache costs two files, its module one, and the way to the folder a few calls once."""
    module = KernelCache(tmp_path).publish(b"library", codes(*range(10)))
    for n in range(10):
        KernelCache(tmp_path).remember(key(f"r{n}"), key(n))
    calls = []
    for name in ("open", "fstat", "stat", "read", "close", "utime", "write", "unlink", "rename", "scandir"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name, **k: (calls.append(name), real(*a, **k))[1])
    cache = KernelCache(tmp_path)
    assert len(calls) < 60
    calls.clear()
    found = [cache.find(cache.kernel_of(key(f"r{n}"))) for n in range(10)]
    assert {m.name for m in found} == {module.name}
    assert {name: calls.count(name) for name in set(calls)} == dict.fromkeys(("open", "fstat", "read", "close"), 21)


def test_concurrent_publishes_leave_whole_entries(tmp_path):
    def publish(n):
        cache = KernelCache(tmp_path)
        for m in range(10):
            cache.publish(b"%d" % m * 100, codes(m, f"{n}-{m}"))

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    cache = KernelCache(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for m in range(10):
            for name in (m, *(f"{n}-{m}" for n in range(4))):
                module = cache.find(key(name))
                assert module is not None and module.codes[key(name)] == code(name)
                assert module.library == b"%d" % m * 100
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]  # no temporary file is left


def test_clearing_says_what_it_cannot(tmp_path, monkeypatch):
    cache = KernelCache(tmp_path)
    cache.publish(b"library", codes(1))

    def fixed(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "unlink", fixed)
    with pytest.raises(ConfigError, match="cannot be cleared: Read-only file system"):
        cache.clear()


@pytest.mark.tvm
def test_a_program_survives_a_damaged_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "kernels"))
    x = nf.placeholder((3, 5), name="x")
    y = x * 2.0 + 1.0
    value = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert nf.compile(y, [x]).compiled.built == 1
    assert nf.compile(y, [x]).compiled.cached == 1
    monkeypatch.setenv("NEOFLOW_CACHE_BYTES", str(1 << 21))  # other settings: another look at the same folder
    for path in (tmp_path / "kernels").glob("*.module"):
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(CacheWarning) as found:
        f = nf.compile(y, [x])
    assert len(found) == 1 and f.compiled.built == 1
    np.testing.assert_array_equal(f(value)[0], value * 2 + 1)


def test_modules_are_read_as_they_were_written():
    for n in range(50):
        module, data = packed(os.urandom(n * 7) + b"\n{}\n", codes(*range(n)))
        again = unpacked(module.name, data)
        assert (again.library, again.codes) == (module.library, module.codes)
        assert set(json.loads(data.partition(b"\n")[0])) == set(module.codes)
