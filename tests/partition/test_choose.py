"""What speaks against a legal fusion: every objection with its sentence, beside what it does not concern."""

from functools import partial, reduce

import pytest

import neoflow as nf
from neoflow.expr.tensor import Placeholder, topological
from neoflow.graph import make_graph
from neoflow.partition import choose, inlined, partition
from neoflow.partition.choose import LOSES, OBJECTIONS, object_for_gpu, object_to
from neoflow.partition.rules import EPILOGUES, INLINING, ROW_KERNELS, SIBLINGS

X, Y = nf.placeholder((8, 64), name="x"), nf.placeholder((8, 64), name="y")
W = nf.placeholder((64, 64), name="w")
K, R, R2 = nf.axis(64, "k"), nf.axis(8, "r"), nf.axis(40, "s")


def compute(name, body, shape=(8, 64)):
    return nf.compute(shape, body, name=name)


def product(name, x=X, w=W):
    return compute(name, lambda i, j: nf.sum(x[i, K] * w[K, j], axis=[K]))


def reasons(outputs, rule=INLINING, keep=(), object_to=object_to):
    """Subject to sentence of what a rule did not do; `keep`: names of computes that stay in memory."""

    def chosen(name, facts, state, candidate):
        if name == INLINING.name and candidate.name in keep:
            return "so chosen"
        return object_to(name, facts, state, candidate)

    inputs = [t for t in topological(outputs) if isinstance(t, Placeholder)]
    found = partition(make_graph(outputs, inputs), choose=chosen)
    return {d.subject: d.verdict.reason for d in found.decisions if d.rule == rule.name and not d.verdict.ok}


def elementwise(cost):
    return compute("a", lambda i, j: nf.exp(X[i, j]) if cost == 10 else X[i, j] + 1.0)


def test_what_a_contraction_reads_is_stored():
    a, part = elementwise(1), compute("part", lambda i, j: X[i, (j + 32) % 64])
    assert reasons([product("s", a)])["a[8, 64]"] == "s is a contraction that reads each element many times"
    assert "part[8, 64]" not in reasons([product("s", part)])


def test_padding_of_a_depthwise_convolution_is_a_condition_of_its_loads():
    """Where windows of three by three share no side; larger ones, those of channels and a GPU's read a padded copy."""
    x = nf.placeholder((2, 6, 12, 12), name="x")
    w, v = nf.placeholder((6, 1, 3, 3), name="w"), nf.placeholder((6, 1, 5, 5), name="v")
    pad = "pad[2, 6, 14, 14]"
    y = nf.nn.functional.depthwise_conv2d(x, w, padding=1)
    assert pad not in reasons([y])
    assert "reads each element many times" in reasons([y], object_to=object_for_gpu)[pad]
    assert "reads each element" in reasons([nf.nn.functional.depthwise_conv2d(x, v, padding=2)])["pad[2, 6, 16, 16]"]
    full = nf.nn.functional.conv2d(x, nf.placeholder((6, 6, 3, 3), name="u"), padding=1)
    assert "reads each element many times" in reasons([full])[pad]


