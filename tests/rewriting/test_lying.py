"""What the stages of layouts choose together: no worse than one after the other, by measured times where there are
any."""

import numpy as np
import pytest

import neoflow as nf
from benchmarks.flowing import turned
from neoflow.graph import Packed, is_contraction, make_graph, optimize
from neoflow.graph.laid import plain
from neoflow.nn import functional as F
from neoflow.partition import partition
from neoflow.rewriting import flowing, living, stages
from neoflow.rewriting.flowing import BLOCKED, SWAPPED, nobody
from neoflow.rewriting.judging import Judge, Kernels, estimated, kernels_of_calls
from neoflow.rewriting.lying import JOINT, LAYOUTS, LIVING, MOST, How, lay_all
from neoflow.rewriting.sequence import LYING
from neoflow.trace import Trace
from tests.chance import Chance
from tests.codegen.kernels import TARGET, WIDE
from tests.rewriting import test_flowing, test_layouts, test_living


def always(kernel):
    return True


def chosen(graph, known=nobody, target=WIDE, may_live=always, may_last=always, **options):
    """The graph that the stages choose, the kernels of a call of it, and what is said of each stage."""
    trace = Trace()
    laid, cut = lay_all(graph, trace, How(target, partition, known, may_live, may_last, **options))
    counts = kernels_of_calls(cut or partition(laid), {p for p, _ in laid.updates})
    return laid, counts, {r.name: r for r in trace.records}


def seconds(kernels, each):
    return sum(n * each(kernels.by_digest[digest]) for digest, n in kernels.counts.items())


def few_points():
    """A convolution whose weights are most of its work, and the largest of three neighbours in a row of its result."""
    x, w = nf.placeholder((1, 512, 7, 7), name="x"), nf.parameter((512, 512, 1, 1), name="w")
    y, r = nf.relu(F.conv2d(x, w)), nf.axis(3, "r")
    z = nf.compute((1, 512, 7, 5), lambda b, i, p, q: nf.max(y[b, i, p, q + r], axis=[r]), name="z")
    return optimize(make_graph([z], [x]))


def test_what_one_stage_after_the_other_chooses_worse():
    """Blocks pay by what the weights' packing takes; that `layouts` packs them once anyhow, the first stage is not to
    know, and rows across blocks take longer."""
    graph = few_points()
    _, staged, alone = chosen(graph, joins=False)
    _, plain_, _ = chosen(graph, joins=False, flows=())
    laid, together, said = chosen(graph)
    assert JOINT not in alone and alone[BLOCKED].summary.startswith("1 of 1 streams of activations lie in blocks")
    assert together.counts == plain_.counts != staged.counts
    took = [seconds(k, lambda kernel: estimated(kernel, WIDE)) for k in (staged, together)]
    assert took[1] < 0.97 * took[0]
    told = f"{took[0] * 1e6:.0f} to {took[1] * 1e6:.0f} us by blocked activations, 0 of 1 streams lie so"
    assert said[JOINT].summary == f"1 other choices tried: {told}"
    assert "blocked activations, 0 of 1 streams lie so: yes, the 2 kernels that differ take" in said[JOINT].text()
    assert [t.shape for t in laid.outputs] == [t.shape for t in graph.outputs]


def test_blocks_that_pay_by_themselves_stay():
    """Depthwise convolutions between others gain by blocks what no packing of weights gains."""
    (y,), x = test_flowing.channels()
    graph = optimize(make_graph([y], [x]))
    _, staged, _ = chosen(graph, joins=False)
    _, together, said = chosen(graph)
    assert staged.counts == together.counts and "lie in blocks" in said[BLOCKED].summary


