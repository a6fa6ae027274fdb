"""Wrong calls of everything public, counted by how they end: none in an error of Python, NumPy or a part of neoflow."""

import inspect

import pytest

import neoflow as nf
from tests.attack import mistakes


def counted(start: int, stride: int) -> dict[str, int]:
    """Every `stride`-th of the wrong calls, run; how many end in which way."""
    ends, raw, number = {"taken": 0, "refused": 0, "Python's": 0}, [], 0
    for name, row in mistakes.calls().items():
        for what, args, named in mistakes.variants(row):
            number += 1
            if number % stride == start:
                end = mistakes.ended(row.made(), args, named)
                if end in ends:
                    ends[end] += 1
                else:
                    raw.append(f"{name}, {what}: {end}")
    assert not raw, f"{len(raw)} of {number // stride}: {raw[:20]}"
    return ends


@pytest.mark.tvm
def test_some_wrong_calls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "cache"))  # some of them measure
    ends = counted(3, 151)
    assert sum(ends.values()) > 400 and ends["refused"] > 2 * ends["taken"]


@pytest.mark.tvm
@pytest.mark.slow
def test_every_wrong_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "cache"))  # some of them measure
    ends = counted(0, 1)
    assert sum(ends.values()) > 60_000 and ends["refused"] > 2 * ends["taken"]


def test_every_public_function_is_among_them():
    said = mistakes.calls()
    homes = {"nf": nf, "F": nf.nn.functional, "nn": nf.nn, "init": nf.nn.init, "optim": nf.optim}
    left = {
        f"{home}.{name}"
        for home, module in homes.items()
        for name in module.__all__
        if callable(getattr(module, name)) and not inspect.ismodule(getattr(module, name))
        if f"{home}.{name}" not in said and not _is_error(getattr(module, name))
    }
    assert left == {
        *("nf.Parameter", "nf.Tensor", "F.BatchNormalized", "nn.Summary"),  # made by others
        *("init.Init", "init.counter", "init.ones", "init.zeros"),  # a type, and what is called by neoflow
    }


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, BaseException)
