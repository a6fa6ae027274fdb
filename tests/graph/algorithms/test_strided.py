"""Adjoints of strided reads: the equation that is found, what is refused, and how both ways are written."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.ir import Axis
from neoflow.graph import make_graph, optimize
from neoflow.graph.algorithms import BY_NAME, alternatives, strided, use, whole
from neoflow.graph.algorithms.ties import Line
from neoflow.nn import functional as F


def last(root, *inputs):
    """The last contraction of a program, as a whole, behind the passes."""
    return whole(optimize(make_graph([root], list(inputs))).nodes[-1])


def gradient(image=(2, 3, 9, 10), taps=(4, 3, 3, 3), **how):
    """Of an image, as it is behind the passes."""
    x, w = nf.placeholder(image, name="x"), nf.placeholder(taps, name="w")
    y = F.conv2d(x, w, **how)
    g = nf.placeholder(y.shape, name="g")
    return optimize(make_graph(nf.vjp(y, [x], g), [x, w, g]))


@pytest.mark.parametrize(
    ("how", "along_rows", "along_columns"),
    [
        ({"stride": 2, "padding": 1}, "2 p + 1 r = z + 1", "2 p + 1 r = z + 1"),
        ({"stride": (3, 2)}, "3 p + 1 r = z + 0", "2 p + 1 r = z + 0"),
        ({"stride": (2, 1), "padding": (2, 0)}, "2 p + 1 r = z + 2", "1 p + 1 r = z + 0"),
        ({"stride": 2, "dilation": 3, "padding": 2}, "2 p + 3 r = z + 2", "2 p + 3 r = z + 2"),
        ({"stride": 4, "dilation": 2, "padding": 1}, "4 p + 2 r = z + 1", "4 p + 2 r = z + 1"),
    ],
)
def test_the_equation_is_that_of_the_convolution(how, along_rows, along_columns):
    """stride p + dilation r - padding = z, however many residue classes there are and whatever pads the cotangent."""
    form = strided(whole(gradient(**how).nodes[-1]).definition)
    assert [str(line) for line in form.lines] == [along_rows, along_columns]
    assert [line.taps for line in form.lines] == [3, 3] and form.is_split


@pytest.mark.parametrize("step", [1, 2, 3, 6])
@pytest.mark.parametrize("dilation", [-2, 0, 1, 3, 4])
def test_classes_have_all_solutions(step, dilation):
    """Of each residue the taps and the points that a direct search finds."""
    line = Line(Axis(0, 17), 0, 0, step, dilation, 5, 4, 1 if dilation == 0 else 5)
    found = {
        (z, p, r)
        for z in range(17)
        for p in range(4)
        for r in range(line.taps)
        if step * p + dilation * r == z + line.offset
    }
    assert {*map(tuple, line.solutions.tolist())} == found
    by_class = {(z, line.point(z % step, r) + z // step, r) for z in range(17) for r in line.taps_of(z % step)}
    assert {(z, p, r) for z, p, r in by_class if 0 <= p < 4} == found
    reached = [z + line.offset - dilation * r for z in range(17) for r in range(line.taps)]
    assert line.reach == (min(reached), max(reached))


def by_hand(index, holds, extent=18, taps=3, points=9):
    """sum[c, r](x[b, c, index] * w[c, o, r]) where something holds of z and r."""
    x, w = nf.placeholder((2, 5, points), name="x"), nf.placeholder((5, 7, taps), name="w")
    c, r = nf.axis(5, "c"), nf.axis(taps, "r")

    def body(b, o, z):
        return nf.sum(nf.select(holds(z, r), x[b, c, index(z, r)] * w[c, o, r], 0.0), axis=[c, r])

    return last(nf.compute((2, 7, extent), body), x, w).definition


def divides(z, r):
    return nf.equal((z - r) % 2, 0) & (z >= r) & (z - r < 18)


def test_conditions_that_say_divisibility_are_an_adjoint():
    form = strided(by_hand(lambda z, r: (z - r) // 2, divides))
    assert [str(line) for line in form.lines] == ["2 p + 1 r = z + 0"] and not form.is_split
    assert BY_NAME["residues"].legal(by_hand(lambda z, r: (z - r) // 2, divides)).reason == (
        "2 residue classes of a step of 2"
    )


@pytest.mark.parametrize(
    ("index", "holds", "reason"),
    [
        (lambda z, r: z - r, lambda z, r: (z >= r) & (z - r < 9), "no operand is read at every other element"),
        (lambda z, r: (z - r) // 2, lambda z, r: (z >= r) & (z - r < 18), "is tied to what is read by no equation"),
        (lambda z, r: (z - r) // 2, lambda z, r: divides(z, r) & (z > 4), "it is no sum over all p and r with 2 p"),
        (lambda z, r: (z - r) // 2, lambda z, r: divides(z, r) & (r > 0), "it is no sum over all p and r with 2 p"),
        (lambda z, r: (z - r) // 2, lambda z, r: nf.equal(r % 2, 0) & (z >= r), "is tied to what is read by no eq"),
        (lambda z, r: (z * z - r) // 2 % 9, divides, "goes along no dimension of an operand"),
        (lambda z, r: (z + r) % 9 // 2, lambda z, r: z >= 0, "goes along no dimension of an operand"),
    ],
)
def test_what_no_equation_says_is_refused(index, holds, reason):
    """Stride 1, guards that are no divisibility or leave out what it allows, indices that are not affine."""
    assert reason in str(strided(by_hand(index, holds)))


def test_a_class_that_is_zero_must_have_no_taps():
    found = strided(by_hand(lambda z, r: (z - r) // 2, lambda z, r: divides(z, r) & (z % 4 < 3)))
    assert found == "a residue class is zero that has taps"


def mixed(body):
    """A sum over channels c and taps r of 5 x 5 channels, in any form."""
    x, w = nf.placeholder((2, 10, 9), name="x"), nf.placeholder((5, 5, 2), name="w")
    c, r = nf.axis(5, "c"), nf.axis(2, "r")
    return nf.compute((2, 5, 18), lambda b, o, z: body(x, w, c, r, b, o, z)).definition


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            lambda x, w, c, r, b, o, z: nf.sum(
                nf.select(divides(z, r) & (c < 3), x[b, c, (z - r) // 2] * w[c, o, r], 0.0), axis=[c, r]
            ),
            "a condition goes along no axis of the result",
        ),
        (
            lambda x, w, c, r, b, o, z: nf.sum(
                nf.select(divides(z, r) & (o < 3), x[b, c, (z - r) // 2] * w[c, o, r], 0.0), axis=[c, r]
            ),
            "an axis of the result goes along no dimension of an operand, or along several",
        ),
        (
            lambda x, w, c, r, b, o, z: nf.sum(
                nf.select(divides(z, r), x[b, 2 * c, (z - r) // 2] * w[c, o, r], 0.0), axis=[c, r]
            ),
            "an operand is read at other than axes beside its lines",
        ),
        (
            lambda x, w, c, r, b, o, z: nf.select(
                nf.equal(z % 2, 0),
                nf.sum(x[b, c, z // 2] * w[c, o, 0], axis=c),
                nf.sum(x[b, c, z // 2] * w[o, c, 1], axis=c),
            ),
            "its residue classes differ in more than what they read along axes of the result",
        ),
        (
            lambda x, w, c, r, b, o, z: nf.select(
                nf.equal(z % 2, 0), nf.sum(x[b, c, z // 2] * w[c, o, 0], axis=c), x[b, o, z // 2]
            ),
            "it is no sum of products of two",
        ),
        (
            lambda x, w, c, r, b, o, z: nf.select(
                nf.equal(z % 2, 0), nf.sum(x[b, c, z // 2] * w[c, o, 0], axis=c), 1.0
            ),
            "it is no sum of products of two",
        ),
    ],
)
def test_classes_that_are_not_of_one_sum_are_refused(body, reason):
    assert strided(mixed(body)) == reason


def test_classes_written_by_hand_are_one_sum():
    """Even results have the first tap, odd ones the second."""

    def body(x, w, c, r, b, o, z):
        even, odd = (nf.sum(x[b, c, z // 2] * w[c, o, tap], axis=c) for tap in (0, 1))
        return nf.select(nf.equal(z % 2, 0), even, odd)

    form = strided(mixed(body))
    assert [str(line) for line in form.lines] == ["2 p + 1 r = z + 0"] and form.is_split


def test_a_tap_that_conditions_alone_give_counts():
    """Of a step beyond the taps each class has one or none, which only its condition tells."""
    form = strided(by_hand(lambda z, r: (z - r) // 9, lambda z, r: nf.equal((z - r) % 9, 0) & (z >= r)))
    assert [str(line) for line in form.lines] == ["9 p + 1 r = z + 0"]


def test_what_depends_on_data_is_refused():
    x, w = nf.placeholder((2, 5, 9), name="x"), nf.placeholder((5, 7, 3), name="w")
    ids, c = nf.placeholder((18,), "int32", name="ids"), nf.axis(5, "c")
    y = nf.compute((2, 7, 18), lambda b, o, z: nf.sum(x[b, c, ids[z] // 2] * w[c, o, z % 3], axis=c))
    assert strided(y.definition) == "what it reads depends on data"


def test_steps_that_leave_a_class_for_each_element_are_too_many():
    graph = gradient((1, 3, 40, 40), (2, 3, 12, 12), stride=12)
    assert strided(graph.nodes[-1].definition) == "it has 144 residue classes, 64 at most"


def test_of_few_points_no_remainders_are_left():
    """Autodiff sums over the points where these are fewer than taps of a class: no residue tells them apart."""
    assert strided(gradient((2, 3, 6, 6), stride=2).nodes[-1].definition) == "no operand is read at every other element"


def test_maxima_and_moves_are_none():
    """What is laid side by side of other than products stays what it is."""
    x = nf.placeholder((2, 3, 8, 8), name="x")
    y = F.max_pool(x, 3, 2, 1)
    g = nf.placeholder(y.shape, name="g")
    graph = optimize(make_graph(nf.vjp(y, [x], g), [x, g]))
    assert all(whole(t).compute is t for t in graph.nodes)
    moved = F.upsample(x, 2) if hasattr(F, "upsample") else nf.reshape(x, (2, 3, 16, 4))
    assert all(whole(t).compute is t for t in optimize(make_graph([moved], [x])).nodes)


def test_what_is_split_as_it_is_written_is_not_split_again():
    definition = whole(gradient(stride=2, padding=1).nodes[-1]).definition
    assert BY_NAME["residues"].legal(definition).reason == "it is split by residues as it is written"
    assert (
        BY_NAME["zeros"].legal(definition).reason == "one contraction of 4.45 times its products, the others with zeros"
    )


def test_points_far_apart_are_too_large():
    graph = gradient((4, 3, 448, 448), (1024, 3, 4, 4), stride=4)
    verdict = BY_NAME["zeros"].legal(whole(graph.nodes[-1]).definition)
    assert not verdict.ok and "of 268435456 at most" in verdict.reason


def test_zeros_lie_between_the_points():
    """One contraction without strides over the cotangent, whose points are apart."""
    graph = gradient((1, 2, 7, 7), (3, 2, 3, 3), stride=2)
    (digest,) = [d for d, those in alternatives(graph).items() if BY_NAME["zeros"] in those]
    after, derivation = use(graph, {digest: "zeros"})
    spread, product = after.nodes
    assert [s.name for s in derivation.steps] == ["d_x"] and spread.name == "g_spread"
    assert spread.shape == (1, 3, 9, 9)
    assert " // " not in str(product.definition) and " % " not in str(product.definition)
    g = np.arange(1, 28, dtype="float32").reshape(1, 3, 3, 3)
    (value,) = nf.evaluate([spread], {graph.inputs[2]: g})
    expected = np.zeros((1, 3, 9, 9))
    expected[:, :, 2:8:2, 2:8:2] = g
    np.testing.assert_array_equal(value, expected)


def test_a_class_has_its_taps_alone():
    """Taps that do not overlap: a product of matrices each, the image laid together of these."""
    graph = gradient((2, 3, 6, 6), (4, 3, 2, 2), stride=2)
    after, _ = use(graph, {graph.nodes[-1].definition.digest: "residues"})
    *parts, result = after.nodes
    assert [p.name for p in parts] == ["d_x_00", "d_x_01", "d_x_10", "d_x_11"]
    assert all(" % " not in str(p.definition) and p.shape == (2, 3, 3, 3) for p in parts)
    assert result.inputs == tuple(parts)


def test_a_whole_is_computed_otherwise_though_its_parts_could_be_too():
    """The parts of a gradient are correlations, each of which im2col fits; where both are chosen the whole counts."""
    graph = gradient((1, 8, 12, 12), (8, 8, 5, 5), stride=2, padding=2)
    fitting = alternatives(graph)
    chosen = {d: "zeros" if BY_NAME["zeros"] in those else "im2col" for d, those in fitting.items()}
    assert set(chosen.values()) == {"zeros", "im2col"}
    after, derivation = use(graph, chosen)
    assert [s.rewrite.name for s in derivation.steps] == ["zeros"] and len(after.nodes) == 2
    assert derivation.replay(graph).digest == after.digest


def test_wholes_and_others_are_one_derivation():
    """Two convolutions, of which one is written as products of matrices and the gradient of the other with zeros."""
    x, v = nf.placeholder((1, 3, 9, 9), name="x"), nf.placeholder((2, 3, 3, 3), name="v")
    y, z = F.conv2d(x, v, padding=1), F.conv2d(x, v, stride=2, padding=1)
    g = nf.placeholder(z.shape, name="g")
    graph = optimize(make_graph([y, *nf.vjp(z, [x], g)], [x, v, g]))
    fitting, name = alternatives(graph), "im2col"
    of_value = next(t.definition.digest for t in graph.nodes if t.name == "conv2d")
    chosen = {of_value: name, next(d for d, those in fitting.items() if BY_NAME["zeros"] in those): "zeros"}
    after, derivation = use(graph, chosen)
    assert [s.rewrite.name for s in derivation.steps] == ["zeros", name]
    assert derivation.stopped == "nothing is left to rewrite"
    assert derivation.replay(graph).digest == after.digest
