"""Parameters that live packed: nobody who reads or writes their values sees it; who may, who does not, and why."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Packed, make_graph, optimize
from neoflow.loops import default_schedule
from neoflow.loops.schedule import schedule_of
from neoflow.partition import partition
from neoflow.pipeline import adopt, compile_program
from neoflow.rewriting import living
from neoflow.rewriting.living import live_packed
from neoflow.runtime.function import RETURNS
from neoflow.runtime.store import STORE
from neoflow.tune.trial import Trial
from neoflow.tuning.kept import records_in
from tests.codegen.kernels import TARGET

OFF = "packed parameters"


@pytest.fixture
def wanted(monkeypatch):
    """Whatever is legal is thought to pay."""
    monkeypatch.setattr(living, "CLEARLY", 3.0)
    monkeypatch.setattr(living, "LEAST", 0)


class Network:
    """Two layers, trained by Adam; the same numbers each time."""

    def __init__(self, batch=32, first=64, second=128, optimizer=None):
        self.x, self.labels = nf.placeholder((batch, first), name="x"), nf.placeholder((batch,), "int64", name="labels")
        self.w = nf.parameter((first, second), name="w", init=lambda shape, rng: 0.1 * rng.standard_normal(shape))
        self.v = nf.parameter((second, 64), name="v", init=lambda shape, rng: 0.1 * rng.standard_normal(shape))
        self.scores = nf.tanh(self.x @ self.w) @ self.v
        self.loss = nf.nn.functional.cross_entropy(self.scores, self.labels)
        self.optimizer = optimizer or nf.optim.Adam(lr=0.01, weight_decay=0.1)
        self.parameters = [self.w, self.v]

    def updates(self):
        return self.optimizer.updates(self.parameters, nf.grad(self.loss, self.parameters))

    def step(self, **options):
        self.changed = self.updates()
        return nf.compile([self.loss], [self.x, self.labels], self.changed, **options)

    def trainer(self, **options):
        return nf.Trainer(self.loss, self.parameters, inputs=[self.x, self.labels], optimizer=self.optimizer, **options)


def batch(seed, rows=32, columns=64):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, columns)).astype(np.float32), rng.integers(0, 64, rows)


def packed_of(function):
    return {p.of for p in function.compiled.graph.parameters if isinstance(p, Packed)}


def graph_of(network):
    return optimize(make_graph([network.loss], [network.x, network.labels], network.updates()))


def test_what_optimizers_keep_lives_as_the_parameter(wanted):
    network = Network()
    found = live_packed(graph_of(network), TARGET, partition, lambda kernel: True)
    lying = [p for p, _ in found.graph.updates if isinstance(p, Packed)]
    assert sorted(p.of.name for p in lying) == ["v", "v.m", "v.v", "w", "w.m", "w.v"]
    assert len({p.layout for p in lying if p.of.name.startswith("w")}) == 1
    assert found.summary.startswith("2 of 2 parameters live packed: their kernels from")
    assert "w: lives as [" in str(found) and str(found).startswith("the least of all choices")


def test_what_does_not_pay_clearly_stays(monkeypatch):
    monkeypatch.setattr(living, "CLEARLY", 0.01)
    monkeypatch.setattr(living, "LEAST", 0)
    found = live_packed(graph := graph_of(Network()), TARGET, partition, lambda kernel: True)
    assert found.graph is graph and "none lives packed" in found.summary
    assert "w: its kernels take no less in" in str(found)


def test_what_is_small_is_packed_from_cache_to_cache():
    found = live_packed(graph := graph_of(Network()), TARGET, partition, lambda kernel: True)
    assert found.graph is graph and "w: its 32768 bytes are packed from cache to cache" in str(found)


def test_what_was_measured_stays(wanted):
    found = live_packed(graph := graph_of(Network()), TARGET, partition, lambda kernel: False)
    assert found.graph is graph and "but its kernels were measured as they are" in str(found)


def test_what_no_panel_divides_stays(wanted):
    found = live_packed(graph_of(Network(first=7, second=9)), TARGET, partition, lambda kernel: True)
    assert [p.of.name for p, _ in found.graph.updates if isinstance(p, Packed) and p.of.name[0] == "w"] == []
    assert "w: no kernel reads it in panels that divide it" in str(found)


@pytest.mark.tvm
def test_values_are_plain_whoever_asks(wanted, monkeypatch):
    one, other = Network(), Network()
    packed = one.step()
    monkeypatch.setenv("NEOFLOW_WITHOUT", OFF)
    plain = other.step()
    monkeypatch.delenv("NEOFLOW_WITHOUT")
    assert {one.w, one.v} < packed_of(packed) and not packed_of(plain)
    assert set(packed.parameters) == set(one.changed), "a function's parameters are the user's own"
    assert "lives as" in packed.explain(OFF)
    for n in range(4):
        np.testing.assert_allclose(packed(*batch(n))[0], plain(*batch(n))[0], rtol=1e-5)
        for p, q in zip(one.changed, other.changed, strict=True):
            np.testing.assert_allclose(nf.get_value(p), nf.get_value(q), rtol=1e-4, atol=1e-5)
    new = np.random.default_rng(5).standard_normal(one.w.shape).astype(np.float32)
    for p in (one.w, other.w):
        nf.set_value(p, new)
        np.testing.assert_array_equal(nf.get_value(p), new)
    np.testing.assert_allclose(packed(*batch(7))[0], plain(*batch(7))[0], rtol=1e-4)


@pytest.mark.tvm
def test_functions_of_either_order_share_parameters(wanted):
    network = Network()
    step, infer = network.step(), nf.compile([network.scores], [network.x])
    assert packed_of(step) and not packed_of(infer)
    for n in range(3):
        array, labels = batch(n)
        feeds = {network.x: array, **{p: nf.get_value(p) for p in network.parameters}}
        (exact,) = nf.evaluate([network.scores], feeds, dtype="float64")
        np.testing.assert_allclose(infer(array)[0], exact, rtol=1e-3, atol=1e-3)
        before = nf.get_value(network.w)
        step(array, labels)
        assert not np.array_equal(nf.get_value(network.w), before)
    moves = STORE.moves
    for _ in range(3):
        step(array, labels)
    assert STORE.moves - moves <= len(packed_of(step)), "they move once, and then stay"


@pytest.mark.tvm
@pytest.mark.parametrize("first", ["packed", "plain"])
def test_a_checkpoint_goes_from_one_order_to_the_other_bit_for_bit(wanted, monkeypatch, tmp_path, first):
    def train(order, folder, steps):
        monkeypatch.setenv("NEOFLOW_WITHOUT", "" if order == "packed" else OFF)
        network = Network()
        trainer = network.trainer(checkpoint=folder)
        begun = trainer.resume() if list(folder.iterdir()) else None
        values = [nf.get_value(p) for p in trainer.all_parameters]
        trainer.fit([batch(n) for n in range(8)], 1, steps=steps)
        return trainer, begun, values

    trainer, _, _ = train(first, tmp_path, 3)
    kept = [nf.get_value(p) for p in trainer.all_parameters]
    lying = sum(home[1] is not None for p in trainer.all_parameters if (home := STORE._home[id(p)]))
    assert (lying > 0) == (first == "packed")
    other = "plain" if first == "packed" else "packed"
    again, begun, values = train(other, tmp_path, 5)
    assert begun.step == 3 and len(kept) == len(values)
    for a, b in zip(kept, values, strict=True):
        np.testing.assert_array_equal(a, b)
    monkeypatch.setenv("NEOFLOW_WITHOUT", "" if first == "packed" else OFF)
    third = Network().trainer(checkpoint=tmp_path)
    assert third.resume().step == 5
    for p, q in zip(again.all_parameters, third.all_parameters, strict=True):
        np.testing.assert_array_equal(nf.get_value(p), nf.get_value(q))


@pytest.mark.tvm
def test_files_and_packages_hold_plain_values(wanted, tmp_path):
    network = Network()
    step = network.step()
    step(*batch(0))
    nf.save_parameters(tmp_path / "p.safetensors", network.parameters)
    fresh = Network()
    nf.load_parameters(tmp_path / "p.safetensors", fresh.parameters)
    for p, q in zip(network.parameters, fresh.parameters, strict=True):
        np.testing.assert_array_equal(nf.get_value(p), nf.get_value(q))
    step.save(tmp_path / "step.nflib", "step")
    package = nf.load(tmp_path / "step.nflib")
    assert packed_of(step) and package.parameters["w"].shape == network.w.shape
    np.testing.assert_allclose(package.step(*batch(1))[0], step(*batch(1))[0], rtol=1e-4)


@pytest.mark.tvm
def test_a_kernel_that_is_swapped_reads_its_parameter_where_it_lies(wanted):
    """Dynamic mode adopts schedules of the kernels a program has: these say nothing of where parameters lie."""
    network, other = Network(), Network()
    step, same = network.step(), other.step()
    lying = packed_of(step)
    swapped = 0
    for kernel in step.compiled.kernels:
        if kernel.schedule.template == "contraction":
            knobs = dict(default_schedule(kernel.subgraph, kernel.target).knobs)
            packs = schedule_of("contraction", {**knobs, "unroll": 2 if knobs["unroll"] == 1 else 1})
            swapped += adopt(step, {kernel.subgraph.digest: packs})
    assert swapped and packed_of(step) == lying
    for n in range(3):
        np.testing.assert_allclose(step(*batch(n))[0], same(*batch(n))[0], rtol=1e-4)


@pytest.mark.tvm
def test_a_program_that_was_searched_is_laid_as_it_was(wanted, tmp_path, monkeypatch):
    """What was measured of packed kernels is found again: of plain ones nothing was."""
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    step = Network().step()
    for kernel in step.compiled.kernels:
        records_in(tmp_path).add(kernel.subgraph, kernel.target, [Trial(kernel.schedule, "ok", 1e-6)])
    again = Network().step()
    assert packed_of(step) and len(packed_of(again)) == len(packed_of(step))
    monkeypatch.setenv("NEOFLOW_WITHOUT", OFF)
    plain = Network().step()
    for kernel in plain.compiled.kernels:
        records_in(tmp_path).add(kernel.subgraph, kernel.target, [Trial(kernel.schedule, "ok", 1e-6)])
    monkeypatch.delenv("NEOFLOW_WITHOUT")
    assert not packed_of(Network().step())


def test_a_gpu_has_none(wanted):
    network = Network()
    compiled = compile_program([network.loss], [network.x, network.labels], network.updates(), target="cuda:sm_80")
    assert OFF not in {r.name for r in compiled.trace.records}


@pytest.mark.tvm
def test_functions_that_take_turns_come_to_agree(wanted):
    """To convert parameters at every call would take longer than to pack them."""
    network = Network()
    step, infer = network.step(), nf.compile([network.scores], [network.x])
    assert packed_of(step)
    for n in range(2 * RETURNS):
        feeds = {network.x: batch(n)[0], **{p: nf.get_value(p) for p in network.parameters}}
        (exact,) = nf.evaluate([network.scores], feeds, dtype="float64")
        np.testing.assert_allclose(infer(batch(n)[0])[0], exact, rtol=1e-3, atol=1e-3)
        step(*batch(n))
    assert not packed_of(step) and step.runs == 2 * RETURNS
    moves = STORE.moves
    infer(batch(0)[0]), step(*batch(0))
    assert STORE.moves == moves
