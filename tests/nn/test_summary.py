"""Networks told: their table, and what everything public says of itself."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import nn
from neoflow.data import Batches, Dataset, Text
from neoflow.nn.optim import Group
from tests.runtime.programs import InterpretedTrainer, Softmax, batches


def network():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), nf.tanh, nn.Dropout(0.5), nn.Linear(8, 2))
    x = nf.placeholder((6, 4), name="x")
    return net, x, net(x)


def test_the_table_of_a_network():
    net, x, y = network()
    table = nn.summary(nf.mean(y * y), net.parameters())
    assert [(r.layer, r.gives) for r in table.rows] == [("linear", (6, 8)), ("norm", (6, 8)), ("linear2", (6, 2))]
    assert table.rows[2].shapes == {"weight": (2, 8), "bias": (2,)}
    assert (table.values, table.nbytes) == (74, 296)
    lines = str(table).splitlines()
    assert lines[0].split() == ["layer", "gives", "parameters", "values", "bytes"]
    assert lines[2].split() == ["linear", "[6,", "8]", "weight[8,", "4]", "bias[8]", "40", "160"]
    assert lines[-1].split() == ["all", "6", "tensors", "74", "296"] and len({len(n) for n in lines}) == 1
    every = nn.summary(net(x, training=False))
    assert {r.layer for r in every.rows} == {"linear", "norm", "linear2"}
    assert every.rows[1].shapes.keys() == {"gamma", "beta", "running_mean", "running_variance"}


def test_the_table_of_a_layer_of_a_model_and_of_a_trainer():
    from io import StringIO

    from rich.console import Console

    net, x, _ = network()
    file = StringIO()
    Console(file=file, width=100).print(net.summary(x))
    assert "weight[8, 4] bias[8]" in file.getvalue() and "296" in file.getvalue()
    assert nn.Linear(4, 3).summary().rows[0].gives is None and "linear" in repr(nn.Linear(4, 3).summary())
    model = Softmax()
    assert [r.layer for r in model.trainer().summary().rows] == ["w", "b"]
    p = nn.Parameters("m")
    scores = nn.functional.linear(model.x[:, 0, 0, :], p("out.weight", 3, 4), p("out.bias", 3))
    made = nn.Model("m", model.x, model.labels, p, nn.functional.cross_entropy(scores, model.labels), scores, 3)
    assert str(made.summary()).splitlines()[2].split()[0] == "out"


def test_a_summary_makes_no_call_of_the_network():
    net, x, _ = network()
    before = {p: v for p, v in net.updates().items()}
    net.summary(x)
    assert all(net.updates()[p] is v for p, v in before.items())


def test_layers_of_one_name_are_named_apart():
    deep = nn.Sequential(
        nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm(4)), nn.Linear(4, 4), nn.BatchNorm(4), nf.relu
    )
    assert [p.name for p in deep.parameters()] == [
        "linear.weight", "linear.bias", "linear2.weight", "linear2.bias", "norm.gamma", "norm.beta",
        "linear3.weight", "linear3.bias", "norm2.gamma", "norm2.beta",
    ]  # fmt: skip
    assert [p.name for p in deep.state()] == [
        "norm.running_mean", "norm.running_variance", "norm2.running_mean", "norm2.running_variance"
    ]  # fmt: skip
    shared = nn.Linear(4, 4)
    twice = nn.Sequential(shared, nf.relu, shared)
    assert [p.name for p in twice.parameters()] == ["linear.weight", "linear.bias"]
    named = nn.Sequential(nn.Linear(4, 4, name="linear2"), nn.Linear(4, 4), nn.Linear(4, 4))
    assert [layer.name for layer in named.leaves()] == ["linear2", "linear", "linear3"]


def test_two_layers_of_one_name_begin_apart_and_are_saved(tmp_path):
    """Without a Sequential too: the trainer names them apart, in the order of its parameters."""
    x = nf.placeholder((6, 4), name="x")
    one, other = nn.Linear(4, 4), nn.Linear(4, 4)
    y = other(nf.tanh(one(x)))
    parameters = [*one.parameters(), *other.parameters()]
    run = InterpretedTrainer(nf.mean(y * y), parameters, inputs=[x], checkpoint=tmp_path, progress=False)
    assert [p.name for p in parameters] == ["linear.weight", "linear.bias", "linear2.weight", "linear2.bias"]
    run.step_function()
    assert (nf.get_value(one.weight) != nf.get_value(other.weight)).all()
    run.fit([(np.ones((6, 4), np.float32),)], 2)
    again = InterpretedTrainer(nf.mean(y * y), parameters, inputs=[x], checkpoint=tmp_path, progress=False)
    assert again.resume().step == 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.Linear(4, 3), "<Linear linear: weight[3, 4], bias[3]>"),
        (lambda: nn.Dropout(0.25), "<Dropout dropout: rate 0.25>"),
        (lambda: nn.Sequential(nn.Linear(2, 2, bias=False), nf.relu), "<Sequential sequential:\n    <Linear linear: "
         "weight[2, 2]>\n    relu>"),
        (lambda: nf.optim.SGD(), "SGD(lr=0.01)"),
        (lambda: nf.optim.Adam(lr=0.1, clip=1.0), "Adam(lr=0.1, clip=1.0)"),
        (lambda: nf.optim.AdamW(groups=[Group([nf.parameter((2,))], lr=0.5)]),
         "AdamW(lr=0.001, groups=(Group(1 parameters, lr=0.5),))"),
        (lambda: nf.optim.SGD(lr=nf.placeholder((), name="rate")), "SGD(lr=<Placeholder rate: float32[]>)"),
        (lambda: Dataset(np.zeros((5, 1, 4, 4), np.float32), np.zeros(5, np.int64), 3),
         "<Dataset 5 x float32[1, 4, 4], 3 classes>"),
        (lambda: Text(np.zeros((5, 7), np.int64), np.zeros((5, 7), np.int64), 9), "<Text 5 x 7 words, of 9>"),
        (lambda: Batches(Text(np.zeros((5, 7), np.int64), np.zeros((5, 7), np.int64), 9), 2),
         "<Batches 2 of 2 samples, of <Text 5 x 7 words, of 9>, at BatchState(seed=0, epoch=0, step=0)>"),
    ],
)  # fmt: skip
def test_what_things_say_of_themselves(make, text):
    assert repr(make()) == text


def test_what_a_run_says_of_itself():
    run = Softmax().trainer()
    assert repr(run) == (
        f"<Trainer of {run.loss.name}: 2 parameters (51 values), Adam(lr=0.05), batches of 6, after 0 steps, 0 epochs>"
    )
    history = run.fit(batches(), 1)
    assert repr(history).startswith("<History 6 steps, 1 epochs, loss 1.") and repr(history).endswith("s, finished>")
    assert len(repr(nf.nn.Parameters("m"))) < 30


@pytest.mark.tvm
def test_what_a_function_says_of_itself():
    x, w = nf.placeholder((3,), name="x"), nf.parameter((3,), name="w")
    y = nf.exp(x) * w
    f = nf.compile([y], [x], {w: y})
    calls = len(f.plan.calls)
    expected = f"<Function (x: float32[3]) -> [{y.name}: float32[3]], updates w: {calls} kernel calls>"
    assert repr(f) == expected and repr(f.compiled).startswith("<Compiled ")
