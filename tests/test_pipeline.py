"""The whole compiler against the meaning of the language: compiled == evaluated, on random programs with gradients."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen, pipeline
from neoflow.codegen import verify as judge
from neoflow.codegen.verify import verifier_version
from neoflow.loops import default_schedule
from neoflow.models import build_model
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.runtime.records import sealed, unsealed
from tests.strategies import random_program

pytestmark = pytest.mark.tvm


def compiled_agrees(seed, **limits):
    """Every output and gradient of a random program, compiled in float32, against NumPy in float64 and in float32.

    A value may differ from the exact one by a few times what NumPy's own float32 differs, or by float32 rounding of the
    largest element.
    """
    program = random_program(seed, jumps=False, **limits)
    roots, inputs = program.with_gradients(), list(program.feeds)
    function = nf.compile(roots, inputs)
    found = function(*(program.feeds[t] for t in inputs))
    exact = nf.evaluate(roots, program.feeds, dtype="float64")
    rounded = nf.evaluate(roots, program.feeds)
    for t, a, b, c in zip(roots, found, exact, rounded, strict=True):
        if not t.dtype.startswith("float"):
            np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}: {t}")
            continue
        scale = max(1.0, float(np.max(np.abs(b), initial=0)))
        own = float(np.max(np.abs(np.where(np.isfinite(b), c - b, 0)), initial=0))
        bound = 1e-4 * scale + 20 * own
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=bound, err_msg=f"seed {seed}: {t}")


@pytest.mark.parametrize("seed", range(12))
def test_compiled_programs_agree(seed):
    compiled_agrees(seed)


@pytest.mark.slow
def test_two_thousand_compiled_programs_agree():
    for seed in range(5000, 7000):
        compiled_agrees(seed)


def test_updates_in_place_and_not():
    """Parameters that feed each other: new values come from old ones, whatever the order of the kernels."""
    a = nf.parameter((40, 40), name="a", init=np.ones((40, 40), np.float32))
    b = nf.parameter((40, 40), name="b", init=np.full((40, 40), 2, np.float32))
    k = nf.axis(40, "k")
    product = nf.compute((40, 40), lambda i, j: nf.sum(a[i, k] * b[k, j], axis=[k]))
    step = nf.compile([nf.sum(a)], [], {a: b * 1.0, b: a + product * 0.01})
    wanted_a, wanted_b = np.ones((40, 40)), np.full((40, 40), 2.0)
    for _ in range(3):
        (total,) = step()
        np.testing.assert_allclose(total, wanted_a.sum(), rtol=1e-5)
        wanted_a, wanted_b = wanted_b, wanted_a + wanted_a @ wanted_b * 0.01
    (final,) = nf.compile([a - b])()
    np.testing.assert_allclose(final, wanted_a - wanted_b, rtol=1e-4)


@pytest.mark.parametrize("shape", [(64, 48), (7, 37), (5,), (1, 1)])
def test_several_states_updated_in_place_by_one_kernel(shape):
    """Adam's moments and parameter: each new value needs old values that the others overwrite."""
    rng = np.random.default_rng(0)
    start = {n: rng.standard_normal(shape).astype(np.float32) ** 2 for n in "mvp"}
    m, v, p = (nf.parameter(shape, name=n, init=start[n]) for n in "mvp")
    g = nf.placeholder(shape, name="g")
    new_m, new_v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    new_p = p - 0.1 * new_m / (nf.sqrt(new_v) + 1e-3) + 0.01 * m * v
    step = nf.compile([nf.sum(g)], [g], {m: new_m, v: new_v, p: new_p})
    assert not step.plan.copies and not step.plan.saves
    gradient = rng.standard_normal(shape).astype(np.float32)
    a, b, c = (start[n].astype(np.float64) for n in "mvp")
    for _ in range(3):
        step(gradient)
        a, b, a_old, b_old = 0.9 * a + 0.1 * gradient, 0.99 * b + 0.01 * gradient**2, a, b
        c = c - 0.1 * a / (np.sqrt(b) + 1e-3) + 0.01 * a_old * b_old
    for t, wanted in zip((m, v, p), (a, b, c), strict=True):
        np.testing.assert_allclose(nf.compile([t + 0.0])()[0], wanted, rtol=1e-5, atol=1e-6)