@pytest.mark.parametrize(("took", "reason"), [(1, None), (3, "7 us, not 8"), (None, "")])
def test_a_measured_kernel_gives_way_to_a_guess_that_is_much_less(took, reason):
    """Of two kernels that took 4 us each, one took less with what it reads swapped; what the other would take is the
    estimate, the same as it was, scaled by what that took: 4 us."""
    (y,), x = turned()
    graph = optimize(make_graph([y], [x]))
    _, staged, _ = chosen(graph, joins=False)
    _, usual, _ = chosen(graph, flows=())
    judge, each = Judge(WIDE, nobody), dict[str, list[str]]()
    for d, kernel in {**usual.by_digest, **staged.by_digest}.items():
        each.setdefault(judge.kind(kernel), []).append(d)
    assert [len(d) for d in each.values()] == [2, 2]
    assert len({estimated(staged.by_digest.get(d) or usual.by_digest[d], WIDE) for d in each["map"]}) == 1
    times = dict.fromkeys(usual.by_digest, 4e-6)
    if took is not None:
        times[next(d for d in each["reduction"] if d in staged.by_digest)] = took * 1e-6
    _, found, said = chosen(graph, lambda kernel: times.get(kernel.digest))
    assert found.counts == (usual if reason is not None else staged).counts
    if reason == "":
        assert said[JOINT].summary == "1 other choices tried, none is better"
    elif reason is not None:
        told = f"take {reason}, by measured times and scaled estimates, and that is not 20% less"
        assert told in said[JOINT].text()


def test_a_kernel_that_is_slow_is_slow_in_any_order():
    """That a kernel took ten times as long as others of its template makes no other order of it faster."""
    x = [nf.placeholder((64, n), name=f"x{n}") for n in (64, 96, 128, 160)]
    kernels = [kernels_of_calls(partition(make_graph([nf.tanh(t)], [t])), ()) for t in x]
    slow, other, *rest = (next(iter(k.by_digest.values())) for k in kernels)
    took = {k.digest: estimated(k, WIDE) for k in rest} | {slow.digest: 10 * estimated(slow, WIDE)}
    judge = Judge(WIDE, lambda kernel: took.get(kernel.digest))
    judge.learn([slow, *rest])
    assert judge(other) < 0.8 * judge(slow)
    verdict = judge.prefers(kernels[1], kernels[0])
    assert not verdict.ok and verdict.reason.endswith("as these alone scale their estimates")


@pytest.mark.parametrize("faster", [True, False])
def test_of_measured_kernels_the_fastest_are_taken(faster):
    """Even where the estimate says otherwise: what it would rather have was measured too."""
    (y,), x = turned()
    graph = optimize(make_graph([y], [x]))
    _, staged, _ = chosen(graph, joins=False)
    _, usual, _ = chosen(graph, flows=())
    times = dict.fromkeys(usual.by_digest, 2e-6) | dict.fromkeys(staged.by_digest, 1e-6 if faster else 9e-6)
    _, found, _ = chosen(graph, lambda kernel: times.get(kernel.digest))
    assert found.counts == (staged if faster else usual).counts


def test_each_parameter_lies_as_its_measured_kernels_are_fastest(monkeypatch):
    """Fused as they are in the program, and the choice is of each, not of all or none."""
    monkeypatch.setattr(living, "CLEARLY", 3.0)
    graph = test_living.graph_of(test_living.Network(first=96))

    def kernels(least, known=nobody, **options):
        monkeypatch.setattr(living, "LEAST", least)
        return chosen(graph, known, TARGET, flows=(), **options)[1]

    none, one, both = (kernels(least, joins=False) for least in (1 << 30, 96 * 128 * 4, 0))
    assert len({frozenset(k.counts) for k in (none, one, both)}) == 3
    times = dict.fromkeys(both.by_digest, 5e-5) | dict.fromkeys(one.by_digest, 5e-6) | dict.fromkeys(none.counts, 1e-5)
    assert kernels(0, lambda kernel: times.get(kernel.digest), may_live=lambda _: False).counts == one.counts
    assert kernels(0, lambda kernel: times.get(kernel.digest)).counts == one.counts


