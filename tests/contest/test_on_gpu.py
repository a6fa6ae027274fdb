"""`neoflow bench --target`: refused where no GPU is; where one is, a step there beside its peers. The GPU is the
emulator, and PyTorch for CPUs stands in the place of PyTorch for CUDA."""

import numpy as np
import pytest

from neoflow.contest import bench as benches
from neoflow.contest import contenders, kinds, sides
from neoflow.contest.bench import Bench, bench
from neoflow.contest.sides import Task
from neoflow.errors import ConfigError, RuntimeFault
from neoflow.runtime.device.cuda import Cuda
from tests.emulator.driver import emulated

TINY = """
import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

def build(batch=2):
    p = nn.Parameters("tiny")
    x, labels = nf.placeholder((batch, 5), name="x"), nf.placeholder((batch,), "int64", name="labels")
    scores = F.linear(x, p("w", 3, 5), p("b", 3))
    return nn.Model("tiny", x, labels, p, F.cross_entropy(scores, labels), scores, 3)
"""
PEER = """
import torch.nn.functional as F
from benchmarks.peers.torch_base import Network

class Peer(Network):
    def scores(self, x, training):
        return F.linear(x, self.tensors["w"], self.tensors["b"])
"""
JAX_PEER = """
from benchmarks.peers.jax_base import Network

class Peer(Network):
    def scores(self, p, state, x, training):
        return x @ p["w"].T + p["b"], state
"""


@pytest.fixture
def tiny(tmp_path):
    """A model's file, with a peer beside it."""
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "torch_tiny.py").write_text(PEER)
    return str(tmp_path / "tiny.py")


@pytest.fixture
def pytorch():
    """With the settings that it had, afterwards, and all others than wanted, before."""
    torch = pytest.importorskip("torch")
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    yield torch
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


@pytest.mark.parametrize("target", ["cuda", "cuda:sm_90", "nvptx"])
def test_without_a_gpu_nothing_is_compiled(target, monkeypatch, tiny):
    def absent():
        raise RuntimeFault("there is no NVIDIA driver on this machine (libcuda.so.1)")

    monkeypatch.setattr("neoflow.devices.gpu", absent)
    with pytest.raises(RuntimeFault, match="there is no NVIDIA driver on this machine"):
        bench(tiny, 2, "train", [], 0.0, make=lambda task: pytest.fail("compiled"), target=target)


def test_a_target_that_there_is_not(tiny):
    with pytest.raises(ConfigError, match="there is no target 'abacus'; there are cpu, cuda, nvptx and cuda:sm_80"):
        bench(tiny, 2, "train", [], 0.0, target="abacus")


@pytest.mark.tvm
def test_a_gpu_of_another_architecture(monkeypatch, tiny):
    here = emulated(monkeypatch).driver.gpu.architecture
    other = "sm_75" if here != "sm_75" else "sm_80"
    target = f"cuda:{'sm_90' if here < 'sm_90' else other}"
    with pytest.raises(RuntimeFault, match=f"the GPU of this machine is a .*, {here}: compile for target='cuda'"):
        bench(tiny, 2, "train", [], 0.0, target=target)


@pytest.mark.tvm
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_step_runs_on_the_gpu(mode, monkeypatch, tiny):
    """To the loss that the CPU has; every call waits for all kernels."""
    emulated(monkeypatch)
    found, here = bench(tiny, 2, mode, [], 0.0, target="cuda"), bench(tiny, 2, mode, [], 0.0)
    assert found.loss == pytest.approx(here.loss, rel=1e-6) and found.neoflow_ms > 0 and found.missing == {}
    assert str(found).startswith(f"tiny batch 2 {mode} on cuda, loss ") and f"tiny batch 2 {mode}, loss" in str(here)
    side = sides.Neoflow(Task(tiny, 2, mode, target="cuda"))
    assert side.compiled.target.device != "cpu" and isinstance(side.function._executor.device, Cuda)


