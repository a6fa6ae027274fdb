"""Functions of JAX that are written in neoflow, beside everything that JAX does with its own."""

import copy
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import neoflow as nf  # noqa: E402
from benchmarks import jax_operator  # noqa: E402
from neoflow.errors import ArgumentError, ExpressionError, RuntimeFault  # noqa: E402
from neoflow.runtime.bound import Bound  # noqa: E402
from tests.interop.jax_examples import lookup  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.jax]
RAISED = (ValueError, jax.errors.JaxRuntimeError)
"""What JAX makes of an error of a custom call: the first where it waits for the call."""


@nf.jax.operator
def scaled(x, w, times: float = 2.0):
    """times * x * w, and no more, so that tests compile quickly."""
    return x * w * times


@nf.jax.operator
def rows(x, w):
    """y[b] = sum(x[b,i] * w[i])"""
    return nf.expr("y[b] = sum(x[b,i] * w[i])", x=x, w=w)


@nf.jax.operator
def both(x) -> tuple[nf.Tensor, nf.Tensor]:
    """Its argument itself, and a sum over it."""
    return x, nf.sum(x)


def drawn(*shape):
    return jax.random.normal(jax.random.key(sum(shape)), shape)


def calls(f, *args):
    """What neoflow computes in a program of JAX, by the steps to it."""
    found = []

    def walk(jaxpr):
        for e in jaxpr.eqns:
            if e.primitive.name == "neoflow":
                found.append(e.params["of"].case.steps)
            for inner in jax.tree.leaves(e.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
                if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                    walk(getattr(inner, "jaxpr", inner))

    walk(jax.make_jaxpr(f)(*args).jaxpr)
    return found


class TestArrays:
    def test_xla_memory_is_not_copied(self, monkeypatch):
        monkeypatch.setattr("neoflow.interop.jax.calls._aligned", lambda spec: pytest.fail("a copy"))
        x, w = drawn(3, 4), drawn(4)
        np.testing.assert_allclose(jax.jit(rows)(x + 1, w), (x + 1) @ w, 1e-5)

    def test_memory_that_is_not_aligned_is_copied(self):
        from neoflow.interop.jax.calls import _handled, _operators

        program = _operators["rows"]
        room = np.zeros(64, np.float32)
        start = (-room.ctypes.data % 64) // 4 + 1
        x, w, y = room[start : start + 6].reshape(2, 3), room[start + 8 : start + 11], room[start + 16 : start + 18]
        x[...], w[...] = np.arange(6).reshape(2, 3), [1, 2, 3]
        call = program.first((("float32", (2, 3)), ("float32", (3,))))
        assert _handled(call.text, [x.ctypes.data, w.ctypes.data], [y.ctypes.data]) is None
        assert y.tolist() == [8, 26] and room[start + 18 :].sum() == 0

    def test_what_is_no_array_of_jax_becomes_one(self):
        np.testing.assert_allclose(scaled(np.ones((2, 3)), [1.0, 2, 3]), [[2, 4, 6]] * 2)
        assert scaled(np.ones((2, 3)), 2.0).dtype == np.float32

    def test_the_same_array_twice_and_a_result_that_is_an_argument(self):
        x = drawn(3, 4)
        np.testing.assert_allclose(jax.grad(lambda x: scaled(x, x).sum())(x), 4 * x, 1e-5)
        same, total = jax.jit(both)(x)
        np.testing.assert_array_equal(same, x)
        np.testing.assert_allclose(jax.grad(lambda x: 3 * both(x)[0].sum() + both(x)[1])(x), np.full((3, 4), 4.0))
        assert total.shape == ()

    def test_an_array_that_is_given_away(self):
        x, w = drawn(5, 4) + 0, drawn(4)
        expected = 2 * np.asarray(x) * np.asarray(w)
        step = jax.jit(lambda x: scaled(x, w), donate_argnums=0)
        np.testing.assert_allclose(step(x), expected, 1e-6)
        assert x.is_deleted()

    def test_arrays_without_elements(self):
        x, w = jnp.zeros((0, 4)), drawn(4)
        assert jax.jit(rows)(x, w).shape == (0,)
        dx, dw = jax.grad(lambda x, w: rows(x, w).sum(), (0, 1))(x, w)
        assert dx.shape == (0, 4) and dw.tolist() == [0] * 4
        assert jax.vmap(rows, (0, None))(jnp.zeros((0, 3, 4)), w).shape == (0, 3)
        with pytest.raises(
            RuntimeFault, match=r"rows: x is float32\[3, 0\], and its result y is float32\[3\]: nothing"
        ):
            rows(jnp.zeros((3, 0)), jnp.zeros(0))

    def test_integers_have_no_gradient(self):
        look = nf.jax.operator(lookup)
        table, ids = drawn(4, 3), jnp.array([1, 0, 3])
        _, pull = jax.vjp(look, table, ids)
        by_table, by_ids = pull(jnp.ones((3, 3)))
        assert by_table.shape == (4, 3) and by_ids.dtype == jax.dtypes.float0

    def test_wide_types_only_where_jax_has_them(self):
        @nf.jax.operator
        def counted(x) -> tuple[nf.Tensor, nf.Tensor]:
            return nf.cast(x, "float64") * 2, nf.cast(nf.argmax(x, axis=-1), "int64")

        x = np.arange(3.0)
        assert [y.dtype.name for y in counted(x)] == ["float32", "int32"]
        with jax.enable_x64(True):
            assert [y.dtype.name for y in jax.jit(counted)(x)] == ["float64", "int64"]
        assert [y.dtype.name for y in jax.jit(counted)(x)] == ["float32", "int32"]


class TestTransformations:
    def test_only_gradients_that_are_asked_for(self):
        x, w = drawn(3, 4), drawn(4)
        for wanted in ((0,), (1,), (0, 1), (0,)):  # the first again, which JAX has traced before
            gradient = jax.grad(lambda x, w: jax.jit(rows)(x, w).sum(), wanted)
            assert ("adjoint", wanted, (0,)) in [s[-1] for s in calls(gradient, x, w) if s]
            full = np.broadcast_to(w, (3, 4)), np.asarray(x.sum(0))
            for n, g in zip(wanted, gradient(x, w), strict=True):
                np.testing.assert_allclose(g, full[n], 1e-5)

    def test_only_cotangents_that_there_are(self):
        x = drawn(3, 4)
        assert ("adjoint", (0,), (1,)) in [s[-1] for s in calls(jax.grad(lambda x: both(x)[1]), x) if s]
        np.testing.assert_array_equal(jax.grad(lambda x: both(x)[1])(x), np.ones((3, 4)))

    def test_a_batch_is_one_call(self):
        x, w = drawn(5, 3, 4), drawn(4)
        assert calls(jax.vmap(rows, (0, None)), x, w) == [(("batched", (0,), 5),)]
        np.testing.assert_allclose(jax.vmap(rows, (0, None))(x, w), x @ w, 1e-4)
        same, total = jax.vmap(lambda x, w: both(w), (0, None), (None, None))(x, w)
        assert same.shape == (4,) and total.shape == ()

    @pytest.mark.slow
    def test_scan_remat_and_cond(self):
        x, w = drawn(3, 4), drawn(4)

        def loss(f, w):
            def body(carry, row):
                carry = jax.checkpoint(f)(row[None], carry)[0] * carry
                return jax.lax.cond(carry.sum() > 0, lambda c: c, lambda c: f(row[None], c)[0] + c, carry), carry

            last, every = jax.lax.scan(body, w, x)
            return last.sum() + (every**2).sum()

        def plain(x, w):
            return x @ w

        ours, theirs = (jax.jit(jax.value_and_grad(lambda w, f=f: loss(f, w)))(w) for f in (rows, plain))
        np.testing.assert_allclose(ours[0], theirs[0], 1e-4)
        np.testing.assert_allclose(ours[1], theirs[1], 1e-3, 1e-4)

    def test_without_jit(self):
        x, w = drawn(3, 4), drawn(4)
        with jax.disable_jit():
            np.testing.assert_allclose(rows(x, w), x @ w, 1e-5)
            np.testing.assert_allclose(jax.grad(lambda w: rows(x, w).sum())(w), x.sum(0), 1e-5)

    def test_a_shape_that_is_not_known(self):
        x = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 4"), jnp.float32)
        with pytest.raises(
            RuntimeFault, match=r"operator rows: argument x has the shape \(n, 4\), and is compiled for"
        ):
            jax.export.export(jax.jit(rows))(x, drawn(4))


class TestCompilations:
    def test_each_has_a_reason_in_the_log(self, caplog):
        @nf.jax.operator
        def logged(x, times: int = 2):
            return x * times

        with caplog.at_level(logging.INFO, "neoflow"):
            logged(drawn(3))
            jax.jit(logged)(drawn(3))
            logged(drawn(5))
            logged(drawn(5), 3)
        text = caplog.text
        assert text.count("operator logged: another program, since") == 3
        assert text.count("operator logged: compiled itself for cpu in") == 3
        assert "since x is float32[5], not float32[3]" in text and "since times is 3, not 2" in text

    def test_their_number_has_a_bound(self):
        @nf.jax.operator(limit=2)
        def bounded(x):
            return x + 1

        for shape in (3, 4, 3):
            bounded(drawn(shape))
        with pytest.raises(
            RuntimeFault, match=r"bounded was compiled for 2 shapes, and now x is float32\[5\], not .*pad"
        ):
            bounded(drawn(5))

    def test_a_name_is_given_once(self):
        first, second = (nf.jax.operator(lambda x: x, name="the same") for _ in range(2))
        assert first.signature.name == "the_same" and repr(second) == "<Operator the_same_2(Tensor x)>"

    def test_one_that_jax_has_kept_runs_in_the_next_process(self, tmp_path):
        """Its custom call finds the operator by name, whose program is written again."""
        from neoflow.interop.jax.calls import _calls, _handled

        assert "no operator nobody is defined in this process: import the module" in str(_handled("nobody []", [], []))
        scaled(drawn(7), drawn(7))
        kept = jax.export.export(
            jax.jit(scaled), disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("neoflow_run")]
        )(drawn(7), drawn(7)).serialize()
        for text in [t for t in _calls if t.startswith("scaled ") and "[7]" in t]:
            del _calls[text]
        found = jax.export.deserialize(kept).call(drawn(7), drawn(7))
        np.testing.assert_allclose(found, 2 * drawn(7) ** 2, 1e-6)

    def test_copies_are_itself_and_pickles_its_name(self):
        assert copy.deepcopy({"f": rows})["f"] is rows and pickle.loads(pickle.dumps(rows)) is rows