def test_a_parameter_lives_as_measured_kernels_read_it_fastest(monkeypatch):
    """That those were measured which read it as it is written was all that counted once."""
    monkeypatch.setattr(living, "CLEARLY", 3.0)
    monkeypatch.setattr(living, "LEAST", 0)
    graph = test_living.graph_of(test_living.Network())

    def packed(known, may_live):
        laid, kernels, said = chosen(graph, known, TARGET, may_live, flows=())
        return any(isinstance(p, Packed) for p, _ in laid.updates), kernels, said

    is_packed, lying, _ = packed(nobody, always)
    stays, usual, _ = packed(nobody, lambda kernel: False)
    assert is_packed and not stays

    def known(kernel, other):
        return 1e-5 if kernel.digest in usual.by_digest else other if kernel.digest in lying.by_digest else None

    def plain_was_measured(kernel):
        return kernel.digest not in usual.by_digest

    is_packed, _, said = packed(lambda k: known(k, 5e-6), plain_was_measured)
    assert is_packed and "packed parameters, 2 of 2 parameters live packed: yes" in said[JOINT].text()
    assert "but its kernels were measured as they are" in said[LIVING].text()
    is_packed, _, said = packed(lambda k: known(k, 5e-5), plain_was_measured)
    assert not is_packed and "2 of 2 parameters live packed: no, the " in said[JOINT].text()


def test_what_stays_is_packed_once_where_that_was_measured_to_be_faster():
    _, x, y = test_layouts.inferring()
    graph = optimize(make_graph([y], [x]))
    _, usual, _ = chosen(graph, may_last=lambda kernel: False)
    _, packed, _ = chosen(graph)
    assert usual.counts != packed.counts

    def found(faster):
        times = dict.fromkeys(usual.by_digest, 2e-6) | dict.fromkeys(packed.by_digest, 1e-6 if faster else 3e-6)
        return chosen(graph, lambda k: times.get(k.digest), may_last=lambda k: k.digest not in usual.by_digest)[1]

    assert found(True).counts == packed.counts and found(False).counts == usual.counts


def test_estimates_are_scaled_by_what_kernels_of_their_template_took():
    graph = few_points()
    kernels = [k for k in chosen(graph)[1].by_digest.values()]
    first = next(k for k in kernels if any(is_contraction(n.definition) for n in k.nodes))
    other = next(k for k in kernels if k is not first)
    judge = Judge(WIDE, lambda kernel: 3 * estimated(first, WIDE) if kernel is first else None)
    assert judge(other) == estimated(other, WIDE)
    judge.learn(kernels)
    assert judge(first) == 3 * estimated(first, WIDE)
    assert judge(other) == pytest.approx(3 * estimated(other, WIDE)), "nothing is known of its own template"


def test_kernels_that_differ_are_compared_and_equal_ones_refused():
    kernels = chosen(few_points())[1]
    verdict = Judge(WIDE, nobody).prefers(kernels, kernels)
    assert not verdict.ok and verdict.reason == "its kernels are the same"
    fewer = Kernels(kernels.counts - kernels.counts, {})
    assert Judge(WIDE, nobody).prefers(fewer, kernels).ok and not Judge(WIDE, nobody).prefers(kernels, fewer).ok


# ------------------------------------------------------------------------------------------------------- the law


