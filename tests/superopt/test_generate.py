"""Rules that nobody stated: found by fingerprints, proved, and used."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import canonicalize, make_graph
from neoflow.superopt import (
    Limits,
    Rule,
    Search,
    Variable,
    apply,
    generate,
    name,
    read_rules,
    rules_of,
    standard,
)
from neoflow.superopt.general import generalized
from neoflow.superopt.implied import Known, tree
from neoflow.superopt.judge import proof_of
from neoflow.superopt.prints import PRIMES, adjoint, is_affine, random_values, value
from tests.superopt.test_rewrite import kept
from tests.superopt.test_search import GATES, counted

OPERATORS = {f.name: f for f in standard().operators}
ALPHABET = [OPERATORS[n] for n in ("add", "mul", "relu", "transpose", "matmul", "rows", "columns", "first", "last")]


def holds(rule: Rule) -> bool:
    """Values and gradients are kept by it as a rewrite."""
    return kept(rule, 0, 1) > 0


def test_fingerprints():
    """Of arithmetic as in a field, of shapes, and of functions that keep zero; of many tensors at once."""
    p = PRIMES[0]
    a, b = (random_values((4, 2, 3), 0, n) for n in "ab")
    sizes = {"M": 2, "N": 3}
    total = value(OPERATORS["add"], sizes, [a, b])
    np.testing.assert_array_equal(total, (a + b) % p)
    beside = value(OPERATORS["rows"], {"A": 2, "B": 2, "N": 3}, [a, b])
    np.testing.assert_array_equal(beside, np.concatenate([a, b], 1))
    c = random_values((1, 3, 2), 0, "c")
    product = value(OPERATORS["matmul"], {"M": 2, "K": 3, "N": 2}, [a, c])
    np.testing.assert_array_equal(product, (a.astype(object) @ c.astype(object)) % p)
    assert not value(OPERATORS["relu"], sizes, [np.zeros((1, 2, 3), np.int64)]).any()
    at = {"N": 1, "C": 1, "H": 2, "W": 1, "R": 1, "S": 0}
    pooled = value(OPERATORS["pool_avg"], at, [a[:1, :1, :2].reshape(1, 1, 1, 2, 1)])
    np.testing.assert_array_equal(pooled.reshape(-1) * 3 % p, [(a[0, 0, 0] + a[0, 0, 1]) % p] * 2)


@pytest.mark.parametrize("label, slot", [("matmul", 0), ("matmul", 1), ("rows", 1), ("conv", 0), ("conv", 1)])
def test_fingerprints_without_values(label, slot):
    """What elements of one argument count in a weighted sum of the result: that sum, of a random argument."""
    f, p = OPERATORS[label], PRIMES[1]
    at = {"M": 2, "K": 3, "N": 2, "A": 2, "B": 3, "C": 3, "H": 3, "W": 2, "O": 2, "R": 1, "S": 0}
    shapes = [tuple(n.value(at) for n in s) for s in f.slots]
    args = [random_values((1, *s), 0, f"x{n}", p) for n, s in enumerate(shapes)]
    out = value(f, at, args, p)
    weights = random_values(out.shape[1:], 1, "weights", p)
    counted = adjoint(f, at, args, slot, weights, p)
    zeros = [np.zeros_like(a) if n == slot else a for n, a in enumerate(args)]
    rest = int((value(f, at, zeros, p) * weights % p).sum())
    assert (int((counted * args[slot].reshape(1, -1) % p).sum()) + rest) % p == int((out * weights % p).sum()) % p
    assert is_affine(f, slot) and not is_affine(OPERATORS["relu"], 0)


def test_two_operators():
    """All graphs of two operators; every count repeats in any number of processes, every rule reads back, some are
    sampled on numbers."""
    found, beside = generate(ALPHABET, 2), generate(ALPHABET, 2, processes=2)
    assert str(found) == str(beside) and list(map(str, found.rules)) == list(map(str, beside.rules))
    assert found.stopped == "all graphs were made" and len(found.rules) >= 25
    assert found.graphs > found.distinct and found.candidates > found.renamed >= found.plain >= found.ordered
    assert found.ordered >= found.smaller >= found.common >= found.general == len(found.rules) - 2 + found.refused
    stages = ["graphs", "names of variables", "congruence closure", "common subgraphs", "proofs"]
    assert [s.name for s in found.stages] == stages
    assert all(0 <= s.seconds < 600 for s in beside.stages) and sum(s.cpu_seconds for s in beside.stages) > 0
    texts = {f"{r.source} = {r.target}" for r in found.rules}
    assert {"add(x, y) = add(y, x)", "transpose(transpose(x)) = x", "first[P=A](rows(x, y)) = x"} <= texts
    assert "matmul(matmul(x, y), z) = matmul(x, matmul(y, z))" in texts
    assert read_rules(rules_of(found.rules).to_text()).to_text() == rules_of(found.rules).to_text()
    for rule in found.rules[::6]:
        assert holds(rule)


@pytest.mark.parametrize("kills", [(7,), pytest.param((3, 5, 9), marks=pytest.mark.slow)])
def test_killed_and_begun_again(tmp_path, kills):
    """SIGKILL wherever it is: what is in the folder then gives what an undisturbed generation gives."""
    some = [OPERATORS[n] for n in ("add", "relu", "transpose", "rows")]
    expected = generate(some, 2)
    child = """
