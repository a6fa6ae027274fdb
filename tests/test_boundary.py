"""What of an error crosses the boundary: the user's frames, the argument by name; all of it where that is asked for."""

import os
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import neoflow as nf
from neoflow.arguments import doubtful, misfit
from neoflow.boundary import public
from neoflow.errors import ArgumentError, ExpressionError, RuntimeFault, shown
from neoflow.graph import Graph, make_graph
from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.runtime.plan import Plan
from neoflow.target import Target

PACKAGE = str(Path(nf.__file__).parent)
x = nf.placeholder((4, 5), name="x")


def frames(error):
    return [f.name for f in traceback.extract_tb(error.__traceback__)]


def test_the_users_frames_are_left():
    def body(i):
        return x[i]

    with pytest.raises(ExpressionError) as caught:
        nf.compute((4,), body)
    assert frames(caught.value) == ["test_the_users_frames_are_left", "body"]


@pytest.mark.parametrize(
    "read", [Graph.from_text, Subgraph.from_text, Plan.from_text, Schedule.from_text, Target.from_text]
)
def test_what_reads_a_text_shows_no_frame(read):
    with pytest.raises(nf.TextError, match="line 1, column 1: expected `neoflow`, found `text`") as caught:
        read("text")
    assert frames(caught.value) == ["test_what_reads_a_text_shows_no_frame"]


def test_what_is_no_dict_of_leaves():
    with pytest.raises(ArgumentError, match=r"Graph\.from_text: leaves is 3, an int; it takes a dict of"):
        Graph.from_text(make_graph([x + 1.0], [x]).to_text(), leaves=3)


def test_what_a_user_raises_stays_what_it_is():
    def body(i):
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        nf.compute((4,), body)
    assert frames(caught.value) == ["test_what_a_user_raises_stays_what_it_is", "body"]


def test_a_fault_of_neoflow_keeps_every_frame(monkeypatch):
    monkeypatch.setattr("neoflow.expr.dsl.checked_dims", None)
    with pytest.raises(TypeError, match="'NoneType' object is not callable") as caught:
        nf.mean(x)
    assert frames(caught.value)[1:3] == ["at_boundary", "mean"]


def test_all_frames_on_request(monkeypatch):
    monkeypatch.setenv("NEOFLOW_TRACEBACK", "full")
    with pytest.raises(ExpressionError) as caught:
        nf.compute((4,), lambda i: x[i])
    assert {"at_boundary", "compute", "read"} < set(frames(caught.value))
    monkeypatch.setenv("NEOFLOW_TRACEBACK", "long")
    with pytest.raises(nf.ConfigError, match="NEOFLOW_TRACEBACK='long' must be full or short"):
        nf.sum("text")


def test_a_program_ends_with_a_few_lines(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import neoflow as nf\nw = nf.parameter((4, 5))\nnf.compile([nf.sum(w)], updates={w: 0.0})\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(PACKAGE).parent)}
    command = [sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and f'"{path}", line 3' in lines[1]
    assert "neoflow.errors.ArgumentError: " in lines[-1] and "it takes a Tensor" in lines[-1] and len(lines) <= 5


def test_an_error_has_one_cause_in_a_handler():
    try:
        raise KeyError("the user's own")
    except KeyError:
        with pytest.raises(ArgumentError) as caught:
            nf.sum()
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_public_function_is_found_by_tools():
    assert nf.mean.__doc__ == nf.mean.__wrapped__.__doc__ and nf.mean.__name__ == "mean"
    assert public(nf.mean.__wrapped__)(x).shape == ()


def f(
    a: int = 0,
    b: float = 0.0,
    c: str | None = None,
    d: Sequence[nf.Tensor] = (),
    e: Mapping[str, nf.Tensor] | None = None,
    g: Literal["one", "two"] = "one",
    h: tuple[float, float] = (0.0, 0.0),
    i: Callable[[int], float] | None = None,
    j: Any = None,
    k: np.ndarray | None = None,
    l: bool = False,
    *more: int,
    **named: nf.Tensor,
): ...


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"a": np.int64(3), "b": 1, "c": "t", "d": [x], "e": {"a": x}, "h": (1, 2.0), "k": [1.0], "l": np.True_}, None),
        ({"b": np.float32(1), "d": (t for t in [x]), "i": len, "j": object(), "k": 3, "l": 1, "z": x}, None),
        ({"a": 1.0}, "a is 1.0, a float; it takes an integer"),
        ({"a": True}, "a is True, a bool; it takes an integer"),
        ({"a": 1 << 200}, "a is an integer of 201 bits, which is too large"),
        ({"b": "1"}, "b is '1', a str; it takes a number"),
        ({"c": 1}, "c is 1, an int; it takes a text or None"),
        ({"d": "ab"}, "d is 'ab', a str; it takes a list of Tensor"),
        ({"d": {"a": x}}, f"d is {{'a': {x!r}}}, a dict; it takes a list of Tensor"),
        ({"d": [x, 1]}, "d[1] is 1, an int; it takes a Tensor"),
        ({"e": {"a": 1}}, "e['a'] is 1, an int; it takes a Tensor"),
        ({"e": {1: x}}, "e has the key 1, which is not a text"),
        ({"g": "three"}, "g is 'three', a str; it takes 'one' or 'two'"),
        ({"h": (1.0,)}, "h has 1 items; it takes 2"),
        ({"h": (1.0, "a")}, "h[1] is 'a', a str; it takes a number"),
        ({"i": 3}, "i is 3, an int; it takes a function or None"),
        ({"d": {1}}, "d[0] is 1, an int; it takes a Tensor"),
        ({"d": np.zeros(1)}, "d[0] is np.float64(0.0), a float64; it takes a Tensor"),
        ({"d": np.zeros(())}, "d is array(0.), a ndarray; it takes a list of Tensor"),
        ({"h": {1.0, 2.0}}, "h is {1.0, 2.0}, a set; it takes a tuple of number"),
        ({"i": f}, None),
        ({"l": 2}, "l is 2, an int; it takes a bool"),
        ({"z": 3}, "named['z'] is 3, an int; it takes a Tensor"),
    ],
)
def test_misfit(given, reason):
    assert misfit(f, (), given) == reason


