"""How operands lie in shared memory: every element has one place, and no access of a warp meets a bank twice."""

import itertools

import pytest
from tvm import tirx

from neoflow.codegen.gpu.layouts import Swizzled, TermLines
from neoflow.codegen.tir import emit
from neoflow.loops.gpu import tile

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
@pytest.mark.parametrize("nbytes", (2, 4))
def test_lines_of_chunks(along_k, nbytes):
    for line in (16, 32, 64) if along_k else (16, 48, 64, 96):  # of 128 bytes, of fewer, of more
        rows, terms = (16, line) if along_k else (line, 16)
        layout = Swizzled(rows, terms, along_k, nbytes)
        check(layout, layout.of_chunk, nbytes, False)
        for first, chunk in itertools.product((0, 8), range(line // layout.of_chunk) if layout.is_turned else ()):
            begins = [number(layout.chunk(emit.integer(first + n), emit.integer(chunk))) * nbytes for n in range(8)]
            assert not conflicts(begins, 16)  # what ldmatrix takes at a time


@pytest.mark.parametrize("rows", (16, 32, 48, 64, 96))
def test_words_of_a_fragment(rows):
    """Lane 4 g + t reads row g and term t of a square."""
    layout = Swizzled(rows, 8, False, 4)
    for k, row in itertools.product((0, 4), range(0, rows, 8)):
        assert not conflicts([at(layout, k + lane % 4, row + lane // 4) * 4 for lane in range(WARP)], 4)


def test_register_tiles_read_without_conflicts():
    for thread, warp in itertools.product((1, 2, 4, 8), (1, 2, 4, 8, 16, 32)):
        wide = tile.vector(thread, 4)
        across = [(lane % warp) * wide * 4 for lane in range(WARP)]
        down = [(lane // warp) * wide * 4 for lane in range(WARP)]
        assert not conflicts(across, wide * 4) and not conflicts(down, wide * 4)
