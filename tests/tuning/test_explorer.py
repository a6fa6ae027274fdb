"""What a search beside a program begins with; without a process."""

import io

import pytest

import neoflow as nf
from neoflow.devices import resolve_target
from neoflow.machine import available_cores
from neoflow.train.dynamic import _asked, schedules_of
from neoflow.tune import Limits
from neoflow.tuning.explorer import Explorer


def asked():
    x = nf.placeholder((8, 16), name="x")
    compiled = nf.compile([nf.sum(nf.exp(x), axis=1)], [x]).compiled
    return compiled, _asked(compiled, Limits(trials=1), 0.25, 0)


@pytest.mark.tvm
def test_it_waits_for_what_kernels_take_in_the_program():
    compiled, said = asked()
    explorer = Explorer(said, io.StringIO())
    assert not explorer.heard.is_set()
    ((digest, schedule),) = schedules_of(compiled).items()
    explorer.hear({digest: 2e-6})
    (use,) = explorer.uses
    assert explorer.heard.is_set() and use.there == (schedule, 2e-6)


@pytest.mark.tvm
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_it_has_as_many_workers_as_its_share(share):
    _, said = asked()
    workers = Explorer({**said, "share": share}, io.StringIO()).measurer._start.keywords["count"]
    assert share * available_cores() <= workers < share * available_cores() + 1


@pytest.mark.tvm
def test_of_a_gpu_nobody_times_a_program_and_one_worker_is_enough():
    _, said = asked()
    explorer = Explorer({**said, "target": resolve_target("cuda:sm_90").to_text()}, io.StringIO())
    assert explorer.heard.is_set() and explorer.measurer._start.keywords["count"] is None
