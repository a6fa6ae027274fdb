"""CUDA C++ of maps: what is printed for a kernel, and that a compiler takes it."""

import shutil

import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import ARCHITECTURES, architecture, gpu_target
from neoflow.errors import ConfigError, ScheduleError
from neoflow.loops import complete, default_schedule, legal, problem_of, space
from tests.codegen.gpu.running import verified
from tests.codegen.kernels import subgraph_of

AMPERE = gpu_target("cuda", "sm_80")


def test_a_vector_of_neighbours_is_one_access_where_rows_are_whole_vectors():
    x = nf.placeholder((3, 8))
    subgraph = subgraph_of([x * 2.0 + nf.abs(x)], [x])
    schedule = complete("gpu_map", problem_of(subgraph), AMPERE, {"lanes": 4, "threads": 32})
    text = codegen.source([codegen.lower(subgraph, schedule, AMPERE, "k")], AMPERE, "cuda")
    assert "*(float4*)(in0 + " in text and "*(float4*)(out0 + " in text
    assert (
        'extern "C" __global__ void __launch_bounds__(32, 1) k_0(float* __restrict__ in0, float* __restrict__ out0)'
        in text
    )


def test_neighbours_that_no_access_may_take_are_loaded_one_by_one():
    x = nf.placeholder((41,))
    shifted = nf.compute((40,), lambda i: x[i + 1] * 2.0)
    subgraph = subgraph_of([shifted], [x])
    schedule = complete("gpu_map", problem_of(subgraph), AMPERE, {"lanes": 4, "threads": 32})
    text = codegen.source([codegen.lower(subgraph, schedule, AMPERE, "k")], AMPERE, "cuda")
    assert "*(float4*)(in0 + " not in text and "*(float4*)(out0 + " in text


def test_what_is_legal_follows_from_the_problem():
    x = nf.placeholder((5, 6), "bool")
    subgraph = subgraph_of([nf.select(x, 1.0, 2.0)], [x])
    problem = problem_of(subgraph)
    verdict = legal(problem, complete("gpu_map", problem, AMPERE, {"threads": 48}), AMPERE)
    assert not verdict.ok and "powers of two from a warp to the 1024 that a block may have" in verdict.reason
    with pytest.raises(ScheduleError, match="template 'map' is for a cpu, the target is cuda"):
        codegen.lower(subgraph, complete("map", problem, AMPERE, {}), AMPERE, "k")
    with pytest.raises(ConfigError, match="there is no GPU architecture 'sm_12'; there are sm_75, sm_80"):
        gpu_target("cuda", "sm_12")
    assert space(problem, AMPERE).templates == ("gpu_map",)


def test_an_architecture_is_whole():
    for name in ARCHITECTURES:
        a = architecture(gpu_target("cuda", name))
        assert a.block_shared_bytes <= a.shared_bytes and a.threads % 32 == 0 and a.name == f"sm_{a.capability}"


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
def test_what_all_lanes_share_is_known_when_it_is_printed():
    """A shift by a constant is a choice for all lanes; of a vector CUDA C++ has no ~."""
    x = nf.placeholder((16,), "int32")
    subgraph = subgraph_of([(nf.bitwise_not(x) << 1) % 3 + (x << 70)], [x])
    schedule = complete("gpu_map", problem_of(subgraph), AMPERE, {"lanes": 4, "threads": 32})
    assert verified(subgraph, schedule, AMPERE).compared


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_a_compiler_takes_it():
    x, h = nf.placeholder((7, 33)), nf.placeholder((7, 33), "float16")
    y = nf.exp(x) * nf.cast(h, "float32") + nf.erf(x) + nf.sin(x) + nf.maximum(x, 0.0)
    subgraph = subgraph_of([y], [x, h])
    lowered = codegen.lower(subgraph, default_schedule(subgraph, AMPERE), AMPERE, "k")
    assert codegen.build([lowered], AMPERE)[:4] == b"\x7fELF"
