"""The law of every algorithm: the value stays, whatever the sizes; what none fits is told with the reason."""

from unittest import mock

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Editor, make_graph, optimize, sites
from neoflow.graph.algorithms import (
    ALGORITHMS,
    BY_NAME,
    DIRECT,
    UseAlgorithm,
    alternatives,
    correlation,
    cyclic,
    halved,
    strassen,
    strided,
    use,
    whole,
)
from tests.chance import Chance
from tests.graph.algorithms.programs import CORRELATIONS, CYCLIC, MATRICES, STRIDED, UNSPLIT, arrays

PROGRAMS = {correlation: CORRELATIONS, cyclic: CYCLIC, halved: MATRICES, strided: STRIDED}
BY_ROW = {"residues": UNSPLIT}
"""What a row is tried on that does not fit all of its form."""


def programs_of(name):
    """What a row is tried on."""
    return BY_ROW.get(name, PROGRAMS[BY_NAME[name].form])


CASES = [(p, a.name) for a in ALGORITHMS for p in programs_of(a.name)]


def values(graph, feeds):
    return nf.evaluate(list(graph.outputs), feeds, dtype="float64")


def law(program, name, seed):
    """How many contractions of a random program are computed by an algorithm; all that have its form are."""
    case = program(Chance(np.random.default_rng(seed)))
    graph = optimize(make_graph(case.roots, case.inputs))
    least = 0 if BY_NAME[name].form is halved else strassen.LEAST_SAVED  # of large ones the values would take long
    with mock.patch.object(strassen, "LEAST_SAVED", least):
        return _law(graph, case, name, seed)


def _law(graph, case, name, seed):
    form, fitting = BY_NAME[name].form, alternatives(graph)
    digests = [whole(t).definition.digest for t in graph.nodes]
    assert sum(any(a.form is form for a in fitting.get(d, ())) for d in digests) == case.found
    chosen = {d: name for d, those in fitting.items() if BY_NAME[name] in those}
    count = sum(d in chosen for d in digests)
    after, derivation = use(graph, chosen)
    after.check()
    assert [s.rewrite.name for s in derivation.steps].count(name) == count > 0
    assert derivation.replay(graph).digest == after.digest
    feeds = arrays(case, seed)
    for a, b in zip(values(after, feeds), values(graph, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, abs(b).max()))
    return count


@pytest.mark.parametrize(("program", "name"), CASES)
def test_values_stay(program, name):
    law(program, name, 0)


def verdict(name, root, *inputs):
    """What an algorithm says of the last contraction of a program."""
    graph = optimize(make_graph([root], list(inputs)))
    return BY_NAME[name].legal(graph.nodes[-1].definition)


def pair(image, taps):
    return nf.placeholder(image, name="x"), nf.placeholder(taps, name="w")


REFUSALS = (
    ("y[p, o] = sum(x[p, c] * w[c, o])", (9, 8), (8, 4), "no window goes through an operand"),
    ("y[p, o] = sum(x[2 * p + r, c] * w[o, r, c])", (17, 8), (4, 3, 8), "no window goes through an operand"),
    ("y[p, o] = sum(x[(p + r) // 2, c] * w[o, r, c])", (9, 8), (4, 3, 8), "read at other than linear indices"),
    ("y[p, o] = sum(x[p + r, c] * w[o, r, c])", (5, 8), (4, 3, 8), "F(2, 3) leaves 0.89 of its products, of 0.85"),
    ("y[p, o] = sum(x[p + r, c] * w[o, r, c])", (9, 4), (4, 3, 4), "4 terms are left of its sum, fewer than 8"),
    ("y[p, o] = sum(x[p + r, p, c] * w[o, r, c])", (9, 7, 8), (4, 3, 8), "no window goes through an operand"),
    ("y[p, o] = sum(x[p + r, c] * w[o + c, r])", (9, 8), (11, 3), "at a sum of other axes"),
    ("y[p, o, u] = sum(x[p + r, c] * w[o, r, c] * w[u, r, c])", (9, 8), (4, 3, 8), "no sum of products of two"),
    ("y[p, o] = max(x[p + r, c] * w[o, r, c])", (9, 8), (4, 3, 8), "it is no sum of floats"),
)


@pytest.mark.parametrize(("text", "image", "taps", "reason"), REFUSALS)
def test_what_does_not_fit_is_refused_with_the_reason(text, image, taps, reason):
    x, w = pair(image, taps)
    found = verdict("winograd 2", nf.expr(text, x=x, w=w), x, w)
    assert not found.ok and reason in found.reason