import sys
from pathlib import Path
from tests.superopt.test_generate import OPERATORS, generate
generate([OPERATORS[n] for n in sys.argv[2:]], 2, folder=Path(sys.argv[1]), processes=2)
"""
    command = [sys.executable, "-c", child, str(tmp_path / "run"), *(f.name for f in some)]
    for more in kills:
        begun = len(list(tmp_path.glob("run/*.npy")))
        with subprocess.Popen(command) as process:
            while process.poll() is None and len(list(tmp_path.glob("run/*.npy"))) < begun + more:
                time.sleep(0.001)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    found = generate(some, 2, folder=tmp_path / "run")
    assert rules_of(found.rules).to_text() == rules_of(expected.rules).to_text() and str(found) == str(expected)
    answers = tmp_path / "run" / "proofs.jsonl"
    whole = answers.read_bytes()
    answers.write_bytes(whole[:-10])
    assert str(generate(some, 2, folder=tmp_path / "run")) == str(expected) and answers.read_bytes() == whole
    with pytest.raises(nf.ConfigError, match="has another generation begun in it"):
        generate(some, 2, seed=1, folder=tmp_path / "run")


@pytest.mark.slow
def test_three_operators():
    """Distributive laws; each rule keeps values and gradients."""
    found = generate(ALPHABET, 3, 120)
    print(found)
    texts = {f"{r.source} = {r.target}" for r in found.rules}
    assert any("add(mul(" in t and "mul(add(" in t for t in texts)
    assert all(map(holds, found.rules))


@pytest.mark.slow
def test_the_recurrent_unit_by_generated_rules():
    """SRU's c f + (1 - f) x in three operators, by rules that nobody stated."""
    found = generate(read_rules(GATES).operators, 3, 120)
    f, c, x = (nf.placeholder((4, 3), name=n) for n in "fcx")
    graph = canonicalize(make_graph([f * c + (1.0 - f) * x], [f, c, x]))
    best = Search(found.rules, counted, Limits(alpha=1.3, graphs=300)).run(graph)
    assert best.after.seconds == 3
    print(best)


def test_limits():
    some = generate(ALPHABET[:2], 2, most=20)
    assert some.stopped == "the limit of 20 graphs" and some.distinct == 20
    none = generate(ALPHABET[:2], 2, seconds=0.0)
    assert none.stopped.startswith("the time is up")


def test_time_is_kept():
    """Graphs of three operators take longer; what was proved by then is there, and why there is no more."""
    begun = time.monotonic()
    found = generate(ALPHABET, 3, seconds=3.0, processes=2)
    assert found.stopped.startswith("the time is up, ") and "pairs were not looked at" in found.stopped
    assert all(r.proof is not None for r in found.rules) and len(found.rules) >= 2
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(tmp_path, number):
    """What is proved is written, and why there is no more is told; after that the folder gives the rest."""
    folder, file = tmp_path / "run", tmp_path / "rules.txt"
    labels = [part for f in ALPHABET[:6] for part in ("--operator", f.name)]
    command = [sys.executable, "-m", "neoflow", "rules", "generate", str(file), *labels, "--count", "3"]
    with subprocess.Popen([*command, "--folder", str(folder)], stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (folder / "proofs.jsonl").exists():
            time.sleep(0.01)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and f"it was ended by {number.name}" in out
    assert all(r.proof is not None for r in read_rules(file.read_text()).rules)


def test_a_variable_that_does_not_matter():
    """Both sides read what the other does not: one rule without it, of which others are instances."""
    n = {s: name(s) for s in "ABD"}
    x, y, z = Variable("x", (n["B"], n["B"])), Variable("y", (n["A"], n["B"])), Variable("z", (n["A"], n["B"]))
    whole = [apply(OPERATORS["rows"], x, v) for v in (y, z)]
    pair = tuple(apply(OPERATORS["first"], t, P=n["A"]) for t in whole)
    found = generalized(pair, 0)
    assert [str(t) for t in found] == ["first[P=A](rows(x, y))", "first[P=A](x)"]
    rule = proof_of(found, 0)
    assert str(rule.source) == "first[P=D](rows(x, y))" and str(rule.target) == "first[P=D](x)"
    assert rule.proof is not None and rule.guards
    known = Known(frozenset())
    known.add(tree(rule.source), tree(rule.target))
    one, other = (tree(t) for t in pair)
    assert known.meet(one, other) and not known.meet(one, tree(x))
