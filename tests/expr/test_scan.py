"""A scan means its loop: values, gradients, batches, and what is refused."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.batched import batched
from neoflow.expr.printer import print_program
from neoflow.expr.tensor import structural_hash, topological
from tests.expr.refusals import check_refusal
from tests.random_recurrences import draw, gradients, unroll

x, w = nf.placeholder((5, 3, 4), name="x"), nf.parameter((4, 4), name="w")
h0 = nf.placeholder((3, 4), name="h0")


def step(h, row):
    h = nf.tanh(h @ w + row)
    return h, h


def fed(seed=0):
    rng = np.random.default_rng(seed)
    return {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, w, h0)}


def agree(seeds):
    """Values and gradients of scans beside those of the loops written out, in float64."""
    for seed in seeds:
        d = draw(seed)
        scanned = nf.evaluate([*d.scanned, *gradients(d, d.scanned)], d.feeds, dtype="float64")
        unrolled = nf.evaluate([*d.unrolled, *gradients(d, d.unrolled)], d.feeds, dtype="float64")
        for a, b in zip(scanned, unrolled, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9, err_msg=f"seed {seed}")


def test_random_scans_are_the_loops_written_out():
    agree(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_five_thousand_random_scans_are_the_loops_written_out(part):
    agree(range(1000 * part + 1000, 1000 * part + 2000))


def test_second_derivatives_of_a_scan():
    last, ys = nf.scan(step, h0, x)
    (dw,) = nf.grad(nf.sum(last * last) + nf.sum(nf.sin(ys)), [w])
    nf.check_grad(nf.sum(dw * dw), [x, w, h0])


def test_a_scan_over_batches_is_a_scan_of_each():
    for seed in range(8):
        d, rng = draw(seed), np.random.default_rng(seed)
        which = [t for t in d.feeds if not isinstance(t, nf.Parameter) and rng.random() < 0.5]
        new = {t: nf.placeholder((3, *t.shape), name=t.name) for t in which}
        found = batched(d.scanned, new, 3)
        many = {p: rng.standard_normal(p.shape) for p in new.values()}
        together = nf.evaluate(found, {**d.feeds, **many}, dtype="float64")
        for k in range(3):
            alone = nf.evaluate(d.scanned, {**d.feeds, **{t: many[p][k] for t, p in new.items()}}, dtype="float64")
            for got, want, new_root, root in zip(together, alone, found, d.scanned, strict=True):
                np.testing.assert_allclose(got[k] if new_root is not root else got, want, atol=1e-9)


def test_what_is_carried_may_be_a_nest():
    def both(old, row):
        return {"h": old["h"] + row, "n": (old["n"][0] + 1,)}, (row * 2, None)

    last, (doubled, nothing) = nf.scan(both, {"h": h0, "n": (nf.constant(np.int32(0)),)}, x)
    values = fed()
    h, n, ys = nf.evaluate([last["h"], last["n"][0], doubled], values)
    np.testing.assert_allclose(h, values[h0] + values[x].sum(0), atol=1e-5)
    assert n == 5 and nothing is None
    np.testing.assert_array_equal(ys, 2 * values[x])


def test_a_scan_without_inputs_has_a_length():
    doubled, powers = nf.scan(lambda old, _: (old * 2, old), nf.constant(np.float32(1)), length=6)
    last, found = nf.evaluate([doubled, powers], {})
    assert last == 64 and found.tolist() == [1, 2, 4, 8, 16, 32]


def test_a_reversed_scan_keeps_each_row_in_its_place():
    total, sums = nf.scan(lambda old, row: (old + row, old + row), h0, x, reverse=True)
    values = fed()
    last, rows = nf.evaluate([total, sums], values)
    want = values[h0] + np.cumsum(values[x][::-1], axis=0)[::-1]
    np.testing.assert_allclose(rows, want, atol=1e-5)
    np.testing.assert_allclose(last, want[0], atol=1e-5)


def test_a_scan_ends_early():
    def halve(old, _):
        return old / 2, old

    last, rows = nf.scan(halve, nf.constant(np.float32(100)), length=9, until=lambda old: old < 10)
    end, found = nf.evaluate([last, rows], {})
    assert end == 6.25 and found.tolist() == [100, 50, 25, 12.5, 0, 0, 0, 0, 0]


def test_what_comes_after_the_end_has_no_gradient():
    def root(old, row):
        return nf.sqrt(old), row * old

    s = nf.placeholder((), name="s")
    rows = nf.placeholder((6,), name="rows")
    last, ys = nf.scan(root, s, rows, until=lambda old: old < 2)
    ds, drows = nf.grad(last + nf.sum(ys), [s, rows])
    got = nf.evaluate([ds, drows], {s: np.float32(16), rows: np.ones(6, np.float32)})
    assert got[0] == pytest.approx(1 + 16**-0.5 / 2 + 16**-0.75 / 4 + 16**-0.875 / 8)
    assert got[1].tolist() == [16, 4, 2, 0, 0, 0]


def test_equal_scans_have_one_hash_and_others_another():
    def hashed(body):
        return structural_hash(list(nf.scan(body, h0, x)))

    assert hashed(step) == hashed(step)
    assert hashed(step) != hashed(lambda h, row: (nf.tanh(h @ w - row), h))


def test_a_scan_is_printed_with_its_step():
    last, _ = nf.scan(step, h0, x)
    text = print_program(topological([last]))
    assert "loop 1: 5 steps, carrying h0 = h0" in text and "of each step x = x[step]" in text
    assert "tanh_1 = last(h0_1) of loop 1" in text
    assert str(last).startswith("tanh = last(h0) of 5 steps")


def test_operations_of_a_scan_are_those_of_its_steps():
    last, _ = nf.scan(step, h0, x)
    one = nf.count_ops(nf.tanh(h0 @ w + nf.placeholder((3, 4), name="row")))
    assert nf.count_ops(last).flops == 5 * one.flops


def test_the_loop_written_out_is_what_this_file_says_it_is():
    last, (rows,) = unroll(lambda h, r: ([h[0] + r[0]], [h[0]]), [h0], [x], 5, reverse=True)
    values = fed()
    a, b = nf.evaluate([last[0], rows], values)
    np.testing.assert_allclose(a, values[h0] + values[x].sum(0), atol=1e-5)
    np.testing.assert_array_equal(b[4], values[h0])


drop = nf.nn.Dropout(0.5)
REFUSED = {
    "in training form: what drops elements": lambda: nf.scan(lambda h, r: (drop(h + r), None), h0, x),
    "a step returns a pair, what it carries on and its row of ys": lambda: nf.scan(lambda h, r: h, h0, x),
    "a step is given h0 as float32[3, 4] and carries it on as": lambda: nf.scan(lambda h, r: (nf.sum(h), h), h0, x),
    "a step carries on another structure": lambda: nf.scan(lambda h, r: ((h, h), h), h0, x),
    "init holds tensors, not": lambda: nf.scan(step, object(), x),
    "has 3 steps, but x has 5": lambda: nf.scan(lambda h, r: (h, None), h0, (x, h0)),
    "has 5 steps, but length=4": lambda: nf.scan(step, h0, x, length=4),
    "length=0 is no number of steps": lambda: nf.scan(step, h0, x, length=0),
    "xs has the scalar s": lambda: nf.scan(step, h0, nf.placeholder((), name="s")),
    "a scan without xs needs length=": lambda: nf.scan(lambda h, r: (h, h), h0),
    "until gives a bool of one element": lambda: nf.scan(step, h0, x, until=lambda h: h),
    "a step returns a pair": lambda: nf.scan(lambda h, r: 1, h0, x, until=lambda h: nf.sum(h) > 1),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    check_refusal(REFUSED[message], message, __file__)