def test_what_only_one_operand_or_none_has_is_refused():
    x, w = nf.placeholder((9, 8, 5), name="x"), nf.placeholder((4, 3, 8), name="w")
    y = nf.expr("y[p, o] = sum(x[p + r, c, d] * w[o, r, c])", x=x, w=w)
    assert correlation(y.definition) == "an axis is summed over that one operand does not have"
    r, c = nf.axis(3), nf.axis(8)
    z = nf.compute((7, 4, 2), lambda p, o, _: nf.sum(x[p + r, c, 0] * w[o, r, c], axis=[r, c]))
    assert correlation(z.definition) == "its result is repeated along an axis"


def test_three_windows_are_too_many():
    x, w = pair((8, 9, 9, 9), (4, 8, 3, 3, 3))
    y = nf.expr("y[o, p, q, t] = sum(x[c, p + r, q + s, t + u] * w[o, c, r, s, u])", x=x, w=w)
    assert "more than 2 windows" in verdict("winograd 2", y, x, w).reason
    assert verdict("im2col", y, x, w).ok


def test_what_is_written_out_must_not_be_huge():
    x, w = pair((64, 256, 130, 130), (8, 256, 3, 3))
    y = nf.expr("y[b, o, p, q] = sum(x[b, c, p + r, q + s] * w[o, c, r, s])", x=x, w=w)
    assert "268435456 at most" in verdict("im2col", y, x, w).reason
    assert "F(4, 3) x F(4, 3) leaves 0.25 of its products" in verdict("winograd 4", y, x, w).reason


@pytest.mark.parametrize(
    ("taps", "name", "reason"),
    [
        ((1, 7), "winograd 4", "F(4, 7) leaves 0.42 of its products"),
        ((7, 1), "winograd 2", "F(2, 7) leaves 0.61 of its products"),
        ((5, 5), "winograd 4", "F(4, 5) x F(4, 5) leaves 0.22 of its products"),
        ((3, 5), "winograd 4", "F(4, 3) x F(4, 5) leaves 0.28 of its products"),
        ((9, 1), "winograd 4", "F(4, 3) leaves 0.59 of its products"),
        ((7, 7), "winograd 4", "F(4, 7) x F(4, 7) may have 1.51e+03 times the direct sum's roundings, 512 at most"),
    ],
)
def test_taps_may_be_any_along_each_side(taps, name, reason):
    x, w = pair((1, 8, 17, 17), (8, 8, *taps))
    y = nf.nn.functional.conv2d(x, w, padding=tuple(n // 2 for n in taps))
    found = verdict(name, y, x, w)
    assert found.reason == reason and found.ok == ("leaves" in reason)


def test_too_few_results_and_taps_are_no_tile():
    x, w = pair((5, 8), (4, 3, 8))
    found = verdict("winograd 4", nf.expr("y[p, o] = sum(x[p + r, c] * w[o, r, c])", x=x, w=w), x, w)
    assert found.reason == "a window has 3 results of 3 taps, too few for tiles of 4" and not found.ok


def test_only_what_is_meant_is_rewritten():
    x, w = pair((2, 8, 9, 9), (8, 8, 3, 3))
    y = nf.nn.functional.conv2d(x, w)
    graph = optimize(make_graph([y], [x, w]))
    editor = Editor(graph.roots)
    assert not [*sites(editor, [UseAlgorithm("winograd 2", frozenset(("another",)))], graph.nodes[-1])]
    assert use(graph, {graph.nodes[-1].definition.digest: DIRECT})[0] is graph


def test_the_transform_of_an_image_serves_the_gradient_of_the_filter_too():
    x, w = pair((2, 8, 9, 9), (8, 8, 3, 3))
    y = nf.nn.functional.conv2d(x, w)
    g = nf.placeholder(y.shape, name="g")
    graph = optimize(make_graph([y, *nf.vjp(y, [w], g)], [x, w, g]))
    after, _ = use(graph, dict.fromkeys(alternatives(graph), "winograd 4"))
    assert sum(t.name.endswith("_image") for t in after.nodes) == 1


def going_round(x=(16, 12, 20), w=(16, 12, 20), index=lambda n, k: (n - k) % 20, dtype="float32"):
    """A product with blocks that are circulant, over x [b, j, k] and w [i, j, k]."""
    x, w = nf.placeholder(x, dtype, "x"), nf.placeholder(w, dtype, "w")
    j, k = nf.axis(x.shape[1], "j"), nf.axis(x.shape[2], "k")
    shape = x.shape[0], w.shape[0], 20
    return nf.compute(shape, lambda b, i, n: nf.sum(x[b, j, k] * w[i, j, index(n, k)], axis=[j, k])), x, w


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (lambda n, k: n, "no operand goes round"),
        (lambda n, k: (n - 3 * k) % 20, "no operand goes round"),
        (lambda n, k: (n - k) % 19, "no operand goes round"),
        (lambda n, k: n - k + 20, "no operand goes round"),
        (lambda n, k: (n - k) % 20, None),
        (lambda n, k: (19 * n + k + 7) % 20, None),
    ],
)
def test_what_goes_round_is_found_by_its_index(index, reason):
    y, x, w = going_round(w=(16, 12, 40 if reason else 20), index=index)
    form = cyclic(optimize(make_graph([y], [x, w])).nodes[-1].definition)
    assert (form == reason) if reason else form.points == 20


