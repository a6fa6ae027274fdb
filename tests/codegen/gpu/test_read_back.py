"""What a member of a team reads after a barrier, where another one has written it: not before the barrier."""

import re
import shutil
import subprocess

import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.kernel import CHANGING
from neoflow.loops import complete, default_schedule, legal, problem_of
from neoflow.loops.gpu.rows import PLACES
from neoflow.nn import functional as F
from neoflow.pipeline import compile_program

pytestmark = pytest.mark.tvm


def statistics():
    """Means of channels, and the inverse deviations, which read the means; both are returned."""
    x = nf.placeholder((16, 120, 14, 14))
    b, h, w = (nf.axis(n) for n in (16, 14, 14))
    mean = nf.compute((120,), lambda c: nf.sum(x[b, c, h, w], axis=[b, h, w]) * (1 / 3136))
    square = nf.compute((120,), lambda c: nf.sum((x[b, c, h, w] - mean[c]) ** 2, axis=[b, h, w]))
    return one([mean, nf.rsqrt(square * (1 / 3136) + 1e-5)], [x])


def normed(rows, columns):
    """A row is read three times, and what is between lies somewhere."""
    x, g, b = nf.placeholder((rows, columns)), nf.placeholder((columns,)), nf.placeholder((columns,))
    return one([F.layer_norm(x, g, b)], [x, g, b])


def one(outputs, inputs):
    """The only kernel of a program for a GPU."""
    [found] = compile_program(outputs, inputs, None, "cuda:sm_90").kernels
    return found.subgraph


def lowered(subgraph, target, **knobs):
    problem = problem_of(subgraph)
    schedule = complete("gpu_rows", problem, target, knobs) if knobs else default_schedule(subgraph, target)
    assert schedule.template == "gpu_rows" and legal(problem, schedule, target).ok
    return codegen.lower(subgraph, schedule, target, "k")


def heads(kernels, target):
    """The pointers of a kernel in CUDA C++, in its declaration and its definition."""
    text = codegen.source(kernels, target, "cuda")
    return [re.sub(r"\s+", " ", m) for m in re.findall(r"\bk_0\(([^()]*)\)", text)]


def test_only_what_is_read_back_may_change():
    target = gpu_target("cuda", "sm_90")
    kernel = lowered(statistics(), target)
    wanted = "float* __restrict__ in0, float* out0, float* __restrict__ out1"
    assert heads([kernel], target) == [wanted, wanted]


def test_rows_between_in_the_memory_of_the_gpu():
    target = gpu_target("cuda", "sm_80")
    shared, scratch = (lowered(normed(33, 700), target, place=p, team=128, threads=128) for p in PLACES)
    assert not any(CHANGING in f.attrs for _, f in shared.functions)
    [head, _] = heads([scratch], target)
    inputs, outputs = 3, 1
    between = head.split(", ")[inputs + outputs :]
    assert between and not any("__restrict__" in b for b in between)
    [(_, function)] = scratch.functions
    assert [int(n) for n in function.attrs[CHANGING]] == list(range(inputs + outputs, inputs + outputs + len(between)))


def test_who_is_alone_reads_back_what_he_wrote():
    target = gpu_target("cuda", "sm_80")
    alone = lowered(normed(4096, 200), target, place=PLACES[1], team=1, threads=128)
    assert not any(CHANGING in f.attrs for _, f in alone.functions)


def order(ptx):
    """A letter each: loads from the address that is stored to and loaded from, stores to it, barriers."""
    found = re.findall(r"^\s*(bar\.sync|(?:ld|st)\.(?:global\.)?[vbf]\S*)\s+(.*);", ptx, re.MULTILINE)
    stored, loaded = (
        {a for op, rest in found if op.startswith(kind) for a in re.findall(r"\[(%rd\d+)\]", rest)}
        for kind in ("st", "ld")
    )
    [address] = stored & loaded
    return "".join(op[0] for op, rest in found if op == "bar.sync" or f"[{address}]" in rest)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_no_compiler_reads_ahead_of_the_barrier(tmp_path):
    target = gpu_target("cuda", "sm_90")
    (tmp_path / "k.cu").write_text(codegen.source([lowered(statistics(), target)], target, "cuda"))
    command = ["nvcc", "-w", "-ptx", "-arch=sm_90", str(tmp_path / "k.cu"), "-o", str(tmp_path / "k.ptx")]
    subprocess.run(command, check=True, capture_output=True)
    found = order((tmp_path / "k.ptx").read_text())
    assert found.index("s") < found.index("b", found.index("s")) < found.index("l"), found


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs libdevice, which is beside ptxas")
def test_nor_does_llvm():
    target = gpu_target("nvptx", "sm_80")
    found = order(codegen.source([lowered(statistics(), target)], target, "ptx"))
    assert found.index("s") < found.index("b", found.index("s")) < found.index("l"), found
