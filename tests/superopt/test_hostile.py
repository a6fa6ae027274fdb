"""Texts of rules that somebody else wrote: read, or refused with their place, whatever is in them."""

import random

import pytest

import neoflow as nf
from neoflow.superopt import family, read_rules, standard

MARKS = [*"[](){}<>=+-*/,.&|\"'\n 0123456789", "sum", "select", "rule", "operator", "floor", "N", "-1", "inf"]


@pytest.mark.parametrize("count, seed", [(40, 0), pytest.param(3000, 1, marks=pytest.mark.slow)])
def test_mutated_texts(count, seed):
    chance = random.Random(seed)
    text = standard().to_text()
    operators, *rules = text.split("\n\n")
    read = 0
    for _ in range(count):
        lines = operators.split("\n")
        part = "\n".join([lines[0], *chance.sample(lines[1:], 4)]) + "\n\n" + chance.choice(rules)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(20, len(part))
            cut = chance.randint(0, 3)
            part = part[:at] + chance.choice(MARKS) * chance.randint(0, 2) + part[at + cut :]
        try:
            read_rules(part)
            read += 1
        except nf.TextError:
            pass
    print(f"{count} texts, {read} of them read")


@pytest.mark.parametrize(
    "body", ["(" * 5000 + "a[i]" + ")" * 5000, "relu(" * 200 + "a[i]" + ")" * 200, "+".join(["a[i]"] * 3000)]
)
def test_deep_texts(body):
    with pytest.raises(nf.TextError, match=r"more than 100 brackets|at most 250 parts"):
        read_rules(f"neoflow rules 1\noperator f(a[M]) [i<M] = {body}\n")


def test_conditions_and_forms_are_no_deeper():
    many = " & ".join(["(i >= 1)"] * 3000)
    with pytest.raises(nf.TextError, match="at most 250 parts"):
        read_rules(f"neoflow rules 1\noperator f(a[M]) [i<M] = select({many}, a[i], 0.0)\n")
    deep = "div(" * 200 + "i" + ", 2)" * 200
    with pytest.raises(nf.TextError, match="more than 100 brackets"):
        read_rules(f"neoflow rules 1\noperator f(a[M]) [i<M] = a[{deep}]\n")


def test_what_is_written_out_twice_is_not_too_large():
    x = nf.placeholder((4,), name="x")
    y = nf.compute((4,), lambda i: _doubled(x[i], 60))
    with pytest.raises(nf.GraphError, match="an operator of more than 250 parts has no family"):
        family(y.definition)


def _doubled(e, times: int):
    for _ in range(times):
        e = e * e
    return e
