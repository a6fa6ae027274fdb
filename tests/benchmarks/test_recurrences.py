"""Recurrences as scans: what they and their gradients are in PyTorch and JAX, and the table beside these."""

import contextlib
import importlib
import inspect

import numpy as np
import pytest

import neoflow as nf
from benchmarks.recurrences import __main__ as command
from benchmarks.recurrences import cases, ours
from benchmarks.rows.arrays import draw
from benchmarks.rows.contest import Measured

LONGEST = 40
"""Lines of a recurrence."""


def agrees(form, module, steps, compute):
    """compute: (roots, inputs, arrays) -> arrays."""
    row = cases.of_steps(form, steps, is_small=True)
    roots, inputs, _ = ours.program(row)
    arrays = draw(row)
    wanted = importlib.import_module(f"benchmarks.recurrences.{module}").prepared(row, arrays, is_compiled=False)()
    assert len(wanted) == len(roots) == 1 + len(row.wrt)
    for a, b in zip(compute(roots, inputs, arrays), wanted, strict=True):
        value = b.detach().numpy() if hasattr(b, "detach") else np.asarray(b)
        np.testing.assert_allclose(a, value, rtol=2e-4, atol=2e-5 * max(1.0, float(np.abs(value).max())))


def evaluated(roots, inputs, arrays):
    return nf.evaluate(roots, dict(zip(inputs, arrays, strict=True)))


def compiled(roots, inputs, arrays):
    return nf.compile(roots, inputs)(*arrays)


@pytest.mark.torch
@pytest.mark.parametrize("form", ours.FORMS)
def test_pytorch_has_the_same_values_and_gradients(form):
    pytest.importorskip("torch")
    agrees(form, "in_torch", 5, evaluated)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.tvm
@pytest.mark.parametrize("steps", [2, 9, 40])
@pytest.mark.parametrize("form", ours.FORMS)
def test_compiled_they_are_the_same(form, steps):
    pytest.importorskip("torch")
    if form == "ctc" and steps < 4:
        steps = 4  # of fewer there are no labels
    agrees(form, "in_torch", steps, compiled)


@pytest.mark.slow
@pytest.mark.jax
@pytest.mark.tvm
@pytest.mark.parametrize("form", ours.FORMS)
def test_jax_has_the_same_values_and_gradients(form):
    pytest.importorskip("jax")
    agrees(form, "in_jax", 12, compiled)


def test_each_is_short():
    for form in ours.FORMS.values():
        assert len(inspect.getsource(form).splitlines()) <= LONGEST


def test_the_rows():
    full, dry = cases.rows(), cases.rows(dry=True)
    assert [r.name for r in full] == [r.name for r in dry] and len({r.name for r in full}) == len(full)
    assert {r.form for r in full} == set(ours.FORMS) and len(full) == len(ours.FORMS) * len(cases.STEPS)
    assert all(bool(r.wrt) == (r.form != "decoder") for r in full)
    assert all(len(r.scales) == len(r.dtypes) for r in full)


def test_rows_are_kept_as_they_end_and_the_rest_goes_on(tmp_path, capsys, monkeypatch):
    done = []

    class Fake(contextlib.nullcontext):
        def __enter__(self):
            return self

        def measure(self, row):
            done.append(row.name)
            if len(done) == 2:
                return Measured(row.name, "2026-01-01", missing={"neoflow": "it took more than 180 s"})
            seconds = {"neoflow default": 2e-3, "PyTorch": 9e-3, "JAX": 6e-3}
            ratios = {"neoflow default": 1.0, "PyTorch": 2 / 9, "JAX": 1 / 3}
            told, first = {"compile": 0.5}, {"neoflow": 1.5, "JAX": 0.25}
            return Measured(row.name, "2026-01-01", seconds, ratios, {"JAX": 0.5}, told=told, first=first)

    arguments = ["--dry", "--rows", "^CTC", "--out", str(tmp_path)]
    assert command.main(arguments, Fake) == 0 and len(done) == len(cases.STEPS)
    printed = capsys.readouterr().out
    assert "| CTC, T = 16 | 2.000 | 9.000 | - | - | 6.000 | JAX | 3.00 | WRONG: JAX is off by 5.0e-01 |" in printed
    assert "no neoflow: it took more than 180 s" in printed
    assert "3 of 36 rows; the best peer's time over neoflow's, geometric mean: 3.00 (wanted: 2.0)." in printed
    assert "| CTC: neoflow, to compile | 0.50 | - | 0.50 | 0.50 |" in printed
    assert "| CTC: JAX, first result | 0.25 | - | 0.25 | 0.25 |" in printed
    assert command.main(arguments, Fake) == 0 and done[len(cases.STEPS) :] == [done[1]]
    written = {}
    monkeypatch.setattr(command, "write", lambda section, title, how, lines: written.update({section: lines}))
    assert command.main([*arguments[1:], "--write"], Fake) == 0 and "36 rows" in written["recurrences"][0]
    capsys.readouterr()
    assert command.main(["--list", "--rows", "RK4, T = 16"]) == 0
    assert capsys.readouterr().out == "neural ODE, RK4, T = 16\n"


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.torch
@pytest.mark.jax
def test_the_contenders_take_turns(tmp_path, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    arguments = ["--dry", "--rows", "Euler, T = 16", "--out", str(tmp_path), "--rounds", "1", "--block", "0.01"]
    assert command.main(arguments) == 0
    (found,) = command.read(tmp_path / command.FILE).values()
    assert not found.missing and max(found.errors.values()) < command.WRONG
    assert found.told["compile"] > 0 and {"neoflow", "PyTorch", "JAX"} <= set(found.first)
