"""How the kernels of a program are put into modules."""

from itertools import pairwise

import pytest

from neoflow import building, config
from neoflow.building import module_sizes, usual_schedule
from neoflow.graph import optimize
from neoflow.loops import default_schedule
from neoflow.partition import partition
from neoflow.runtime.cache import CacheWarning
from neoflow.target import Target
from tests.golden.programs import PROGRAMS


@pytest.mark.parametrize("workers", [1, 2, 16])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 77, 348, 2000])
def test_modules_are_small_at_first_and_at_last(count, workers):
    sizes = list(module_sizes(count, workers))
    assert sum(sizes) == count and all(s > 0 for s in sizes)
    assert all(s <= 2 for s in (*sizes[:1], *sizes[-1:]))
    assert all(s <= 2 * before for before, s in pairwise(sizes))
    left = count
    for size in sizes:
        assert size <= max(2, -(-left // (2 * workers)))
        left -= size


def test_the_modules_of_a_large_program():
    assert list(module_sizes(40, 2)) == [2, 4, 8, 7, 5, 4, 3, 2, 2, 2, 1]


def test_a_default_schedule_is_found_once_and_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "cache"))
    settings, targets = config.load(), (Target(), Target(threads=4))
    subgraphs = {c.subgraph.digest: c.subgraph for c in partition(optimize(PROGRAMS["attention"]())).calls}.values()
    asked = [(s, t) for s in subgraphs for t in targets]
    first = [usual_schedule(s, t, settings) for s, t in asked]
    assert first == [default_schedule(s, t) for s, t in asked]
    building.kernel_cache.cache_clear()  # as another process finds it
    monkeypatch.delattr(building, "default_schedule")
    assert [usual_schedule(s, t, settings) for s, t in asked] == first


def test_a_schedule_that_is_none_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "cache"))
    settings, target = config.load(), Target()
    subgraph = partition(optimize(PROGRAMS["attention"]())).calls[0].subgraph
    key = building.usual_key(subgraph.digest, str(target))
    for text in ("{}", '{"template": "none", "knobs": {}}'):
        cache = building.kernel_cache(settings)
        cache.keep_schedule(key, text)
        with pytest.warns(CacheWarning, match="is foreign"):
            assert usual_schedule(subgraph, target, settings) == default_schedule(subgraph, target)
        assert usual_schedule(subgraph, target, settings) == default_schedule(subgraph, target)
        building.kernel_cache.cache_clear()