def test_what_lies_as_a_contraction_reads_it_is_stored():
    packed = compute("p", lambda q, k, r: W[k, 16 * q + r], (4, 64, 16))
    blocks = compute("s", lambda i, j: nf.sum(X[i, K] * packed[j // 16, K, j % 16], axis=[K]))
    sentence = "s is a contraction that reads it in the order in which it lies"
    assert reasons([blocks])["p[4, 64, 16]"] == sentence
    turned = compute("t", lambda j, k: W[k, j], (64, 64))
    assert "t[64, 64]" not in reasons([compute("s", lambda i, j: nf.sum(X[i, K] * turned[j, K], axis=[K]))])


@pytest.mark.parametrize("rows, is_stored", [(128, True), (8, False)])
def test_what_cannot_be_turned_in_registers_is_turned_by_a_kernel(rows, is_stored):
    """Tiles whose channels lie last, as minimal filtering leaves them: (rows, 64) in memory, read (64, rows)."""
    tiles = nf.placeholder((rows, 64), name="tiles")
    other = nf.placeholder((64, rows), name="other")
    moved = compute("moved", lambda c, t: tiles[t, c], (64, rows))
    biased = compute("biased", lambda c, t: nf.relu(moved[c, t] + 1.0), (64, rows))
    window = nf.axis(3, "window")
    joined = nf.concat([biased, other], axis=0)
    pooled = compute("pooled", lambda c, t: nf.max(biased[c, t + window], axis=[window]), (64, rows - 2))
    weights = nf.placeholder((64, 64), name="w")
    product_ = compute("p", lambda c, t: nf.sum(weights[c, K] * other[K, t], axis=[K]), (64, rows))
    rides = compute("rides", lambda c, t: product_[c, t] + moved[c, t], (64, rows))
    subject = f"moved[64, {rows}]"
    for root, sentence in (
        (joined, "reads it under a condition, where squares of it cannot be turned in registers"),
        (pooled, "pooled goes through windows of it, and would go across memory in each of them"),
        (rides, "rides rides along in p, whose tiles would go across memory for it"),
    ):
        found = reasons([root]).get(subject, "")
        assert found.endswith(sentence) if is_stored else not found
    assert subject not in reasons([biased])  # a map turns it


def test_what_tensor_cores_multiply_is_converted_where_it_is_loaded():
    """By a GPU alone: a CPU multiplies float32, and packs what was converted once."""
    h, g = (nf.placeholder((64, 64), "float16", name=n) for n in "hg")
    a, b = nf.cast(h, "float32"), nf.relu(nf.cast(g, "float32"))
    sentence = "s is a contraction that reads each element many times"

    def stored(left, right, choose):
        found = reasons([product("s", left, right)], object_to=choose).items()
        return {name.split("[")[0] for name, reason in found if reason == sentence}

    assert stored(a, b, object_to) == {"cast", "relu"} and not stored(a, b, object_for_gpu)
    other = nf.cast(nf.placeholder((64, 64), "bfloat16", name="o"), "float32")
    for right, names in ((W, {"cast"}), (b * 2.0, {"cast", "mul"}), (other, {"cast"})):  # no product is float16
        assert stored(a, right, object_for_gpu) == stored(a, right, object_to) == names


@pytest.mark.parametrize(("cost", "most"), [(1, 8), (10, 1)])
def test_what_is_read_often_is_stored(cost, most):
    a = elementwise(cost)

    def windows(n):
        return compute("z", lambda i, j, q: a[i, (j + q) % 64], (8, 64, n))

    assert "a[8, 64]" not in reasons([windows(most)])
    sentence = f"z reads each element {2 * most:.1f} times, at {cost} operations a time"
    assert reasons([windows(2 * most)])["a[8, 64]"] == sentence


def test_costly_work_of_several_readers_is_stored():
    a, b = elementwise(10), elementwise(1)
    readers = [
        compute(name, lambda i, j, t=t: t[i, j] * Y[i, j]) for name, t in (("p", a), ("q", a), ("u", b), ("v", b))
    ]
    found = reasons(readers)
    assert [r for s, r in found.items() if s == "a[8, 64]"] == ["2 readers would each recompute its 10 operations"]


def test_what_reads_more_than_it_has_is_stored_for_several_readers():
    a = compute("a", lambda i, j: X[i, j] + Y[i, j])
    p, q = (compute(name, lambda i, j: a[i, j] * 2.0) for name in "pq")
    assert reasons([p, q])["a[8, 64]"] == "2 readers would each read 4096 bytes instead of 2048"
    assert "a[8, 64]" not in reasons([p])


def test_what_one_kernel_computes_once_is_recomputed_for_all_its_readers():
    """Both readers are part of one kernel, at its own point: work and bytes are not repeated."""
    for a in (elementwise(10), compute("a", lambda i, j: X[i, j] + Y[i, j])):
        p, q = (compute(name, lambda i, j, a=a: a[i, j] * 2.0) for name in "pq")
        assert "a[8, 64]" not in reasons([compute("z", lambda i, j, p=p, q=q: p[i, j] * q[i, j])])
        elsewhere = compute("z", lambda i, j, p=p, q=q: p[i, j] * q[i, 63 - j])
        assert "a[8, 64]" in reasons([elsewhere])


def test_what_rides_along_in_a_contraction_is_not_computed_again_in_windows():
    window = nf.axis(3, "window")
    for source, is_stored in ((product("s"), True), (X, False)):
        biased = compute("b", lambda i, j, s=source: s[i, j] + Y[i, j])
        active = compute("a", lambda i, j, b=biased: nf.relu(b[i, j]))
        pooled = compute("z", lambda i, j, a=active: nf.max(a[i, j + window], axis=[window]), (8, 62))
        found = reasons([pooled]).get("a[8, 64]")
        assert found == ("it rides along in s, and z would compute it in windows" if is_stored else None)
        total = compute("z", lambda i, a=active: nf.sum(a[i, K], axis=[K]), (8,))
        assert "a[8, 64]" not in reasons([total])  # each element once


def test_a_sum_takes_the_place_of_its_contraction():
    s, t = product("s"), product("t", Y)
    a = compute("a", lambda i, j: s[i, j] + t[i, j])
    found = reasons([compute("z", lambda i, j: a[i, j] * 2.0)])
    assert found["a[8, 64]"] == "it takes the place of s, which it alone reads"
    alone = compute("a", lambda i, j: s[i, j] + 1.0)
    assert "a[8, 64]" not in reasons([compute("z", lambda i, j: alone[i, j] * 2.0)])


def test_what_picks_elements_of_something_large_lets_go_of_the_rest():
    """Of 40 rows of 1.25 MiB; of half as much, of a slice, or where nobody else reads it, it is no kernel's concern."""

    def picked(width, index=lambda i, labels: labels[i], others=True):
        x, labels = nf.placeholder((40, width), name="x"), nf.placeholder((40,), "int64", name="labels")
        logits = compute("logits", lambda i, j: x[i, j] * 2.0, (40, width))
        p = compute("p", lambda i: logits[i, index(i, labels)], (40,))
        loss = nf.compute((), lambda: nf.sum(p[R2], axis=[R2]), name="loss")
        rest = [compute("e", lambda i, j: logits[i, j] + 1.0, (40, width))]
        return reasons([loss, *rest] if others else [loss]).get("p[40]")

    assert picked(8192) == "of logits (1310720 bytes) it reads single elements, and lets go of the others"
    assert picked(4096) is picked(8192, others=False) is picked(8192, lambda i, labels: i) is None


def test_a_kernel_has_few_nodes():
    parts = [compute(f"a{n}", lambda i, j, n=n: X[i, j] + float(n)) for n in range(choose.MAX_NODES + 2)]
    total = compute("z", lambda i, j: sum((p[i, j] for p in parts[1:]), parts[0][i, j]))
    found = [s for s, r in reasons([total]).items() if r == "the kernel would have more than 24 nodes"]
    assert len(found) == 2


def chain(steps, body):
    """Computes over the last dimension, each a function of the one before."""
    found = [X]
    for n in range(steps):
        found.append(compute(f"c{n}", lambda i, j, t=found[-1]: body(t, i, j)))
    return found


def test_nodes_are_counted_through_the_whole_chain():
    found = reasons(chain(60, lambda t, i, j: t[i, j] + 1.0)[-1:])
    assert found == {
        "c59[8, 64]": "it is an output of the program",
        "c34[8, 64]": "the kernel would have more than 24 nodes",
        "c9[8, 64]": "the kernel would have more than 24 nodes",
    }


def test_windows_of_windows_are_stored_before_they_are_wide():
    found = reasons(chain(9, lambda t, i, j: t[i, (j + 63) % 64] + t[i, j] + t[i, (j + 1) % 64])[-1:])
    assert found["c4[8, 64]"] == "the kernel of c8 would compute it at 9 points each time"
    assert "c5[8, 64]" not in found and "c3[8, 64]" not in found


def test_a_kernel_has_few_instructions():
    found = reasons(chain(20, lambda t, i, j: nf.tanh(nf.exp(t[i, j])) + 1.0)[-1:])
    assert found["c7[8, 64]"] == "the kernel of c19 would have 273 instructions, 21 of them for this"


def test_what_many_kernels_would_compute_is_stored():
    def readers(count):
        a = compute("a", lambda i, j: X[i, j] + 1.0)
        return [compute(f"z{n}", lambda i, n=n: a[i, n], (8,)) for n in range(count)]

    assert "a[8, 64]" not in reasons(readers(inlined.MAX_COPIES))
    sentence = reasons(readers(inlined.MAX_COPIES + 1))["a[8, 64]"]
    assert sentence == "9 kernels would compute it at 9 points altogether"


def test_a_kernel_stores_few_tensors():
    s = product("s")
    outputs = [compute(f"z{n}", lambda i, j, n=n: s[i, j] + float(n)) for n in range(choose.MAX_OUTPUTS + 1)]
    assert reasons(outputs, EPILOGUES) == {
        "z4[8, 64] with the kernel of s": "the kernel would store more than 4 tensors"
    }


@pytest.mark.parametrize("asked", [1, 3])
def test_two_kernels_together_store_few_tensors(asked):
    a, b = elementwise(10), compute("b", lambda i, j: nf.log(X[i, j]))
    more = [compute(f"a{n}", lambda i, j, n=n: a[i, j] + float(n)) for n in range(asked)]
    last = compute("z", lambda i, j: a[i, j] * b[i, j])
    found = reasons([a, *more, b, last], SIBLINGS)
    assert found == (
        {"z[8, 64] with the kernel of a": "the kernel would store more than 4 tensors"} if asked > 2 else {}
    )


def test_a_kernel_has_few_results():
    chain = [product("s")]
    for n in range(1, choose.MAX_NODES + 2):
        chain.append(compute(f"c{n}", lambda i, j, t=chain[-1]: t[i, j] + 1.0))
    found = reasons(chain[-1:], EPILOGUES, keep={t.name for t in chain})
    assert found["c24[8, 64] with the kernel of s"] == "the kernel has 24 results already"
    assert "c23[8, 64] with the kernel of s" not in found


def sums(lengths):
    """Each of so many terms, the read of the one before it among them."""
    t = X
    for n, length in enumerate(lengths):
        t = compute(f"c{n}", lambda i, j, t=t, length=length: reduce(lambda e, _: e + 0.5, range(length - 1), t[i, j]))
    return t


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([128] * 4, None),
        ([128] * 5, "the kernel would have 640 operations, more than 512"),
        ([64, 192], None),
        ([64, 193], "the kernel would have 257 operations, more than 256, half of them and more in one result"),
    ],
)
def test_kernels_are_not_long(lengths, sentence):
    last = sums(lengths)
    found = reasons([last], EPILOGUES, keep={f"c{n}" for n in range(len(lengths))})
    assert found.get(f"{last.name}[8, 64] with the kernel of c0") == sentence


def softmax(scores, shape):
    k = nf.axis(shape[1], "k")
    top = nf.compute(shape[:1], lambda i: nf.max(scores[i, k], axis=[k]), name="top")
    return nf.compute(shape, lambda i, j: nf.exp(scores[i, j] - top[i]), name="e")


def test_a_contraction_has_loops_of_its_own():
    assert reasons([softmax(product("s"), (8, 64))], ROW_KERNELS)["top[8] with the kernel of s"] == (
        "s contracts: it needs loops of its own"
    )


def test_rows_lie_along_memory():
    columns = compute("s", lambda i: nf.sum(W[K, i], axis=[K]), (64,))
    found = reasons([compute("z", lambda i, j: W[j, i] * columns[i], (64, 64))], ROW_KERNELS)
    assert found["z[64, 64] with the kernel of s"] == "a row would be a column in memory: loops across rows are faster"


@pytest.mark.parametrize(
    ("width", "sentence"),
    [
        (16, "a row has 16 elements: loops across rows are faster"),
        (64, None),
        (20000, None),
        (80000, "what lies between the nodes exceeds 262144 bytes a row"),
    ],
)
def test_rows_are_neither_short_nor_large(width, sentence):
    """Where there is no reward: with it, such rows are one kernel where that saves."""
    x = nf.placeholder((8, width), name="x")
    for without in ((), (LOSES,)):
        found = reasons([softmax(x, (8, width))], ROW_KERNELS, object_to=partial(object_to, besides=without))
        assert found.get(f"e[8, {width}] with the kernel of top") == (sentence if without else None)


def test_a_row_of_a_gpu_fits_its_shared_memory():
    x = nf.placeholder((512, 20000), name="x")
    outputs, subject = [softmax(x, (512, 20000))], "e[512, 20000] with the kernel of top"
    assert subject not in reasons(outputs, ROW_KERNELS)
    found = reasons(outputs, ROW_KERNELS, object_to=object_for_gpu)
    assert found[subject] == "what lies between the nodes exceeds 65536 bytes a row"


@pytest.mark.parametrize(
    ("rows", "width", "sentence"),
    [(1, n, f"threads share the {n} sums of first in each of 1 rows better by themselves") for n in (512, 192)]
    + [(1, 128, None)],
)
def test_threads_share_what_a_vector_times_a_matrix_is(rows, width, sentence):
    """Two layers of one sample: a row kernel of both would be on one thread."""
    k, x, w = nf.axis(width, "k"), nf.placeholder((rows, width), name="x"), nf.placeholder((2, width, width), name="w")
    first = nf.compute((rows, width), lambda i, j: nf.sum(x[i, k] * w[0, k, j], axis=[k]), name="first")
    h = nf.tanh(first)
    second = nf.compute((rows, width), lambda i, j: nf.sum(h[i, k] * w[1, k, j], axis=[k]), name="second")
    found = reasons([second, nf.sum(second, axis=1)], ROW_KERNELS)
    assert next((r for r in found.values() if "threads share" in r), None) == sentence


def test_every_rule_but_views_can_be_objected_to():
    rules = {"inlining", "epilogues", "siblings", "row kernels", "moves", "alongside", "sharing", "riders"}
    assert {o.rule for o in OBJECTIONS} == rules
    assert len({(o.rule, o.name) for o in OBJECTIONS}) == len(OBJECTIONS)


@pytest.mark.parametrize(("rows", "width", "is_one"), [(262144, 16, True), (65536, 17, False), (4096, 16, False)])
def test_short_rows_are_one_kernel_where_that_surely_pays(rows, width, is_one):
    """A row of 16 is a vector, one of 17 begins a second; of few rows all that two kernels share is in a cache."""
    x = nf.placeholder((rows, width), name="x")
    norm = nf.sum(x * x, axis=1, keepdims=True)
    found = reasons([x * nf.sqrt(norm) / (1.0 + norm)], ROW_KERNELS)
    sentence = found.get(f"div[{rows}, {width}] with the kernel of sum", "")
    assert is_one == (not sentence) and (is_one or "and one kernel would take about " in sentence)
