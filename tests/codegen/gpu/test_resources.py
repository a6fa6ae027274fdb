"""What kernels take of a processor: as ptxas says it, and as legality has it."""

import shutil

import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import REGISTERS_A_THREAD, architecture, gpu_target
from neoflow.codegen.gpu.resources import Resources, parse_resources, resources
from neoflow.graph import make_graph
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.gpu.estimate import estimate
from neoflow.loops.gpu.limits import STATIC_BYTES
from neoflow.nn import functional as F
from neoflow.rewriting import stages
from neoflow.trace import Trace

SAID = """ptxas info    : 0 bytes gmem, 128 bytes cmem[4]
ptxas info    : Compiling entry function 'k1_0' for 'sm_80'
ptxas info    : Function properties for k1_0
    304 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 304 bytes stack, 24832 bytes smem, 384 bytes cmem[0]
ptxas info    : Compile time = 141.030 ms
ptxas info    : Compiling entry function 'k0_0' for 'sm_80'
ptxas info    : Function properties for k0_0
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 376 bytes cmem[0]
"""
KINDS = (
    pytest.param("cuda", marks=pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")),
    pytest.param("nvptx", marks=pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")),
)


def subgraphs(target):
    """One of each template at least."""
    x, w = nf.placeholder((64, 96)), nf.placeholder((96, 160))
    ids, rows = nf.placeholder((40,), "int64"), nf.placeholder((40, 96))
    long, wide = nf.placeholder((7, 5000)), nf.placeholder((7, 5000), "float64")
    b, h = nf.axis(40, "b"), nf.axis(96, "h")
    roots = [
        nf.exp(w) * 2.0 + nf.tanh(w),
        F.softmax(x),
        nf.expr("y[i] = sum(x[i,k])", x=long),
        nf.argmax(wide, axis=1),
        nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w),
        nf.scatter((50, 96), [b, h], (ids[b], h), rows[b, h]),
    ]
    _, divided = stages(make_graph(roots, [x, w, ids, rows, long, wide]), Trace(), target)
    return list({c.subgraph.digest: c.subgraph for c in divided.calls}.values())


def test_what_ptxas_says_is_read():
    found = parse_resources(SAID)
    assert found == {"k1_0": Resources(255, 304, 8, 12, 24832), "k0_0": Resources(24)}
    assert found["k1_0"].spills and not found["k0_0"].spills
    assert parse_resources("") == {}


@pytest.mark.tvm
@pytest.mark.parametrize("name", ["sm_80", *(pytest.param(n, marks=pytest.mark.slow) for n in ("sm_75", "sm_90"))])
@pytest.mark.parametrize("kind", KINDS)
def test_defaults_take_what_their_legality_says(kind, name):
    target = gpu_target(kind, name)
    graphs = subgraphs(target)
    schedules = [default_schedule(s, target) for s in graphs]
    assert {s.template for s in schedules} == {
        f"gpu_{t}" for t in ("map", "rows", "reduction", "contraction", "scatter")
    }
    lowered = [codegen.lower(g, s, target, f"k{n}") for n, (g, s) in enumerate(zip(graphs, schedules, strict=True))]
    text = codegen.source(lowered, target, "cuda" if kind == "cuda" else "ptx")
    assert ".extern .func" not in text
    found = resources(text, target)
    assert set(found) == {e.symbol for k in lowered for e in k.code.entries}
    for graph, schedule, kernel in zip(graphs, schedules, lowered, strict=True):
        assumed = estimate(problem_of(graph), schedule, target).block
        for entry in kernel.code.entries:
            used = found[entry.symbol]
            assert not used.spills, (schedule, used)
            assert used.registers <= REGISTERS_A_THREAD
            assert used.registers * entry.threads <= architecture(target).registers
            assert used.shared_bytes <= STATIC_BYTES
        first = found[kernel.code.entries[0].symbol]
        assert first.shared_bytes + kernel.code.entries[0].shared_bytes <= assumed.shared_bytes, schedule
        assert kernel.code.entries[0].threads == assumed.threads


WEIGHT_GRADIENT = ((64, 512), (64, 128), (512, 128))
STRIDED = ((16, 256, 16, 16), (512, 256, 3, 3))
ROOMY = (
    (
        "nvptx",
        "sm_80",
        WEIGHT_GRADIENT,
        lambda a, b, c: nf.expr("y[i,j] = c[i,j] + sum(a[r,i] * b[r,j])", a=a, b=b, c=c),
    ),
    ("cuda", "sm_90", STRIDED, lambda x, w: F.conv2d(x, w, stride=2)),
)


@pytest.mark.tvm
@pytest.mark.parametrize(("kind", "name", "shapes", "write"), ROOMY, ids=["small tiles", "many elements on their way"])
def test_what_a_compiler_moves_ahead_stays_in_registers(kind, name, shapes, write):
    target = gpu_target(kind, name)
    inputs = [nf.placeholder(s) for s in shapes]
    _, divided = stages(make_graph([write(*inputs)], inputs), Trace(), target)
    graph = divided.calls[-1].subgraph
    kernel = codegen.lower(graph, default_schedule(graph, target), target, "k")
    found = resources(codegen.source([kernel], target, "cuda" if kind == "cuda" else "ptx"), target)
    assert not any(used.spills for used in found.values()), found


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
def test_a_source_that_does_not_compile_is_said():
    with pytest.raises(nf.CodegenError, match="ptxas does not compile a kernel for sm_80"):
        resources("no PTX", gpu_target("nvptx", "sm_80"))


def test_without_a_toolkit_nobody_says_it(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(nf.CodegenError, match="nvcc, a part of CUDA toolkits, is not here"):
        resources("", gpu_target("cuda", "sm_80"))
