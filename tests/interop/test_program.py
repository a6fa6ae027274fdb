"""What follows from a program: what its backward pass reads, what is kept for it, texts of cases."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.interop.family import Family
from neoflow.interop.program import Program, adjoint, saving
from neoflow.interop.signature import identifier, signature_of
from tests.strategies import random_program


def product(x, w):
    return nf.expr("y[b,o] = sum(x[b,i] * w[i,o])", x=x, w=w)


def program(f, *shapes):
    inputs = tuple(nf.placeholder(s, name=n) for s, n in zip(shapes, "xwu", strict=False))
    return Program(inputs, (f(*inputs),))


def test_a_backward_pass_takes_what_it_reads():
    p = program(product, (2, 3), (3, 4))
    assert adjoint(p, [0], [0]).sources == (1,) and adjoint(p, [1], [0]).sources == (0,)
    assert adjoint(p, [0, 1], [0]).sources == (0, 1)
    q = program(nf.tanh, (5,))
    assert adjoint(q, [0], [0]).sources == (1,), "its result says all"
    assert adjoint(program(nf.sum, (5,)), [0], [0]).sources == ()


def test_what_is_dear_is_kept_and_what_is_cheap_is_not():
    def long(x, w):
        return product(nf.tanh(product(x, w)), nf.transpose(w))

    kept = saving(program(long, (8, 200), (200, 8)), [0, 1])
    assert len(kept.outputs) == 2 and kept.outputs[1].shape == (8, 8)
    assert len(saving(program(long, (8, 5), (5, 8)), [0, 1]).outputs) == 1
    assert 2 in adjoint(kept, [0, 1], [0]).sources or 3 in adjoint(kept, [0, 1], [0]).sources
    assert len(saving(program(lambda x: nf.exp(nf.sin(x) * 2), (5,)), [0]).outputs) == 1


def law(seeds):
    """The backward pass over values gives what `nf.vjp` gives over the inputs, of whatever is kept."""
    seen = 0
    for seed in seeds:
        made = random_program(seed, gathers=False)
        inputs = tuple(made.feeds)
        wanted = [n for n, t in enumerate(inputs) if t in made.float_inputs]
        outputs = tuple(t for t in made.outputs if t.dtype.startswith(("float", "bfloat")))
        if not wanted or not outputs:
            continue
        rng = np.random.default_rng(seed)
        for p in (Program(inputs, outputs), saving(Program(inputs, outputs), wanted)):
            back = adjoint(p, wanted, [0])
            values = nf.evaluate([*p.inputs, *p.outputs], made.feeds)
            cotangent = back.program.inputs[-1]
            g = rng.standard_normal(cotangent.shape).astype(values[len(inputs)].dtype)
            feeds = dict(zip(back.program.inputs, [*(values[n] for n in back.sources), g], strict=True))
            expected = nf.vjp(outputs[0], [inputs[n] for n in back.wanted], cotangent, allow_unused=True)
            found = nf.evaluate(list(back.program.outputs), feeds)
            for a, b in zip(found, nf.evaluate(expected, {**made.feeds, cotangent: g}), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)
                seen += 1
    return seen


def test_backward_passes_of_random_programs():
    assert law(range(6)) > 6


@pytest.mark.slow
def test_backward_passes_of_many_random_programs():
    assert law(range(2000, 2200)) > 200


def test_a_case_is_made_again_from_its_text():
    def f(x, w, times: int = 2):
        return product(x, w) * times

    here, there = (Family(f, signature_of(f, "f", None), 8) for _ in range(2))
    specs = (("float32", (2, 3)), ("float32", (3, 4)), 3)
    case = here.case(specs).saving((0, 1)).batched((0,), 5).pulled((1,))[0]
    again = there.of(case.text)
    assert again.text == case.text and again.outputs == case.outputs == (("float32", (3, 4)),)
    assert here.of(case.text) is case and again is not case


def test_a_batch_of_nothing():
    family = Family(product, signature_of(product, "product", None), 8)
    case = family.case((("float32", (2, 3)), ("float32", (3, 4))))
    assert case.batched((0,), 0).outputs == (("float32", (0, 2, 4)),)
    assert case.batched((0,), 0).pulled((1,))[0].outputs == (("float32", (3, 4)),)


def test_names_for_pytorch():
    assert [identifier(t) for t in ("<lambda>", "a b", "2d", "é", "x")] == ["lambda", "a_b", "_2d", "operator", "x"]
