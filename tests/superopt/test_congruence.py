"""What follows from rules modulo what is equal among smaller graphs; and work that processes share."""

import os

import pytest

import neoflow as nf
from neoflow.superopt.congruence import Congruence
from neoflow.superopt.runs import Until, shared

SUM, TURNED = "add:2", "transpose:2"


def turned_sums() -> Congruence:
    """x, y, their transposes 2 and 3, x + y, (x + y)' and x' + y' as 4, 5 and again 5."""
    known = Congruence(frozenset({SUM}))
    for graph in (0, 1):
        known.leaf(graph, ":2")
        known.equal((TURNED, (graph,)), 2 + graph)
        known.equal((TURNED, (2 + graph,)), graph)
    known.equal((SUM, (0, 1)), 4)
    known.equal((TURNED, (4,)), 5)
    return known


def test_one_step_at_the_root_and_any_below():
    known = turned_sums()
    assert not known.follows((SUM, (2, 3)), 5), "no rule says so"
    known.rule((TURNED, (SUM, "x:2", "y:2")), (SUM, (TURNED, "x:2"), (TURNED, "y:2")))
    assert known.follows((SUM, (2, 3)), 5) and known.follows((SUM, (3, 2)), 5), "add does not mind the order"
    assert not known.follows((SUM, (2, 2)), 5) and not known.follows((SUM, (2, 3)), 4)
    known.equal((SUM, (2, 3)), 5)
    assert known.follows((TURNED, (5,)), 4), "5 is x' + y' too, whose transpose is x'' + y'', and x'' is x"


def test_forms_that_are_no_graphs():
    """relu of x' + y', which is (x + y)' by a rule, though nobody made that; not where it was made and is another
    graph, unless the operator has several sizes; and no rule makes anything larger inside."""
    known = Congruence(frozenset({SUM}))
    for graph in (0, 1):
        known.leaf(graph, ":2")
        known.equal((TURNED, (graph,)), 2 + graph)
    known.equal((SUM, (0, 1)), 4)
    known.equal((SUM, (2, 3)), 5)
    known.rule((TURNED, (SUM, "x:2", "y:2")), (SUM, (TURNED, "x:2"), (TURNED, "y:2")))
    known.rule(("relu:2", (TURNED, "x:2")), ("back:2", "x:2"))
    source, target = ("relu:2", (5,)), ("back:2", (4,))
    assert not known.follows(source, target) and known.follows(source, target, depth=1)
    assert not known.follows(source, ("back:2", (0,)), depth=1)
    known.equal((TURNED, (4,)), 6)
    assert not known.follows(source, target, depth=1)
    known.equal((TURNED, (4,)), 7)
    assert known.follows(source, target, depth=1)
    apart = Congruence(frozenset())
    apart.leaf(0, ":2")
    apart.equal((TURNED, (0,)), 1)
    apart.rule((TURNED, "x:2"), (TURNED, (TURNED, (TURNED, "x:2"))))
    apart.rule(("relu:2", (TURNED, (TURNED, "x:2"))), ("back:2", "x:2"))
    apart.equal((TURNED, (1,)), 2)
    assert not apart.follows(("relu:2", (1,)), ("back:2", (1,)), depth=1)


def test_ranks_and_variables():
    known = turned_sums()
    known.leaf(9, ":4")
    known.rule(("scale:4", "x:4"), "x:4")
    assert known.follows(("scale:4", (9,)), 9) and not known.follows(("scale:4", (0,)), 0)
    known.rule((SUM, "x:2", "x:2"), (TURNED, "x:2"))
    assert known.follows((SUM, (0, 0)), 2) and not known.follows((SUM, (0, 1)), 2)


@pytest.mark.parametrize("processes", [1, 3])
def test_shared_work(tmp_path, processes):
    """Each number once, by processes that are there at once; what is late is left, and a failure is told."""
    assert shared(lambda n: (tmp_path / str(n)).write_text(str(os.getpid())), range(40), processes, Until())
    assert {int(p.name) for p in tmp_path.iterdir()} == set(range(40))
    assert ({int(p.read_text()) for p in tmp_path.iterdir()} == {os.getpid()}) == (processes == 1)
    assert not shared(lambda n: None, range(40), processes, Until(0.0))


def test_a_process_that_fails(capfd):
    with pytest.raises(nf.NeoflowError, match="ended with 1"):
        shared(lambda n: [][n], range(40), 2, Until())
    assert "IndexError" in capfd.readouterr().err
