"""The operator table: all frameworks compute the same of a row, rows are kept, tables say what was measured."""

import contextlib
import importlib
import json

import numpy as np
import pytest

import neoflow as nf
from benchmarks import operators
from benchmarks.rows import cases, contest, meta, ours, tables
from benchmarks.rows.arrays import draw
from benchmarks.rows.contest import Measured, Setting
from neoflow.contest.contenders import OURS, PEERS, Contender
from neoflow.contest.process import Worker, WorkerFailure
from neoflow.expr.tensor import Compute, topological
from neoflow.models import build_model

DRY = cases.rows(dry=True)
OF_EACH_FORM = {r.form: r for r in DRY}
OF_EACH_KIND = {(r.form, bool(r.wrt), tuple(r.options.values())): r for r in DRY}
BROKEN = Contender("broken", "no such kind")


def agrees(module, row):
    peer = importlib.import_module(f"benchmarks.rows.{module}")
    roots, inputs, _ = ours.program(row)
    arrays = draw(row)
    wanted = nf.evaluate(roots, dict(zip(inputs, arrays, strict=True)))
    found = peer.prepared(row, arrays, is_compiled=False)()
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        value = a.detach().numpy() if hasattr(a, "detach") else np.asarray(a)
        np.testing.assert_allclose(value, b, rtol=2e-3, atol=2e-5)


@pytest.mark.torch
def test_pytorch_computes_the_same():
    pytest.importorskip("torch")
    for row in OF_EACH_FORM.values():
        agrees("in_torch", row)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.parametrize("module", ["in_torch", "in_jax"])
def test_every_kind_is_the_same_in_all(module):
    if module == "in_torch":
        pytest.importorskip("torch")
    else:
        pytest.importorskip("jax")
    for row in OF_EACH_KIND.values():
        agrees(module, row)


def test_the_rows():
    full = cases.rows()
    assert [r.name for r in full] == [r.name for r in DRY] and len({r.name for r in full}) == len(full)
    assert {r.form for r in full} == ours.FORMS.keys() and {r.kind for r in full} == {"contraction", "memory"}
    for word in (
        "matmul 2048 A B^T",
        "matmul batched",
        "3x3 512->512 7x7 b16, dw",
        "7x7 stride 2",
        "32x4d",
        "3 groups",
    ):
        assert any(word in r.name for r in full), word
    assert set(meta.ROWS) <= {r.name for r in full}