def test_what_leaves_hardly_fewer_products_is_refused():
    found = verdict("fourier", *going_round(x=(2, 12, 20)))
    assert not found.ok and found.reason == "11 frequencies of 20 points leave 0.89 of its products, of 0.75 at most"
    assert verdict("fourier", *going_round()).reason == "11 frequencies of 20 points leave 0.41 of its products"


def test_what_would_take_a_huge_matrix_is_refused():
    x, w = nf.placeholder((64, 4098), name="x"), nf.placeholder((64, 4098), name="w")
    k = nf.axis(4098)
    y = nf.compute((64, 64, 4098), lambda b, i, n: nf.sum(x[b, k] * w[i, (n - k) % 4098], axis=k))
    assert "67207200 bytes, of 67108864 at most" in verdict("fourier", y, x, w).reason


def test_one_transform_serves_a_gradient_and_the_value():
    """Of x the value's and the filter's, of the cotangent both gradients'."""
    y, x, w = going_round()
    g = nf.placeholder(y.shape, name="g")
    graph = optimize(make_graph([y, *nf.vjp(y, [x, w], g)], [x, w, g]))
    after, _ = use(graph, dict.fromkeys(alternatives(graph), "fourier"))
    assert len(graph.nodes) == 3 and len(after.nodes) == 3 * 4 - 1
    assert len({c.digest for c in after.constants}) == len(after.constants)


@pytest.mark.parametrize(
    ("text", "image", "taps", "reason"),
    [
        ("y[m, n] = sum(x[m, k] * w[k, n])", (9, 8), (8, 4), "rows cannot be halved: 9"),
        ("y[b, m, n] = sum(x[b, m, k] * w[n, k])", (3, 9, 8), (4, 8), "rows cannot be halved: 3 x 9"),
        ("y[m, n] = sum(x[m, k] * w[k, n])", (8, 8), (8, 5), "columns cannot be halved: 5"),
        ("y[m] = sum(x[m, k] * w[k])", (8, 8), (8,), "columns cannot be halved: there are none"),
        ("y[m, n] = sum(x[k, m] * w[k, n])", (7, 8), (7, 4), "what is summed cannot be halved: 7"),
        ("y[m, n] = sum(x[m, k, l] * w[k, n])", (8, 8, 2), (8, 4), "is summed over that one operand does not have"),
        ("y[m, n] = sum(x[m + k, k] * w[k, n])", (15, 8), (8, 4), "is read at a sum of axes, or twice at one"),
        ("y[m, n] = sum(x[m, k] * w[k, n] * w[k, n])", (8, 8), (8, 4), "it is no sum of products of two"),
        ("y[m, n] = sum(x[m, k] * w[k, n])", (512, 512), (512, 512), "leaves out 7.1 products for each element that"),
    ],
)
def test_what_has_no_halves_is_refused_with_the_reason(text, image, taps, reason):
    x, w = pair(image, taps)
    found = verdict("strassen", nf.expr(text, x=x, w=w), x, w)
    assert not found.ok and reason in found.reason


def test_rows_that_are_looked_up_are_not_halved():
    x, w = pair((2000, 1024), (1024, 1024))
    ids, k = nf.placeholder((2048,), "int32", name="ids"), nf.axis(1024)
    y = nf.compute((2048, 1024), lambda m, n: nf.sum(x[ids[m], k] * w[k, n], axis=k))
    assert "other than linear indices" in str(halved(y.definition))


def test_large_products_are_halved():
    x, w = pair((1024, 768), (768, 3072))
    found = verdict("strassen", nf.expr("y[m, n] = sum(x[m, k] * w[k, n])", x=x, w=w), x, w)
    assert found.ok and found.reason == "leaves out 15.4 products for each element that it moves"