def test_the_second_compilation_comes_from_the_cache():
    x = nf.placeholder((33, 21), name="x")
    first = pipeline.compile_program([nf.exp(x) + 0.125], [x])
    y = nf.placeholder((33, 21), name="y")
    again = pipeline.compile_program([nf.exp(y) + 0.125], [y])
    assert first.built == 1 and first.cached == 0
    assert again.built == 0 and again.cached == 1


@pytest.fixture
def checked(monkeypatch, tmp_path):
    """Checked mode with a cache of its own; calls with "0" or "1" switch it off and on."""
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NEOFLOW_CHECK", "1")
    return lambda value: monkeypatch.setenv("NEOFLOW_CHECK", value)


@pytest.fixture
def judged(monkeypatch):
    """The names of the kernels that were judged."""
    names = []

    def verify(subgraph, run, name):
        names.append(name)
        return original(subgraph, run, name)

    original = judge.verify
    monkeypatch.setattr(judge, "verify", verify)
    return names


def twice_and_sum():
    """Two kernels, and their program."""
    x = nf.placeholder((19, 23), name="x")
    k = nf.axis(23, "k")
    total = nf.compute((19, 19), lambda i, j: nf.sum(x[i, k] * x[j, k], axis=[k]))
    return [nf.exp(x) * 2.0, total], [x]


def miscompile(monkeypatch):
    """From now on a kernel writes three times its input whatever it should do."""
    original = codegen.lower
    x = nf.placeholder((19, 23), name="x")
    wrong = Subgraph((Value(x.shape, x.dtype),), (Node((x * 3.0).definition, (0,)),), (1,))
    with monkeypatch.context() as patch:
        patch.setattr(
            codegen, "lower", lambda s, schedule, *rest: original(wrong, default_schedule(wrong, rest[0]), *rest)
        )
        yield


def certificates(folder):
    return [unsealed(p.name, p.read_bytes()) for p in sorted(folder.glob("*.certificate"))]


def test_checked_mode_judges_each_kernel_once(checked, judged, tmp_path):
    first = pipeline.bind(pipeline.compile_program(*twice_and_sum())).compiled
    assert first.built == 2 and judged == [f"kernel {k.symbol}" for k in first.kernels]
    found = certificates(tmp_path)
    assert {c["subgraph"] for c in found} == {k.subgraph.digest for k in first.kernels}
    for c in found:
        assert c["verifier"] == verifier_version() and c["seed"] == 0 and c["compared"] > 0 and c["worst"] <= 1
        assert (tmp_path / f"{c['module']}.module").exists()
        assert c["draws"] == ["normal", "positive", "whole", "small", "nan", "infinite"]
    nf.compile(*twice_and_sum())
    assert len(judged) == 2


def test_kernels_of_the_cache_are_judged_too(checked, judged, tmp_path):
    checked("0")
    nf.compile(*twice_and_sum())
    assert not judged and not certificates(tmp_path)
    checked("1")
    assert nf.compile(*twice_and_sum()).compiled.cached == 2
    assert len(judged) == 2 and len(certificates(tmp_path)) == 2


@pytest.mark.parametrize(("key", "value"), [("verifier", "of yesterday"), ("module", "0" * 64), ("subgraph", "")])
def test_a_certificate_of_another_judge_module_or_subgraph_does_not_count(checked, judged, tmp_path, key, value):
    nf.compile(*twice_and_sum())
    for path in tmp_path.glob("*.certificate"):
        path.write_bytes(sealed(path.name, {**unsealed(path.name, path.read_bytes()), key: value}))
    nf.compile(*twice_and_sum())
    assert len(judged) == 4
    assert certificates(tmp_path)[0][key] != value


def test_a_wrong_kernel_is_refused_and_not_kept(checked, monkeypatch, tmp_path):
    x = nf.placeholder((19, 23), name="x")
    for _ in miscompile(monkeypatch):
        for _ in range(2):
            with pytest.raises(nf.CodegenError, match=r"kernel nf_\w+ computes v\d+\[\d+, \d+\] = .*on draw 'normal'"):
                nf.compile([x * 2.0], [x])
    assert not certificates(tmp_path)
    value = np.ones((19, 23), np.float32)
    np.testing.assert_array_equal(nf.compile([x * 2.0], [x])(value)[0], 2 * value)
    assert len(certificates(tmp_path)) == 1


