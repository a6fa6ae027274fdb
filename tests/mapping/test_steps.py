"""Why chains are no recurrences, and columns no tensors."""

import neoflow as nf
from neoflow.expr.tensor import topological
from neoflow.mapping import steps as module
from neoflow.mapping.chains import Chains
from neoflow.mapping.columns import Rows, row, row_of
from neoflow.mapping.steps import steps_of

X = nf.placeholder((6, 2, 4), name="x")
W = nf.parameter((4, 4), name="w")
START = nf.placeholder((2, 4), name="start")


def steps(chain):
    return steps_of(tuple(chain), Rows(), Chains(topological(list(chain)), 8, True))


def chain(step, count=6):
    found, state = [], START
    for n in range(count):
        state = step(state, n)
        found.append(state)
    return found


def reason(found):
    assert not found.verdict.ok
    return found.verdict.reason


def test_a_chain():
    found = steps(chain(lambda h, n: nf.tanh(h @ W + X[n])))
    assert found.verdict.reason == "6 equal steps of 3 tensors"
    assert found.run.recurrence.steps == 6


def test_what_was_left_out_at_its_ends_is_found():
    whole = chain(lambda h, n: nf.tanh(h @ W + X[n]))
    found = steps_of(tuple(whole[1:-1]), Rows(), Chains(topological(whole), 8, True))
    assert found.run.recurrence.steps == 6


def test_few_steps():
    assert reason(steps(chain(lambda h, n: nf.tanh(h), 3))) == "it has fewer than 4 steps"


def test_many_tensors(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    assert reason(steps(chain(lambda h, n: nf.tanh(h @ W + X[n])))) == "its steps have more than 2 tensors"


def test_steps_that_need_nothing():
    assert reason(steps([nf.exp(X[n]) for n in range(6)])) == "a step needs nothing of the one before it"


def test_steps_of_other_definitions():
    found = chain(lambda h, n: nf.tanh(h) if n % 2 else nf.sin(h))
    assert reason(steps(found)) == "sin is not computed alike in all steps"


def test_what_is_carried_past_a_step():
    xs = [nf.exp(START), *(nf.exp(X[n]) for n in range(6))]
    found = chain(lambda h, n: nf.tanh(h @ W + xs[n] + xs[n + 1]))
    assert steps(found).verdict.ok


def test_weights_of_each_step():
    weights = [nf.parameter((4, 4), name=f"w{n}") for n in range(6)]
    found = steps(chain(lambda h, n: nf.tanh(h @ weights[n])))
    assert reason(found) == "nothing tells how w0 goes on from step to step"


def test_a_state_that_is_given_out_of_order():
    def step(h, n):
        return nf.tanh(h + (nf.exp(h) if n % 2 else nf.sin(h)))

    assert reason(steps(chain(step))) == "what its steps are given follows from some of them"


def test_rows():
    x = row(X, 3, "r")
    assert row_of(x) == (X, 3)
    assert row_of(X[:, 0]) is None and row_of(X) is None and row_of(nf.exp(X)) is None


def test_columns():
    known = Rows().known
    assert known(tuple(X[n] for n in range(6))) is X
    assert known(tuple(nf.exp(X[n]) for n in range(1, 6, 2))).shape == (3, 2, 4)
    assert known((X[0], X[1], X[3])) is None