def test_seven_products_are_that_of_matrices_of_two_rows():
    """Of any quarters, in exact numbers; and what is stated of their roundings."""
    left, right, results = (np.array(m, int) for m in (strassen.LEFT, strassen.RIGHT, strassen.RESULTS))
    product = np.einsum("cp,pa,pb->cab", results, left, right)
    i, j, k = np.ogrid[:2, :2, :2]
    expected = np.zeros((4, 4, 4), int)
    expected[2 * i + j, 2 * i + k, 2 * k + j] = 1
    np.testing.assert_array_equal(product, expected)
    assert (abs(results) @ (abs(left).sum(1) * abs(right).sum(1))).max() == 2 * strassen.GROWTH


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["standard_normal", "random"])
def test_roundings_of_halves_are_within_the_stated_multiple(draw):
    """Of the bound of a sum of n terms, each of which is rounded n times, in float32 against float64."""
    x, w = pair((1024, 768), (768, 1000))
    y = nf.expr("y[m, n] = sum(x[m, k] * w[k, n])", x=x, w=w)
    graph = optimize(make_graph([y], [x, w]))
    after, derivation = use(graph, {graph.nodes[-1].definition.digest: "strassen"})
    rng = np.random.default_rng(0)
    a, b = (getattr(rng, draw)(t.shape).astype("float32") for t in (x, w))
    (found,) = nf.compile(list(after.outputs), [x, w])(a, b)
    exact = a.astype("float64") @ b
    bound = 768**2 * 2.0**-24 * abs(a).max() * abs(b).max()
    assert derivation.steps and abs(found - exact).max() <= strassen.GROWTH * bound
    error = np.sqrt(np.square(found - exact).mean() / np.square(exact).mean())
    assert error < 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("taps", [(3, 3), (1, 7), (5, 1), (5, 5), (2, 3)], ids=str)
@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.form is correlation], ids=lambda a: a.name)
def test_roundings_are_within_the_stated_multiple(algorithm, taps):
    """Of the bound of a sum of n terms, n u max|x| max|w| for each result, in float32 against float64."""
    rng = np.random.default_rng(0)
    x, w = pair((2, 24, 14, 13), (16, 24, *taps))
    y = nf.nn.functional.conv2d(x, w, padding=tuple(n // 2 for n in taps))
    g = nf.placeholder(y.shape, name="g")
    graph = optimize(make_graph([y, *nf.vjp(y, [x, w], g)], [x, w, g]))
    after, _ = use(graph, {d: algorithm.name for d, those in alternatives(graph).items() if algorithm in those})
    feeds = {t: rng.standard_normal(t.shape).astype("float32") for t in (x, w, g)}
    count = np.prod(taps)
    sizes = [(w, x, 24 * count), (g, w, 16 * count), (g, x, np.prod([y.shape[n] for n in (0, 2, 3)]))]
    forms = [t.definition for t in graph.nodes if algorithm.legal(t.definition).ok]
    assert len(forms) == 3
    growth = max(map(algorithm.rounding, forms))
    found = nf.compile(list(after.outputs), [x, w, g])(*feeds.values())
    for a, b, (left, right, terms) in zip(found, values(graph, feeds), sizes, strict=True):
        bound = terms * 2.0**-24 * abs(feeds[left]).max() * abs(feeds[right]).max()
        assert abs(a - b).max() <= growth * bound


@pytest.mark.slow
@pytest.mark.parametrize("points", [20, 64, 255])
@pytest.mark.parametrize("blocks", [6, 24])
def test_roundings_of_transforms_are_within_the_stated_multiple(points, blocks):
    """Of the bound of a direct sum, each of whose terms is rounded as often as blocks say; and of what that is where
    every sum rounds each term once. Of numbers whose transforms are as large as they may be too: all of one sign."""
    rng = np.random.default_rng(0)
    x, w = nf.placeholder((12, blocks, points), name="x"), nf.placeholder((14, blocks, points), name="w")
    j, k = nf.axis(blocks, "j"), nf.axis(points, "k")
    y = nf.compute((12, 14, points), lambda b, i, n: nf.sum(x[b, j, k] * w[i, j, (n - k) % points], axis=[j, k]))
    g = nf.placeholder(y.shape, name="g")
    graph = optimize(make_graph([y, *nf.vjp(y, [x, w], g)], [x, w, g]))
    fitting = {d: "fourier" for d, those in alternatives(graph).items() if BY_NAME["fourier"] in those}
    after, _ = use(graph, fitting)
    assert fitting
    compiled = nf.compile(list(after.outputs), [x, w, g])
    growth = max(BY_NAME["fourier"].rounding(t.definition) for t in graph.nodes if t.definition.digest in fitting)
    sizes = [(w, x, blocks * points), (g, w, 14 * points), (g, x, 12 * points)]
    for draw in (rng.standard_normal, rng.random):
        feeds = {t: draw(t.shape).astype("float32") for t in (x, w, g)}
        found = compiled(*feeds.values())
        for a, b, (left, right, terms) in zip(found, values(graph, feeds), sizes, strict=True):
            bound = terms * 2.0**-24 * abs(feeds[left]).max() * abs(feeds[right]).max()
            roundings = min(terms, 512 if terms <= 512 else 1024)
            assert abs(a - b).max() <= min(growth * roundings, 2 * np.sqrt(points) + 3) * bound
