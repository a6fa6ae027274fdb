"""What is kept on the disk, by the command: kernels, records of tuning."""

import json
import os
import time

import numpy as np
import pytest

import neoflow as nf
from neoflow.tune.records import Records
from neoflow.tuning.kept import records_in
from tests.tune.candidates import TARGET, product, trials


def compiled(factor=0.125):
    """A kernel in the cache, called once."""
    x = nf.placeholder((7,), name="x")
    f = nf.compile([nf.exp(x) * factor], inputs=[x])
    f(np.ones(7, np.float32))
    return f.compiled


@pytest.mark.tvm
def test_cache(run, kept):
    compiled()
    status, out, _ = run("cache", "--json")
    found = json.loads(out)
    assert status == 0 and found["folder"] == str(kept) and (found["trials"], found["damaged"]) == (0, 0)
    assert found["kernels"] >= 1 and found["modules"] >= 1 and 0 < found["nbytes"] < found["limit_bytes"]
    status, out, _ = run("cache", "--clear")
    assert status == 0 and "0 kernels in 0 modules, 0.0 of at most 2048 MiB; 0 compared with NumPy" in out
    compiled()  # compiled again
    assert json.loads(run("cache", "clear", "--json")[1])["kernels"] == 0


@pytest.mark.tvm
def test_cache_ls_says_what_kernels_compute(run, kept):
    made = compiled()
    rows = {row["key"]: row for row in json.loads(run("cache", "ls", "--json")[1])}
    (kernel,) = made.kernels
    row = rows[kernel.key]
    assert row["subgraph"] == kernel.subgraph.to_text() and row["target"] == kernel.target.to_text()
    assert row["schedule"] == kernel.schedule.to_json() and not row["is_judged"]
    assert row["module_bytes"] > 0 and row["module_kernels"] == 1 and 0 <= row["unused_seconds"] < 600
    out = run("cache", "ls")[1]
    assert kernel.key[:16] in out and "exp(" in out and "today" in out and "not compared" in out


@pytest.mark.tvm
def test_cache_verify_reads_and_judges_again(run, kept):
    compiled(0.125)
    second = compiled(0.25)
    status, out, _ = run("cache", "verify", "--json")
    found = json.loads(out)
    assert status == 0 and found["judged"] == 2 and found["damaged"] == found["wrong"] == {} and found["files"] >= 6
    module = kept / f"{second.modules[0].name}.module"
    module.write_bytes(module.read_bytes()[:-1])
    assert json.loads(run("cache", "verify", "--files", "--json")[1])["damaged"] == {module.name: "is damaged"}
    status, out, _ = run("cache", "verify", "--json")
    found = json.loads(out)
    assert status == 1 and found["judged"] == 1 and list(found["damaged"].values()) == ["leads to no module"]


@pytest.mark.tvm
def test_cache_verify_finds_a_kernel_that_is_wrong(run, kept):
    """One that is said to be of the other's subgraph, under a seal that is right."""
    from neoflow.runtime.cache import KernelCache

    one, other = compiled(0.125), compiled(0.25)
    cache = KernelCache(kept)
    said = {about["kernel"]: (file.name.partition(".")[0], about) for file, about in cache.said("request")}
    request, _ = said[one.kernels[0].key]
    cache.remember(request, one.kernels[0].key, said[other.kernels[0].key][1])
    status, out, _ = run("cache", "verify")
    assert status == 1 and "2 kernels compared with NumPy, 1 wrong" in out and "computes v2[" in out
    assert run("cache", "verify")[0] == 0  # it has left the cache


@pytest.mark.tvm
def test_cache_prune(run, kept):
    compiled(0.125)
    compiled(0.25)
    everything = json.loads(run("cache", "--json")[1])
    assert json.loads(run("cache", "prune", "--older", "1", "--json")[1]) == everything
    oldest = sorted(kept.glob("*.module"))[0]
    for path in (oldest, *kept.glob("*.request")):
        os.utime(path, (time.time() - 5 * 86400,) * 2)
    found = json.loads(run("cache", "prune", "--older", "4.5", "--json")[1])
    assert found["modules"] == everything["modules"] - 1 and not oldest.exists() and not list(kept.glob("*.request"))
    assert json.loads(run("cache", "prune", "--bytes", "0", "--json")[1])["nbytes"] == 0
    status, _, err = run("cache", "prune")
    assert status == 1 and "say what is to go: --older DAYS, --bytes N, or both" in err
    compiled()


def test_schedules_are_passed_on(run, kept, tmp_path, monkeypatch):
    measured = trials(product(), 10)
    records_in(kept).add(product(), TARGET, measured)
    best = min((t for t in measured if t.seconds), key=lambda t: t.seconds)
    for group in ("tune", "cache"):
        monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(kept))
        path = tmp_path / f"{group}.jsonl"
        assert json.loads(run(group, "export", path, "--json")[1]) == {"path": str(path), "schedules": 8}
        assert "1 schedules: " in run(group, "export", path, "--best", "1")[1]
        monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / f"other {group}"))
        status, out, _ = run(group, "import", path, "--json")
        assert status == 0 and json.loads(out) == {"new": 1, "known": 0, "refused": 0, "reasons": []}
        there = records_in(tmp_path / f"other {group}")
        assert there.to_measure(product(), TARGET) == [best.schedule] and there.best(product(), TARGET) is None
        path.write_text("roses are red\n" + path.read_text())
        status, out, _ = run(group, "import", path)
        assert status == 0 and "0 schedules imported" in out and "1 known already, 1 lines refused\nline 1: " in out
        path.write_text("roses are red\n")
        assert run(group, "import", path)[0] == 1
        assert json.loads(run("cache", "--json")[1])["trials"] == 1
        assert json.loads(run("cache", "clear", "--json")[1])["trials"] == 1
        assert json.loads(run("cache", "clear", "--records", "--json")[1])["trials"] == 0
    monkeypatch.setattr(Records, "clear", lambda records: os.unlink(tmp_path / "absent"))
    status, _, err = run("cache", "clear", "--records")
    assert status == 1 and "the records of tuning cannot be removed: No such file" in err
    status, _, err = run("tune", "import", tmp_path / "absent")
    assert status == 1 and "the schedules " in err and "cannot be read: No such file" in err
    status, _, err = run("tune", "export", tmp_path)
    assert status == 1 and "the schedules cannot be written to " in err