class TestRefusals:
    def test_arguments_and_dtypes(self):
        x = drawn(3, 4)
        with pytest.raises(ArgumentError, match="operator rows misses its argument w"):
            rows(x)
        with pytest.raises(RuntimeFault, match=r"argument x is complex64; there are float64, .*: convert it"):
            rows(x.astype(jnp.complex64), drawn(4))
        with pytest.raises(RuntimeFault, match=r"argument x is key<fry>; there are"):
            rows(jax.random.key(0), drawn(4))
        with pytest.raises(ArgumentError, match=r"scaled: argument times is float, known while .* static_argnames= of"):
            jax.jit(lambda times: scaled(x, x, times))(2.0)
        with pytest.raises(ArgumentError, match="operator perhaps got no array at all"):
            nf.jax.operator(lambda x=None: x, name="perhaps")()

    def test_results(self):
        with pytest.raises(ArgumentError, match="returned str, which is no tensor of neoflow"):
            nf.jax.operator(lambda x: "x")(drawn(3))
        hidden = nf.parameter((3,), name="hidden")
        with pytest.raises(ExpressionError, match="reads the parameter hidden, which is none of its arguments"):
            nf.jax.operator(lambda x: x * hidden)(drawn(3))

    def test_devices(self):
        @nf.jax.operator(target="cuda")
        def elsewhere(x):
            return x

        with pytest.raises(RuntimeFault, match="operator elsewhere is for target 'cuda', its tensors are on cpu"):
            elsewhere(drawn(3))
        lowered = jax.jit(scaled).trace(drawn(3), drawn(3))
        with pytest.raises(
            RuntimeFault, match="operator scaled is compiled by JAX for cuda; neoflow inside JAX runs on"
        ):
            lowered.lower(lowering_platforms=("cuda",))

    def test_an_index_outside_its_table(self):
        look = nf.jax.operator(lookup)
        with pytest.raises(RAISED, match=r"9"):
            jax.block_until_ready(jax.jit(look)(drawn(4, 3), jnp.array([1, 9, 0])))
        assert look(drawn(4, 3), jnp.array([1, 3, 0])).shape == (3, 3)

    def test_no_exception_leaves_a_c_function(self, monkeypatch):
        def interrupted(self, addresses):
            raise KeyboardInterrupt("now")

        f = jax.jit(scaled)
        f(drawn(3), drawn(3))
        monkeypatch.setattr(Bound, "run_at", interrupted)
        with pytest.raises(RAISED, match="KeyboardInterrupt: now"):
            jax.block_until_ready(f(drawn(3), drawn(3)))