def convolutions_of(model):
    """Of a network as it is built here: out channels, in channels, extent, window, stride of each."""
    for t in topological([model.scores]):
        if isinstance(t, Compute) and t.definition.reduction_axes and [len(i.shape) for i in t.inputs] == [4, 4]:
            (_, _, size, _), (o, c, window, _) = (i.shape for i in t.inputs)
            stride = -(-(size - window + 1) // t.shape[2])
            yield o, c, size - 2 * (window // 2), window, stride


def test_every_convolution_of_resnet50_has_its_rows():
    found = {
        (r.shapes[1][0], *r.shapes[0][1:3], r.shapes[1][2], r.options["stride"], r.shapes[0][0], r.name[-2:].strip())
        for r in cases.rows()
        if r.form == "convolution" and r.options["groups"] == 1
    }
    wanted = set(convolutions_of(build_model("resnet50", 1)))
    assert len(wanted) == 23 and (64, 64, 56, 1, 1) in wanted and (64, 3, 224, 7, 2) in wanted
    assert found == {(*w, b, what) for w in wanted for b in (1, 16) for what in ("y", "dx", "dw")}


def measured(name, seconds, told=None, **more):
    ratios = {n: seconds[min(seconds, key=lambda k: k != "neoflow")] / s for n, s in seconds.items()}
    facts = {
        "operations": 1e9,
        "bytes": 1e6,
        "floor": 1e-3,
        "peak": 1e12,
        "search": 7.4,
        "alone": seconds["neoflow"],
        **(told or {}),
    }
    return Measured(name, "2026-01-01", seconds, ratios, told=facts, **more)


def test_rows_are_kept_as_they_end_and_the_rest_goes_on(tmp_path, capsys):
    done = []

    class Fake(contextlib.nullcontext):
        def __enter__(self):
            return self

        def measure(self, row):
            done.append(row.name)
            if len(done) == 2:
                return Measured(row.name, "2026-01-01", missing={"neoflow": "its process ended with status -9"})
            return measured(row.name, {"neoflow": 1.1e-3, "neoflow default": 2e-3, "PyTorch": 3.3e-3, "JAX": 2.2e-3})

    arguments = ["--dry", "--rows", "^matmul 256", "--out", str(tmp_path)]
    assert operators.main(arguments, Fake) == 0
    printed = capsys.readouterr().out
    assert (
        "| matmul 256 A B | 2.000 | 1.100 | 3.300 | - | - | 2.200 | 91% | peak | 3.00 | JAX | 2.00 | 7 | 2026"
        in printed
    )
    assert "no neoflow: its process ended with status -9" in printed and "| rows measured, of 218 | 2 | |" in printed
    with (tmp_path / operators.FILE).open("a") as file:
        file.write('{"name": "matmul 512 A B", "da')
    assert operators.main(arguments, Fake) == 0 and done[3:] == [done[1]]
    assert set(contest.read(tmp_path / operators.FILE)) == set(done)
    assert operators.main([*arguments, "--again"], Fake) == 0 and len(done) == 7
    capsys.readouterr()
    assert operators.main(["--list", "--rows", "batched", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "matmul batched 96x128x64x128\n"


def test_the_summary_names_what_misses_its_goal():
    rows = [r for r in cases.rows() if r.name in ("matmul 1024 A B", "tanh 64x512, forward", "softmax 64x512, forward")]
    found = {
        rows[0].name: measured(rows[0].name, {"neoflow": 2e-3, "neoflow default": 2e-3, "PyTorch": 1e-3}),
        rows[1].name: measured(rows[1].name, {"neoflow": 1e-3, "neoflow default": 2e-3, "PyTorch": 4e-3}),
        rows[2].name: measured(rows[2].name, {"neoflow": 4e-3, "PyTorch": 8e-3}, errors={"JAX": 0.5}),
    }
    said = tables.summary(rows, found)
    assert f"Contractions below 75% of the peak, 1 of 1:\n- {rows[0].name}: 50%" in "\n".join(said)
    assert "| beside PyTorch as installed, geometric mean | 1.59 | 1.8 |" in said
    assert f"- {rows[0].name}: 0.50" in said and f"- {rows[2].name}: 25%" in said
    assert "Bound by memory, below 80% of the bandwidth: none." not in said
    assert "WRONG: JAX is off by 5.0e-01" in tables.table(rows, found)[-1]
    assert tables.summary(rows, {})[-1] == "Below 0.9 of the best peer: none."


def test_the_share_is_of_the_kernels_alone_and_every_machine_is_named():
    row, times = cases.rows()[0], {"neoflow": 4e-3, "PyTorch": 8e-3}
    found = measured(row.name, times, {"alone": 2e-3, "machine": "a processor, znver4"})
    assert tables.share(found, "memory") == 0.5 and tables.share(measured(row.name, times), "memory") == 0.25
    other = measured("another", times, {"machine": "a processor, znver3"})
    assert tables.machines([found, found, other]) == (
        "a processor, znver4 (2 rows on 2026-01-01); a processor, znver3 (1 rows on 2026-01-01)"
    )


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.torch
def test_contenders_take_turns_and_one_that_fails_is_said():
    pytest.importorskip("torch")
    before, row = [r for r in DRY if r.name in ("softmax 64x512, forward", "softmax 64x512, with gradients")]
    setting = Setting(tune=5.0, rounds=2, block=0.01, dry=True)
    with contest.Crew(setting, (OURS, PEERS[0], BROKEN)) as crew:
        first, pids = crew.measure(before), set(crew.pids)
        found = crew.measure(row)
        assert first.is_done and pids == set(crew.pids)
    assert set(found.seconds) == {"neoflow", "neoflow default", "PyTorch"} and found.is_done
    assert found.missing == {"broken": "KeyError: 'no such kind'"}
    assert max(found.errors.values()) < 1e-4 and found.told["candidates"] > 0 and found.best() == "PyTorch"
    assert Measured(**json.loads(json.dumps(found.__dict__))) == found


ANSWERS = """import sys, json, time
print(json.dumps({"tuning": 1.0}), flush=True)
for line in sys.stdin:
    time.sleep(60) if json.loads(line)["which"] == "stays" else sys.exit(3)
"""


@pytest.mark.parametrize(("which", "said"), [("stays", "it took more than 1 s"), ("ends", "ended with status 3")])
def test_a_worker_that_stays_or_ends_is_said(which, said):
    worker = Worker({}, {}, ("-S", "-c", ANSWERS), patience=1.0)
    try:
        with pytest.raises(WorkerFailure, match=said):
            worker.block(0.1, which=which)
        with pytest.raises(WorkerFailure, match="ended with status"):
            worker.block(0.1, which="ends")
    finally:
        worker.close()


def test_a_row_beside_meta_schedule(tmp_path, monkeypatch, capsys):
    class Answers:
        def __init__(self, request, environment, program, patience):
            self.is_ours, self.ready = request.get("kind") == "neoflow", {"tuning": 100.0, "error": 0.0}
            if "1024" in request["row"]:
                raise WorkerFailure("ValueError: meta_schedule found no schedule in 4 trials")
            assert not self.is_ours or request["tune"] == 2.0
            assert not self.is_ours or {"table", "dry", "rounding", "results"} <= request.keys()  # `rows.worker` asks

        def block(self, seconds, **which):
            return 1e-3 if self.is_ours else 2e-3

        def close(self): ...

    monkeypatch.setattr(meta, "Worker", Answers)
    monkeypatch.setattr(meta, "wait_until_quiet", lambda workers: None)
    arguments = ["--meta-schedule", "4", "--rows", "matmul (512|1024)", "--out", str(tmp_path)]
    for _ in range(2):
        assert operators.main(arguments) == 0
        printed = capsys.readouterr()
        assert "| matmul 512 A B | 4 | 100 | 2.000 | 2.0 | 1.000 | 2.00 | reached |" in printed.out
        assert "| matmul 1024 A B | 4 | - | - | - | - | - | ValueError: meta_schedule found no" in printed.out
    assert "matmul 512" not in printed.err and "meta_schedule, 4 trials: matmul 1024 A B" in printed.err