def test_a_wrong_kernel_of_the_cache_is_refused_and_dropped(checked, monkeypatch, tmp_path):
    x = nf.placeholder((19, 23), name="x")
    value = np.ones((19, 23), np.float32)
    checked("0")
    for _ in miscompile(monkeypatch):
        np.testing.assert_array_equal(nf.compile([x * 2.0], [x])(value)[0], 3 * value)
    assert nf.compile([x * 2.0], [x]).compiled.cached == 1
    checked("1")
    with pytest.raises(nf.CodegenError, match=r"kernel nf_\w+ computes"):
        nf.compile([x * 2.0], [x])
    checked("0")
    f = nf.compile([x * 2.0], [x])
    assert f.compiled.built == 1
    np.testing.assert_array_equal(f(value)[0], 2 * value)


def test_what_has_equal_code_is_judged_as_what_it_is_used_for(checked, tmp_path):
    """Element by element, 31 x 7 and 7 x 31 are the same loop; no kernel is another subgraph's, however equal."""
    x, y = nf.placeholder((31, 7), name="x"), nf.placeholder((7, 31), name="y")
    f = nf.compile([nf.exp(x) + 0.0625, nf.exp(y) + 0.0625], [x, y])
    first, second = f.compiled.kernels
    assert first.subgraph.digest != second.subgraph.digest and first.key != second.key
    assert (f.compiled.built, f.compiled.cached) == (2, 0) and len(certificates(tmp_path)) == 2
    value = np.linspace(-1, 1, 217, dtype=np.float32)
    a, b = f(value.reshape(31, 7), value.reshape(7, 31))
    np.testing.assert_array_equal(a.reshape(-1), b.reshape(-1))
    np.testing.assert_allclose(a.reshape(-1), np.exp(value) + 0.0625, rtol=1e-6)


@pytest.mark.parametrize("index", [lambda i: i - 1, lambda i: i // 3, lambda i: 5 - i])
def test_checked_mode_takes_programs_whose_integers_may_not_be_zero(checked, index):
    x, ids = nf.placeholder((3, 4), name="x"), nf.placeholder((6,), "int32", name="ids")
    y = nf.compute((6, 4), lambda a, b: x[index(ids[a]), b])
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    good = next(n for n in range(10) if index(n) == 1)
    (found,) = nf.compile([y], [x, ids])(value, np.full(6, good, np.int32))
    np.testing.assert_array_equal(found, np.tile(value[1], (6, 1)))
    one = nf.placeholder((1, 4), name="one")
    taken = nf.compile([nf.compute((6, 4), lambda a, b: one[ids[a], b])], [one, ids])
    np.testing.assert_array_equal(taken(value[:1], np.zeros(6, np.int32))[0], np.tile(value[0], (6, 1)))


SMALL = {
    "capsnet": {"batch": 1, "image": 16, "primary": 4, "capsules": 6},
    "ptb_lstm": {"batch": 3, "words": 50, "hidden": 12, "steps": 3},
}


@pytest.mark.parametrize("model", SMALL)
def test_every_kernel_of_a_training_step_passes_the_judge(checked, judged, model):
    built = build_model(model, **SMALL[model])
    parameters = list(built.parameters.values())
    gradients = nf.grad(built.loss, parameters)
    updates = {p: p - 0.01 * g for p, g in zip(parameters, gradients, strict=True)}
    compiled = nf.compile([built.loss], list(built.inputs), updates).compiled
    assert judged == [f"kernel {k.symbol}" for k in compiled.kernels]


def test_an_unknown_target_is_refused():
    x = nf.placeholder((3,), name="x")
    with pytest.raises(nf.ConfigError, match="there is no target 'tpu'; there are cpu, cuda, nvptx"):
        nf.compile([x * 2.0], [x], target="tpu")


def test_a_missing_input_is_named():
    x, y = nf.placeholder((3,), name="x"), nf.placeholder((3,), name="y")
    with pytest.raises(nf.GraphError, match="reads placeholder y"):
        nf.compile([x + y], [x])


def test_explain_prints_every_stage(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))  # where nothing was measured: no algorithms to choose
    x = nf.placeholder((5, 7), name="x")
    text = nf.compile([nf.sum(nf.exp(x))], [x]).explain()
    stages = [line.split()[1] for line in text.splitlines() if line.startswith("=== ")]
    expected = [
        "expressions",
        "canonicalize",
        "constants",
        "pad",
        "factor",
        "share",
        "hoist",
        "read",
        "batch",
        "chain",
        "move",
        "sums",
        "swapping",
        "blocked",
        "packed",
        "layouts",
        "partition",
        "order",
        "prepared",
        "schedules",
        "code",
        "plan",
    ]
    assert stages == expected
