"""Mixed precision: what becomes of every kind of tensor, and that nothing changes but roundings."""

import ml_dtypes
import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError
from neoflow.expr.functions import ROUND_TF32
from neoflow.expr.ir import Apply, postorder
from neoflow.expr.tensor import Placeholder, topological
from neoflow.graph import is_contraction, make_graph, mix, optimize
from neoflow.graph.precision import RULES, WIDE_FUNCTIONS, operands
from tests.graph.programs import PROGRAMS

F = nf.nn.functional
BF16 = np.dtype(ml_dtypes.bfloat16)


class Network:
    """Two layers with a view of a parameter, a softmax between contractions, their loss and a step."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.x, self.labels = nf.placeholder((16, 24), name="x"), nf.placeholder((16,), "int64", name="labels")
        self.w1 = nf.parameter((32 * 24,), name="w1", init=rng.normal(size=32 * 24).astype(np.float32) / 5)
        self.w2 = nf.parameter((32, 32), name="w2", init=rng.normal(size=(32, 32)).astype(np.float32) / 5)
        self.b1 = nf.parameter((32,), name="b1", init=np.zeros(32, np.float32))
        h = nf.relu(F.linear(self.x, nf.reshape(self.w1, (32, 24))) + self.b1)
        gate = F.softmax(F.linear(h, self.w2))
        self.loss = F.cross_entropy(F.linear(gate, nf.transpose(self.w2)), self.labels)
        self.parameters = [self.w1, self.w2, self.b1]
        self.gradients = nf.grad(self.loss, self.parameters)
        self.feeds = {self.x: rng.normal(size=(16, 24)).astype(np.float32), self.labels: np.arange(16)}

    def graph(self):
        """A step of plain gradient descent."""
        updates = {p: p - 0.1 * g for p, g in zip(self.parameters, self.gradients, strict=True)}
        return make_graph([self.loss], [self.x, self.labels], updates)

    def mixed(self, precision="bf16"):
        return mix(optimize(self.graph()), precision)


def mixed(roots, precision="bf16", updates=None):
    given = [t for t in topological(roots) if isinstance(t, Placeholder) and not isinstance(t, nf.Parameter)]
    return mix(optimize(make_graph(roots, given, updates)), precision)


def chosen(m):
    return {c.name: c for c in m.choices}


def test_the_rows_of_a_network():
    m = Network().mixed()
    found, rows = chosen(m), [(c.name, c.rule, c.dtype) for c in m.choices]
    assert found["x"].rule == found["w1"].rule == "given" and found["x"].has_copy and found["w1"].has_copy
    assert found["b1"].rule == "given" and not found["b1"].has_copy  # no contraction reads it
    assert found["reshape"].rule == "move" and found["reshape"].has_copy  # a view of the copy of w1
    assert ("relu", "operand of contractions", "bfloat16") in rows
    assert ("linear", "contraction", "bfloat16") in rows  # what the softmax reads three times
    assert ("linear", "contraction", "float32") in rows  # what alone the sum with b1 reads
    assert ("exp", "function", "float32") in rows and ("div", "function", "float32") in rows
    assert found["log"].rule == "function" and found["max"].rule == "reduction"
    assert found["cross_entropy"].rule == "elementwise" and not found["cross_entropy"].has_copy
    assert {t.dtype for t in m.graph.roots} == {"float32"}
    assert {c.rule for c in m.choices} == {r.name for r in RULES} | {"given"}
    assert "bfloat16 relu[16, 32]: operand of contractions: computed in float32, rounded once" in m.table
    assert m.summary.endswith("have a copy") and "are bfloat16" in m.summary


def test_every_operand_is_narrow_and_every_sum_float32():
    for precision, narrow in (("bf16", "bfloat16"), ("fp16", "float16")):
        graph = Network().mixed(precision).graph
        contractions = [t for t in graph.nodes if is_contraction(t.definition)]
        assert len(contractions) == 3 * 3 - 1  # forward, by weights, by inputs but for x
        for t in contractions:
            assert t.dtype == "float32" and {i.dtype for i in t.inputs} == {narrow}
            assert not operands(t.definition)
        for t in graph.nodes:  # and nothing is computed in the narrow type, but converted
            assert not any(isinstance(e, Apply) and e.dtype == narrow for e in postorder(t.definition.body))


def test_a_graph_in_mixed_precision_stays_as_it_is():
    once = Network().mixed().graph
    assert mix(once, "bf16").graph.digest == once.digest


@pytest.mark.parametrize("optimizer", [nf.optim.Adam(clip=1.0), nf.optim.SGD(momentum=0.9, weight_decay=0.1)])
def test_gradients_and_updates_are_float32_however_many_read_them(optimizer):
    n = Network()
    m = mixed([n.loss], "bf16", optimizer.updates(n.parameters, n.gradients))
    own = {p.shape for p in n.parameters} | {(32, 24)}
    after = [c for c in m.choices if c.rule not in ("given", "move") and c.shape in own and not c.has_copy]
    gradients = [c for c in after if c.rule == "gradient"]
    assert len(gradients) == 3 and {c.dtype for c in after} == {"float32"}


def test_each_tensor_has_one_copy():
    x, w = nf.placeholder((16, 24), name="x"), nf.parameter((24, 24), name="w")
    y = F.linear(F.linear(x, w), w) + F.linear(x, w)
    graph = mixed([nf.sum(y * y)]).graph
    assert sum(t.dtype == "bfloat16" and t.inputs[0] is w for t in graph.nodes) == 1


def test_a_constant_is_rounded_when_the_program_is_written():
    table = np.random.default_rng(0).normal(size=(24, 32)).astype(np.float32)
    x = nf.placeholder((16, 24), name="x")
    graph = mixed([nf.matmul(x, nf.constant(table))]).graph
    (c,) = graph.constants
    assert c.dtype == "bfloat16" and np.array_equal(c.value, table.astype(BF16))


@pytest.mark.parametrize("precision, dtype", [("bf16", BF16), ("fp16", np.float16)])
def test_operands_are_rounded_and_products_summed_in_float32(precision, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(40, 300)).astype(np.float32), rng.normal(size=(300, 50)).astype(np.float32)
    x, w = nf.placeholder(a.shape, name="x"), nf.placeholder(b.shape, name="w")
    (found,) = nf.evaluate(nf.mixed_precision([x @ w], precision), {x: a, w: b})
    exact = a.astype(dtype).astype(np.float64) @ b.astype(dtype).astype(np.float64)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4)
    assert np.abs(found - a @ b).max() > 3e-3  # it is rounded


def test_sums_of_contractions_are_added_in_float32():
    """The gradient of a weight that is used at each of many steps: bfloat16 would stop counting at 256."""
    x, w = nf.placeholder((120, 4, 8), name="x"), nf.parameter((8, 8), name="w")
    loss = sum(nf.sum(F.linear(x[t], w)) for t in range(120))
    (dw,) = nf.mixed_precision(nf.grad(loss, [w]), "bf16")
    (found,) = nf.evaluate([dw], {x: np.ones((120, 4, 8), np.float32), w: np.ones((8, 8), np.float32)})
    np.testing.assert_array_equal(found, np.full((8, 8), 480, np.float32))


def test_a_scale_of_a_sum_is_no_operand():
    s, x, w = nf.placeholder((16,), name="s"), nf.placeholder((16, 24), name="x"), nf.placeholder((24, 32), name="w")
    k = nf.axis(24, "k")
    y = nf.compute((16, 32), lambda i, j: nf.sum(s[i] * x[i, k] * w[k, j], axis=[k]))
    assert {c.name for c in mixed([y]).choices if c.has_copy} == {"x", "w"}


def test_a_factor_that_is_computed_is_rounded_where_it_is_read():
    x, w = nf.placeholder((16, 24), name="x"), nf.placeholder((24, 32), name="w")
    k, rng = nf.axis(24, "k"), np.random.default_rng(0)
    y = nf.compute((16, 32), lambda i, j: nf.sum((x[i, k] - 0.5) * w[k, j], axis=[k]))
    a, b = rng.normal(size=(16, 24)).astype(np.float32), rng.normal(size=(24, 32)).astype(np.float32)
    (found,) = nf.evaluate([nf.mixed_precision(y, "bf16")], {x: a, w: b})
    exact = (a - np.float32(0.5)).astype(BF16).astype(np.float64) @ b.astype(BF16).astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_other_types_are_left_alone():
    x, w = nf.placeholder((16, 24), "float64", name="x"), nf.placeholder((24, 32), "float64", name="w")
    y = nf.argmax(x @ w, axis=1)
    graph = optimize(make_graph([y], [x, w]))
    assert mix(graph, "bf16").graph.digest == graph.digest and not mix(graph, "bf16").choices


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_nothing_changes_but_roundings(program):
    """In float64, where nothing is rounded to a narrow type, the values of random programs are what they were."""
    for seed in range(2):
        law(program, seed)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_nothing_changes_but_roundings_in_many_programs(program):
    for seed in range(1000, 1100):
        law(program, seed)


def law(program, seed):
    case = program(seed)
    graph = optimize(make_graph(case.roots, list(case.feeds)))
    for precision in ("bf16", "fp16"):
        m = mix(graph, precision)
        m.graph.check()
        assert [t.dtype for t in m.graph.outputs] == [t.dtype for t in graph.outputs]
        for a, b in zip(case.values(m.graph.outputs), case.values(graph.outputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"{program}, seed {seed}")


def test_gradients_of_a_mixed_loss_go_through_the_casts():
    n = Network()
    before = nf.evaluate(nf.mixed_precision(n.gradients, "bf16"), n.feeds)
    after = nf.evaluate(nf.grad(nf.mixed_precision(n.loss, "bf16"), n.parameters), n.feeds)
    for a, b in zip(before, after, strict=True):
        assert np.abs(a - b).max() <= 0.03 * np.abs(a).max()


@pytest.mark.parametrize("precision, far", [("bf16", 0.03), ("fp16", 0.004)])
def test_gradients_are_near_those_of_float32(precision, far):
    n = Network()
    exact = nf.evaluate(n.gradients, n.feeds)
    for a, b in zip(nf.evaluate(nf.mixed_precision(n.gradients, precision), n.feeds), exact, strict=True):
        assert 0 < np.abs(a - b).max() <= far * np.abs(b).max()


@pytest.mark.torch
def test_no_further_from_float32_than_autocast():
    torch = pytest.importorskip("torch")
    n = Network()
    x, labels = (torch.tensor(n.feeds[t]) for t in (n.x, n.labels))
    w1, w2, b1 = (torch.tensor(nf.get_value(p), requires_grad=True) for p in n.parameters)

    def gradients():
        out = torch.softmax(torch.relu(x @ w1.reshape(32, 24).T + b1) @ w2.T, -1) @ w2
        loss = torch.nn.functional.cross_entropy(out, labels)
        return [g.numpy() for g in torch.autograd.grad(loss, [w1, w2, b1])]

    exact = gradients()
    with torch.autocast("cpu", torch.bfloat16):
        autocast = gradients()
    given = nf.evaluate(nf.mixed_precision(n.gradients, "bf16"), n.feeds)
    for p, a, b, c in zip(n.parameters, given, autocast, exact, strict=True):
        assert np.linalg.norm(a - c) <= 1.2 * np.linalg.norm(b - c), p.name


@pytest.mark.tvm
@pytest.mark.parametrize("precision, far", [("bf16", 0.01), pytest.param("fp16", 0.002, marks=pytest.mark.slow)])
def test_what_is_compiled_is_what_is_evaluated(precision, far):
    """Sums in another order may round to the neighbour of a narrow value: no more."""
    n = Network()
    roots = [n.loss, *n.gradients]
    found = nf.compile(roots, [n.x, n.labels], precision=precision)(n.feeds[n.x], n.feeds[n.labels])
    for a, b in zip(found, nf.evaluate(nf.mixed_precision(roots, precision), n.feeds), strict=True):
        assert np.abs(a - b).max() <= far * np.abs(b).max()


def test_tf32_rounds_what_contractions_multiply_and_nothing_else():
    n = Network()
    m = n.mixed("tf32")
    assert {c.dtype for c in m.choices} == {"float32"} and not any(c.has_copy for c in m.choices)
    for t in m.graph.nodes:
        taken = [e for e in postorder(t.definition.body) if isinstance(e, Apply) and e.fn == ROUND_TF32]
        assert len(taken) == (2 if is_contraction(t.definition) else 0) and not operands(t.definition)
    found = chosen(m)
    assert found["relu"].reason == "only what contractions multiply is rounded" and found["x"].rule == "given"
    assert found["linear"].reason == "2 operands tf32, multiplied and summed in float32"
    count = sum(is_contraction(t.definition) for t in m.graph.nodes)
    assert m.summary == f"{count} of {len(m.choices)} float32 tensors are contractions of tf32"
    assert m.graph.digest == mix(m.graph, "tf32").graph.digest


def test_tf32_is_off_by_two_roundings_of_each_term():
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((24, 40), (40, 32)))
    x, w = nf.placeholder(a.shape, name="x"), nf.placeholder(b.shape, name="w")
    (found,) = nf.evaluate([nf.mixed_precision(nf.matmul(x, w), "tf32")], {x: a, w: b})
    exact, size = a.astype(float) @ b, np.abs(a).astype(float) @ np.abs(b)
    assert (np.abs(found - exact) > 0).all() and (np.abs(found - exact) <= 2.0**-10 * 1.01 * size).all()


@pytest.mark.tvm
def test_tf32_by_a_cpu_is_what_is_evaluated():
    """Where it is asked for as a program of its own: there is nothing to gain, but it has its meaning."""
    n = Network()
    rounded = nf.mixed_precision([n.loss, *n.gradients], "tf32")
    found = nf.compile(rounded, [n.x, n.labels])(n.feeds[n.x], n.feeds[n.labels])
    for a, b in zip(found, nf.evaluate(rounded, n.feeds), strict=True):
        assert np.abs(a - b).max() <= 2e-3 * np.abs(b).max()


@pytest.mark.parametrize("fn", sorted(WIDE_FUNCTIONS))
def test_functions_that_stay_float32(fn):
    x, w = nf.placeholder((16, 24), name="x"), nf.placeholder((24, 32), name="w")
    y = x / (x + 2.0) if fn == "div" else nf.pow(x, x) if fn == "pow" else getattr(nf, fn)(x)
    found = chosen(mixed([nf.matmul(y, w)]))[y.name]
    assert (found.rule, found.dtype, found.has_copy) == ("function", "float32", True)
    assert found.reason == f"`{fn}` {WIDE_FUNCTIONS[fn]}"


def test_division_by_a_number_may_be_narrow():
    x, w = nf.placeholder((16, 24), name="x"), nf.placeholder((24, 32), name="w")
    assert chosen(mixed([nf.matmul(x / 3.0, w)]))["div"].rule == "operand of contractions"


def test_refusals():
    x = nf.placeholder((4, 5), name="x")
    with pytest.raises(ConfigError, match="precision 'half' is none of fp32, bf16, fp16"):
        nf.mixed_precision(x + 1.0, "half")
    for target in ("cpu", "cuda:sm_75", "nvptx:sm_75"):
        with pytest.raises(ConfigError, match=f"'tf32' is one of NVIDIA's tensor cores.* target '{target}' has not"):
            nf.compile(x + 1.0, x, target=target, precision="tf32")
    y = x + 1.0
    assert nf.mixed_precision(y, "fp32") is y and nf.mixed_precision([y], "fp32") == [y]
