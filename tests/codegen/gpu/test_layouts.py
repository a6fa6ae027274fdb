"""How operands lie in shared memory: every element has one place, and no access of a warp meets a bank twice."""

import itertools

import pytest
from tvm import tirx

from neoflow.codegen.gpu.layouts import CHUNK, Swizzled, TermLines
from neoflow.codegen.tir import emit
from neoflow.loops.gpu import fragments, tile

pytestmark = pytest.mark.tvm
BANKS, WORD, WARP = 32, 4, 32


def number(value):
    """A constant of the compiler."""
    assert isinstance(value, tirx.IntImm), value
    return int(value.value)


def at(layout, k, row):
    return number(layout.index(emit.integer(k), emit.integer(row)))


def points(layout, lanes):
    """Where each access of a tile begins, in the order of threads."""
    count = layout.rows * layout.terms // lanes
    found = [layout.point(emit.integer(n), lanes) for n in range(count)]
    return [(number(k), number(row)) for k, row in found]


def conflicts(places, nbytes):
    """Accesses of `nbytes` each, of as many threads as 128 bytes are for, that meet a bank with another word in it."""
    met = 0
    phase = min(WARP, BANKS * WORD // max(nbytes, WORD))
    for start in range(0, len(places), phase):
        words = {p // WORD + n for p in places[start : start + phase] for n in range(max(1, nbytes // WORD))}
        met += len(words) - len({w % BANKS for w in words})
    return met


def check(layout, lanes, itemsize, is_scattered):
    """Stores of a tile: of scalars along K where these do not lie side by side, of vectors elsewhere."""
    starts = points(layout, lanes)
    elements = [(k + n, row) if layout.along_k else (k, row + n) for k, row in starts for n in range(lanes)]
    assert sorted(elements) == sorted(itertools.product(range(layout.terms), range(layout.rows)))
    assert len({at(layout, *e) for e in elements}) == len(elements)
    assert max(at(layout, *e) for e in elements) < layout.elements
    if is_scattered:
        for n in range(lanes):
            assert not conflicts([at(layout, k + n, row) * itemsize for k, row in starts], itemsize)
    else:
        assert not conflicts([at(layout, k, row) * itemsize for k, row in starts], lanes * itemsize)


@pytest.mark.parametrize("along_k", (False, True))
@pytest.mark.parametrize(("element", "itemsize"), (("float32", 4), ("float64", 8)))
def test_lines_of_terms(element, itemsize, along_k):
    for rows, terms in itertools.product(tile.BLOCKS[:2], tile.BLOCKS_K[:1]):
        for lanes in (1, 2, 4)[: 16 // itemsize - itemsize // 8]:
            check(TermLines(rows, terms, along_k, element), lanes, itemsize, along_k)


@pytest.mark.parametrize("along_k", (False, True))
def test_lines_of_chunks(along_k):
    for lines, line in ((16, 16), (16, 32), (16, 64), (16, 128)):  # of fewer than 128 bytes, of as many, of more
        rows, terms = (lines, line) if along_k else (line, lines)
        assert rows in fragments.BLOCKS or terms in fragments.BLOCKS_K
        layout = Swizzled(rows, terms, along_k)
        check(layout, CHUNK, 2, False)
        for first, chunk in itertools.product(range(0, lines, CHUNK), range(line // CHUNK)):
            begins = [number(layout.chunk(emit.integer(first + n), emit.integer(chunk))) * 2 for n in range(CHUNK)]
            assert not conflicts(begins, 16)  # what ldmatrix takes at a time


def test_register_tiles_read_without_conflicts():
    for thread, warp in itertools.product((1, 2, 4, 8), (1, 2, 4, 8, 16, 32)):
        wide = tile.vector(thread, 4)
        across = [(lane % warp) * wide * 4 for lane in range(WARP)]
        down = [(lane // warp) * wide * 4 for lane in range(WARP)]
        assert not conflicts(across, wide * 4) and not conflicts(down, wide * 4)
