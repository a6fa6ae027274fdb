"""Floors and estimates: what they are made of, and that more work takes no less time."""

import dataclasses

import pytest

import neoflow as nf
from neoflow.architectures import ARCHITECTURES, gpu_target
from neoflow.errors import ScheduleError
from neoflow.loops import complete, default_schedule, problem_of
from neoflow.loops.gpu.estimate import FORMS, LAUNCH_SECONDS, estimate, of_measures
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.problem import Measures
from neoflow.loops.template import TEMPLATES
from neoflow.target import Target
from tests.codegen.kernels import subgraph_of

HOPPER = gpu_target("cuda", "sm_90")
A = ARCHITECTURES["sm_90"]
MAP, TILE = FORMS["gpu_map"], FORMS["gpu_contraction"]


def measures(operations=1e6, nbytes=1e6, tasks=132 * 8):
    return Measures(1e6, 1, operations, nbytes / 2, nbytes / 2, tasks, 1, 0)


def matmul(m, n, k):
    a, b = nf.placeholder((m, k)), nf.placeholder((k, n))
    return subgraph_of([nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=b)], [a, b])


def test_every_template_for_a_gpu_has_a_form():
    assert set(FORMS) == {t.name for t in TEMPLATES.values() if t.device == "gpu"}


def test_a_full_device_takes_its_floors():
    """132 x 8 blocks of 8 warps: all threads of an H200, one wave, nothing late."""
    block = Block(256, 32)
    moved = of_measures(measures(nbytes=4.8e9), block, A, MAP)
    assert moved.floor == pytest.approx(1e-3) and moved.seconds == pytest.approx(1e-3 + LAUNCH_SECONDS)
    computed = of_measures(measures(operations=67e9), block, A, TILE)
    assert computed.floor == pytest.approx(1e-3) and computed.seconds == pytest.approx(1e-3 + LAUNCH_SECONDS)
    apart = of_measures(measures(operations=67e9), block, A, MAP)
    assert apart.floor == pytest.approx(2e-3)  # what is no multiply-add
    halved = of_measures(measures(operations=67e9), block, A, TILE, share=0.5)
    assert halved.floor == apart.floor  # of numbers twice as long
    assert of_measures(measures(1, 1), block, A, MAP).floor == LAUNCH_SECONDS


def test_a_block_too_many_is_as_late_as_a_wave():
    block = Block(256, 255)  # one a processor
    whole, more = (of_measures(measures(67e9, tasks=n), block, A, TILE).seconds for n in (132, 133))
    assert more - LAUNCH_SECONDS == pytest.approx((whole - LAUNCH_SECONDS) * 264 / 133)


def test_few_warps_wait_for_memory():
    full, few = (of_measures(measures(nbytes=4.8e9, tasks=n), Block(64, 32), A, MAP).seconds for n in (132 * 12, 132))
    assert few - LAUNCH_SECONDS == pytest.approx((full - LAUNCH_SECONDS) * 12)


def test_more_work_takes_no_less_time():
    for block in (Block(32, 32), Block(256, 64, 30000), Block(1024, 64)):
        for form in (MAP, TILE):
            for tasks in (1, 50, 132, 133, 5000):
                times = [of_measures(measures(w, w, tasks), block, A, form) for w in (0, 1e3, 1e6, 1e9, 1e12)]
                assert [t.seconds for t in times] == sorted(t.seconds for t in times)
                assert [t.floor for t in times] == sorted(t.floor for t in times)
                assert all(t.seconds >= t.floor for t in times)


def test_more_registers_take_no_less_time():
    times = [of_measures(measures(1e9, 1e9), Block(256, r), A, MAP).seconds for r in range(16, 256)]
    assert times == sorted(times) and times[0] < times[-1]


def test_an_estimate_is_of_the_schedule():
    subgraph = matmul(512, 512, 512)
    problem = problem_of(subgraph)
    found = estimate(problem, default_schedule(subgraph, HOPPER), HOPPER)
    floor = max(2 * 512**3 / A.flops, 3 * 512 * 512 * 4 / A.bandwidth)
    assert found.floor == pytest.approx(floor, rel=0.01) and found.seconds > found.floor
    split = complete("gpu_contraction", problem, HOPPER, {"splits": 4})
    assert estimate(problem, split, HOPPER).launches == 2
    slower = gpu_target("cuda", "sm_75")
    assert estimate(problem, default_schedule(subgraph, slower), slower).seconds > found.seconds


@pytest.mark.tvm
def test_it_is_shown():
    x = nf.placeholder((1 << 20,))
    f = nf.compile([x * 2.0], [x], target="cuda:sm_90")
    shown = f.explain("schedules").splitlines()
    assert len(shown) == 2 and shown[0].startswith("gpu_map(")
    assert "blocks x 256 threads, 0 shared bytes, " in shown[1]
    assert "floor 2.0 us, estimate " in shown[1]  # 8 MiB at 4.8 TB/s are 1.7 us, a launch is 2
    assert f"{dataclasses.replace(estimate_of(x), launches=2)}".startswith("2 launches, ")


def estimate_of(x):
    subgraph = subgraph_of([x * 2.0], [x])
    return estimate(problem_of(subgraph), default_schedule(subgraph, HOPPER), HOPPER)


def test_of_a_cpu_there_is_none():
    subgraph = matmul(8, 8, 8)
    schedule = default_schedule(subgraph, Target())
    with pytest.raises(ScheduleError, match="the time of template 'contraction' is not estimated; of gpu_map, "):
        estimate(problem_of(subgraph), schedule, HOPPER)