def learning(seed):
    """A network of sizes that panels divide, some of its steps written out, and an optimizer."""
    make = Chance(np.random.default_rng(seed))
    rows, sizes = make.between(2, 5), [make.pick((32, 48, 64)) for _ in range(3)]
    x = nf.placeholder((rows, sizes[0]), name="x")
    w, v, u = (
        nf.parameter(shape, name=name)
        for name, shape in (("w", sizes[:2]), ("v", (sizes[1], sizes[1])), ("u", sizes[1:]))
    )
    h = nf.tanh(x @ w)
    for _ in range(make.between(1, 4)):
        h = nf.tanh(h @ v)
    loss, those = nf.mean((h @ u) ** 2), [w, v, u]
    optimizer = make.pick((nf.optim.SGD(lr=0.1), nf.optim.Adam(lr=0.1)))
    graph = optimize(make_graph([loss], [x], optimizer.updates(those, nf.grad(loss, those))))
    return graph, {p: make.rng.uniform(0.1, 1, p.shape).astype(p.dtype) for p in (x, *graph.parameters)}


def times_of(seed):
    """Of which kernels what is known: of none, a half, or all."""
    share = (0.5, 1.0, 0.0)[seed % 3]

    def known(kernel):
        rng = np.random.default_rng([seed, int(kernel.digest[:8], 16)])
        return float(rng.uniform(1e-6, 1e-5)) if rng.random() < share else None

    return (nobody, known)[share > 0]


def law(seed):
    """How many other choices were taken: values stay, and the kernels never take longer than one stage after the other
    leaves them."""
    graph, feeds = (learning if seed % 2 else test_flowing.network)(seed)
    known = times_of(seed // 2)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (flowing, "CLEARLY", 30.0),
            (flowing, "ROOM", 30.0),
            (flowing, "LEAST", 0),
            (living, "CLEARLY", 3.0),
            (living, "LEAST", 0),
        ):
            patch.setattr(module, name, value)
        may = (lambda kernel: known(kernel) is None) if known is not nobody else always
        laid, kernels, said = chosen(graph, known, TARGET, may, may)
        _, staged, _ = chosen(graph, known, TARGET, may, may, joins=False)
    laid.check()
    packed = {p: p.layout.pack(feeds[plain(p)]) if isinstance(p, Packed) else feeds[p] for p in laid.parameters}
    values = nf.evaluate(list(graph.roots), feeds, dtype="float64")
    found = nf.evaluate(list(laid.roots), {**feeds, **packed}, dtype="float64")
    lying = [None] * len(graph.outputs) + [p.layout if isinstance(p, Packed) else None for p, _ in laid.updates]
    for a, b, layout in zip(values, found, lying, strict=True):
        np.testing.assert_allclose(b if layout is None else layout.unpack(b), a, rtol=1e-8, atol=1e-8)
    if JOINT not in said:
        return 0
    text = said[JOINT].text()
    tried = [line for line in text.splitlines() if ": yes, " in line or ": no, " in line]
    assert len(tried) <= MOST + 1
    if known is not nobody and (seed // 2) % 3 == 1:
        assert seconds(kernels, known) <= seconds(staged, known)
    return sum(": yes, " in line for line in tried)


def test_values_stay_and_no_choice_takes_longer():
    assert sum(map(law, (3, 5, 7, 14, 15, 20))) >= 4


@pytest.mark.slow
def test_values_stay_in_many_programs():
    assert sum(map(law, range(100, 220))) >= 30


def test_the_same_again_is_the_same():
    for seed in (3, 4):
        draw = learning if seed % 2 else test_flowing.network
        first, second = (chosen(draw(seed)[0], times_of(seed // 2), TARGET)[0] for _ in range(2))
        assert first.digest == second.digest


def test_whoever_leaves_it_out_gets_what_the_stages_choose(monkeypatch):
    """By name, as any transformation."""

    def records():
        trace = Trace()
        graph, _ = stages(few_points(), trace, WIDE, may_last=always, may_live=always, known=nobody)
        return graph.digest, [r.name for r in trace.records if r.name in LYING]

    together, names = records()
    assert names == [SWAPPED, BLOCKED, LIVING, LAYOUTS, JOINT]
    monkeypatch.setenv("NEOFLOW_WITHOUT", JOINT)
    alone, names = records()
    assert names == [SWAPPED, BLOCKED, LIVING, LAYOUTS] and alone != together