def test_a_function_that_cannot_be_called_so():
    found = misfit(f, (), {"i": test_a_function_that_cannot_be_called_so})
    assert found.startswith("i, <function test_a_f")
    assert found.endswith("will be called with 1 arguments: too many positional arguments")


def test_items_that_are_gone():
    numbers = iter([1])
    assert misfit(f, (), {"d": numbers, "j": numbers}) is None
    found = doubtful(f, (), {"d": numbers})
    assert found.endswith("it takes a list of Tensor, and its items are not such: write them as a list")
    assert doubtful(f, (), {"d": [x], "j": numbers}) is None


def test_a_compiled_part_of_numpy_is_inside():
    with pytest.raises(ArgumentError, match="check_grad: seed is 'a', a str; it takes an integer"):
        nf.check_grad(nf.mean(x), seed="a")


def test_misfit_by_position():
    given = (0, 0.0, None, (), None, "one", (0, 0), None, None, None, False, "a")
    assert misfit(f, given, {}) == "more[0] is 'a', a str; it takes an integer"


@pytest.mark.parametrize(
    ("value", "text"),
    [(10**5000, "an integer of 16610 bits"), ("a" * 200, None), (list(range(1000)), None), ("\ud800", "'\\ud800'")],
    ids=["integer", "text", "list", "half a pair"],
)
def test_anything_can_be_shown(value, text):
    assert len(shown(value)) < 300 and shown(value).encode()
    assert text is None or shown(value) == text


# ------------------------------------------------------------------------------------------- indices at run time

table, ids = nf.placeholder((7, 3), name="table"), nf.placeholder((2, 4), "int64", name="ids")
rows = np.zeros((7, 3), np.float32)


def bad(value, at=(1, 2)):
    found = np.zeros((2, 4), np.int64)
    found[at] = value
    return found


FAULTS = {
    "read": (
        lambda: nf.compute((2, 4, 3), lambda b, t, h: table[ids[b, t], h]),
        "table is indexed in dimension 0 by `ids[b, t]` = 9 at b=1, t=2, but its extent is 7",
    ),
    "arithmetic": (
        lambda: nf.compute((2, 4), lambda b, t: table[2 * ids[b, t] - 6, 0]),
        "by `2*ids[b, t] - 6` = -6 at b=0, t=0, but its extent is 7",
    ),
    "guarded": (
        lambda: nf.expr("y[b,t] = table[ids[b,t],0] if ids[b,t] < 8 else table[ids[b,t] - 9,0]", table=table, ids=ids),
        None,
    ),
    "under a sum": (
        lambda: nf.expr("y[h] = sum(table[ids[b,t], h])", table=table, ids=ids),
        "`ids[b, t]` = 9 at b=1, t=2, but its extent is 7",
    ),
    "nested": (
        lambda: nf.compute((2, 4), lambda b, t: table[ids[ids[b, t], t], 0]),
        "index 0 is 9 at b=1, t=2, but the extent is 2",
    ),
    "computed": (
        lambda: nf.take(table * 2.0, nf.reshape(ids + 0, (8,))),
        "= 9 at i=6, but its extent is 7",
    ),
    "scatter": (
        lambda: nf.expr("y[i<7] = scatter[b,t](1.0, at=[ids[b,t]])", ids=ids),
        "y is indexed in dimension 0 by `ids[b, t]` = 9 at b=1, t=2, but its extent is 7",
    ),
}


@pytest.mark.tvm
@pytest.mark.parametrize("case", FAULTS)
def test_an_index_that_leaves_its_table_is_named(case):
    make, words = FAULTS[case]
    call = nf.compile([make()], [table, ids])
    if words is None:
        call(rows, bad(9))
        return
    with pytest.raises(RuntimeFault) as caught:
        call(rows, bad(9))
    assert words in str(caught.value)
    assert str(caught.value).startswith("tests/test_boundary.py:")
    assert len(frames(caught.value)) == 1


@pytest.mark.tvm
def test_what_a_models_file_raises_has_its_own_frames(tmp_path):
    (tmp_path / "broken.py").write_text(
        textwrap.dedent("""
            def width(n):
                return 1 // n

            def build(batch=2):
                return width(batch - batch)
        """)
    )
    command = [sys.executable, "-m", "neoflow", "explain", str(tmp_path / "broken.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert said[0].endswith("broken.py failed: integer division or modulo by zero")
    assert [line.split(", ")[-1] for line in said if line.startswith("  File")] == ["in build", "in width"]
    assert said[-1] == "ZeroDivisionError: integer division or modulo by zero" and PACKAGE not in done.stderr