class TestThreads:
    @pytest.mark.slow
    def test_several_at_once(self):
        x, w = [drawn(50 + n % 2, 40) for n in range(6)], drawn(40)
        expected, wrong = [np.asarray(v @ w) for v in x], []
        gradient = jax.jit(jax.value_and_grad(lambda v: rows(v, w).sum()))

        def work(n):
            for _ in range(10):
                y, g = gradient(x[n])
                if not np.allclose(y, expected[n].sum(), atol=1e-3) or not np.allclose(g, np.broadcast_to(w, g.shape)):
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong

    @pytest.mark.slow
    def test_several_devices(self):
        program = """
            import jax, numpy as np, neoflow as nf, jax.numpy as jnp
            from jax.sharding import NamedSharding, PartitionSpec as P

            @nf.jax.operator
            def rows(x, w):
                return nf.expr("y[b] = sum(x[b,i] * w[i])", x=x, w=w)

            mesh = jax.make_mesh((2,), ("b",), axis_types=(jax.sharding.AxisType.Auto,))
            x, w = jax.random.normal(jax.random.key(0), (4, 3)), jnp.arange(3.0)
            split = jax.device_put(x, NamedSharding(mesh, P("b")))
            whole = jax.device_put(w, NamedSharding(mesh, P()))
            a = jax.jit(rows)(split, whole)
            each = jax.shard_map(rows, mesh=mesh, in_specs=(P("b"), P()), out_specs=P("b"), check_vma=False)
            b = jax.jit(each)(split, whole)
            print(np.allclose(a, x @ w, atol=1e-5), np.allclose(b, x @ w, atol=1e-5))
        """
        assert process(program, XLA_FLAGS="--xla_force_host_platform_device_count=2") == ["True", "True"]


def process(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_neoflow_does_not_import_jax_before_it_is_asked_for():
    program = "import sys, neoflow as nf; dir(nf); print('jax' in sys.modules, 'jax' in dir(nf), 'jax' in nf.__all__)"
    assert process(program) == ["False", "True", "False"]


def test_without_jax_it_says_what_to_install():
    program = """
        import sys
        sys.modules["jax"] = None
        import neoflow as nf
        try:
            nf.jax
        except ImportError as error:
            print(str(error).replace(" ", "_"))
    """
    assert process(program) == ["nf.jax_needs_JAX,_which_is_not_installed:_pip_install_'neoflow[jax]'"]


@pytest.mark.slow
def test_what_is_measured_computes_the_same(capsys):
    x = jnp.arange(64.0)
    for f in jax_operator.programs().values():
        np.testing.assert_array_equal(f(x), x * x + 1)
    assert not jax_operator.main(["--calls", "2"]) and "| neoflow |" in capsys.readouterr().out