def test_peers_of_a_gpu_run_there(monkeypatch, tiny):
    """No peer runs beside a GPU's step on the CPU."""
    asked = []

    class Hall:
        def __init__(self, peers):
            asked.extend(peers)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def load(self, task):
            return {}, {}, {p.key: "no word" for p in asked}

    class Ours:
        def __init__(self, task):
            assert task.target == "cuda"
            self.values, self.told = [1.0], {}
            self.compiled = sides.Neoflow(Task(tiny, 2, "train")).compiled
            self.model = sides.build_model(tiny, 2)

        def reset(self):
            pass

        def call(self):
            pass

    monkeypatch.setattr(benches, "Hall", Hall)
    monkeypatch.setattr(benches, "device", lambda target: None)
    keys = ["torch", "torch-expert", "inductor", "jax"]
    monkeypatch.setattr(contenders, "check_framework", lambda framework: None)
    monkeypatch.setattr(benches, "peer_file", lambda framework, name: None)
    found = bench(tiny, 2, "train", keys, 0.0, make=Ours, target="cuda")
    assert asked == list(contenders.ON_A_GPU) and list(found.missing) == keys
    assert not any(c.expert for c in asked), "nothing is preloaded"
    assert contenders.environment(asked[3], None, None)["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in contenders.environment(contenders.PEERS[3], None, None)


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize(("kind", "tries"), [("torch on a GPU", False), ("torch expert on a GPU", True)])
def test_pytorch_on_a_gpu(kind, tries, mode, monkeypatch, tiny, pytorch):
    """In float32, waited for after every call, to the values of the CPU; some calls come before any that is timed."""
    torch = pytorch
    waits = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    side = kinds.KINDS[kind](Task(tiny, 2, mode))
    np.testing.assert_allclose(side.values, sides.Torch(Task(tiny, 2, mode)).values, rtol=1e-6)
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.benchmark == tries
    before = len(waits)
    side.call()
    assert before == 1 + kinds.WARM and len(waits) == 1 + before


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Inductor as it is imported
@pytest.mark.parametrize(("mode", "name"), [("train", "objective"), ("infer", "scores")])
def test_pytorch_compiled_on_a_gpu(mode, name, monkeypatch, tiny, pytorch):
    """As CUDA graphs, which copy no parameter and begin anew at each step; what is not compiled here stands for it."""
    torch, begun, asked = pytorch, [], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(1))
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.append(options) or function)
    monkeypatch.setattr(kinds, "DEVICE", "cpu")
    side = kinds.KINDS["torch.compile on a GPU"](Task(tiny, 2, mode))
    assert asked == [{"mode": "reduce-overhead"}] and name in vars(side.peer), "the other one stays as it was"
    assert all(hasattr(t, "_dynamo_static_input_type") for t in side.peer.tensors.values())
    before = len(begun)
    side.call()
    assert before == 1 + kinds.WARM and len(begun) == before + 1
    np.testing.assert_allclose(side.values, sides.Torch(Task(tiny, 2, mode)).values, rtol=1e-6)


@pytest.mark.jax
def test_jax_is_waited_for(monkeypatch, tiny, tmp_path):
    """JAX for CPUs stands in the place of JAX for GPUs."""
    jax = pytest.importorskip("jax")
    waits, wait, there = [], jax.block_until_ready, jax.devices("cpu")
    monkeypatch.setattr(jax, "devices", lambda kind: there)
    monkeypatch.setattr(jax, "block_until_ready", lambda found: waits.append(found) or wait(found))
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    (tmp_path / "jax_tiny.py").write_text(JAX_PEER)
    side = kinds.JaxOnGpu(Task(tiny, 2, "train"))
    losses = [w for w in waits if isinstance(w, float)]
    assert len(losses) == 1 + kinds.WARM and losses == sorted(losses, reverse=True)
    assert side.call() is waits[-1]
    np.testing.assert_allclose(side.values, sides.Jax(Task(tiny, 2, "train")).values, rtol=1e-6)


@pytest.mark.torch
def test_a_network_is_fed_where_its_parameters_are(tiny):
    """On PyTorch's device without memory, as no GPU is here: what is computed there has shapes alone."""
    torch = pytest.importorskip("torch")
    from neoflow.models import build_model, find_peer

    model = build_model(tiny, 2)
    with torch.device("meta"):
        peer = find_peer("torch", tiny, model.values())
    loss = peer.loss(*model.example())
    assert loss.device.type == "meta" and loss.shape == ()


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["torch on a GPU", "torch expert on a GPU", "torch.compile on a GPU"])
def test_pytorch_that_reaches_no_gpu_says_so(kind, monkeypatch, tiny):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="reaches no GPU here: install one that is built for CUDA"):
        kinds.KINDS[kind](Task(tiny, 2, "train"))


@pytest.mark.jax
def test_jax_that_reaches_no_gpu_says_so(monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(jax, "devices", lambda kind: (_ for _ in ()).throw(RuntimeError("Unknown backend gpu")))
    with pytest.raises(ConfigError, match="reaches no GPU here"):
        kinds.JaxOnGpu(Task("mi_lstm_mnist", 2, "train"))


def test_in_words():
    found = Bench("tiny", 2, "train", 1.0, {}, 2.5, target="cuda:sm_90")
    assert str(found).splitlines()[0] == "tiny batch 2 train on cuda:sm_90, loss 2.50000000"
