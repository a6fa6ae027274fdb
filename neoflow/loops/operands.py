"""Knobs of the `contraction` template: how the two sides are packed, and by whom.

A side that is not packed is read in place where tiles find it as they need it, else computed at each point of K of each
tile: a producer that is inlined, with the conditions of its reads. By default only what one tile uses alone is.
"""

from __future__ import annotations

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Select, postorder
from neoflow.loops import costs
from neoflow.loops.knob import FLAG, NUMBER, Chosen, Knob, Range, flags, one, up_to
from neoflow.loops.nest import input_reads, is_data_dependent, pitch, stride
from neoflow.loops.problem import NestProblem, is_turnable, nbytes
from neoflow.loops.sides import block_lanes, contiguous_run, direct_read, size
from neoflow.loops.tile import (
    Sides,
    collides,
    element_of,
    finds_rows_again,
    lines_a_place,
    panel_bytes,
    pieces,
    sided,
    sides,
    strides_far,
    wanted_tasks,
)
from neoflow.target import Target

# --- the side with M


MOST_INLINED = 1024
"""Nodes of a side that a point of K has, for each row or vector of a tile and each point that is written out, where it
is not packed: a bound of the time to compile, no judgement of speed."""


def _inlined(what: str, nodes: int, times: int) -> Range:
    """Whether a side of so many nodes is packed, which would be written out so many times at a step of K else."""
    most = f"{nodes} nodes of {what} {times} times at a step of K are more than {MOST_INLINED}"
    return Range((False, True), "") if nodes * times <= MOST_INLINED else one(True, most)


def _pack(p: NestProblem, _: Target, k: Chosen) -> Range:
    s = sides(p, k)
    if s.left_read is not None:
        return Range((False, True), "")
    return _inlined("the side with M", s.left_nodes, int(k["tile_rows"]) * int(k["unroll"]))


def _usual_pack(p: NestProblem, target: Target, k: Chosen) -> bool:
    cut = pieces(p, k)
    if sides(p, k).left_read is None or (cut.panels > 1 and collides(p, k)):
        return True
    if sides(p, k).c.flops < costs.PACKED_FLOPS and target.outruns_l2:
        return False
    if finds_rows_again(p, target, k):
        return False
    is_worth_it = cut.tiles > 1 or (cut.batch == 1 and _is_scattered(p, k))
    return cut.panels >= costs.REPACKED_PANELS and is_worth_it


def _is_scattered(p: NestProblem, k: Chosen) -> bool:
    """Whether each step of the innermost K comes to another line of the side with M."""
    s = sides(p, k)
    step = stride(s.left_read.indices[0], s.c.k[-1]) if s.left_read is not None else 0
    return abs(step or 0) * dt.itemsize(s.element) >= costs.LINE_BYTES


def _run(p: NestProblem, target: Target, k: Chosen) -> Range:
    s = sides(p, k)
    if not k["pack"]:
        return one(False, "the side with M is not packed")
    if s.left_lanes is not None:
        return one(False, s.left_lanes)
    along = contiguous_run(s.left_joined.side, s.left_joined.axes, target.lanes(s.element))
    return flags(along is not None, "the side with M is not contiguous along an axis of K that fills half a vector")


def _turn_rows(p: NestProblem, target: Target, k: Chosen) -> Range:
    s = sides(p, k)
    if not k["run"] or s.left_read is None:
        return one(False, "the side with M is not packed from one read in vectors along K")
    axes = s.left_joined.axes
    place = contiguous_run(s.left_joined.side, axes, target.lanes(s.element))
    lanes = 1 if place is None else block_lanes(axes[place], target.lanes(s.element))
    return flags(lanes >= costs.LEAST_TURNED, f"squares of {lanes} are too small")


def _usual_turn_rows(p: NestProblem, target: Target, k: Chosen) -> bool:
    """With registers of 16 lanes: on Zen 3 squares of 8 took 1.03 times as long as elements stored one by one."""
    return bool(_turn_rows(p, target, k).values[-1]) and target.spreads_operands


PACK: Knob[NestProblem] = Knob(
    "pack", FLAG, "the side with M is packed, not read in place or computed in each tile", _pack, _usual_pack
)
RUN: Knob[NestProblem] = Knob(
    "run", FLAG, "it is packed in vectors along K", _run, lambda p, t, k: _run(p, t, k).values[-1]
)
TURN_ROWS: Knob[NestProblem] = Knob(
    "turn_rows",
    FLAG,
    "it is packed in squares turned in registers",
    _turn_rows,
    _usual_turn_rows,
)


# --- the side with N


def _pack_panels(p: NestProblem, _: Target, k: Chosen) -> Range:
    s, lanes = sides(p, k), int(k["lanes"])
    if s.in_place(lanes) is not None:
        return Range((False, True), "")
    if s.chunk(lanes) != lanes:
        return one(True, "vectors of the side with N cross the ends of lines, and are put together in packing alone")
    return _inlined("the side with N", s.right_nodes, int(k["vectors"]) * int(k["unroll"]))


def is_kept(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether the side with N, read in place, stays in the caches, and comes there at little cost."""
    cut = pieces(p, k)
    is_small = 4 * cut.k * cut.n <= costs.IN_PLACE_BYTES and cut.tiles <= costs.IN_PLACE_TILES
    if not is_small or sides(p, k).in_place(int(k["lanes"])) is None:
        return False
    return not (_is_worth_half(p, target, k) or _is_far_down(p, target, k))


def _is_far_down(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether row tiles go down a panel in place one after the other that no first-level cache keeps from one to the
    next, each line of it elsewhere, or in few places: where rows of a tile are few, since loads do not spread
    operands."""
    read, last = sides(p, k).in_place(int(k["lanes"])), sides(p, k).c.k[-1]
    step = 0 if read is None else pitch(read.indices[0], last, element_of(p))
    is_long = panel_bytes(p, k) > costs.NEAR_BYTES or lines_a_place(last.extent, step) > costs.MANY_LINES
    return not target.spreads_operands and is_long and pieces(p, k).tiles > costs.GONE_DOWN


def _is_worth_half(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether a core had rather bring half of the side with N to its caches, and pack it, than all of it: it is large,
    not all in few lines of memory, and there are not so many rows that panels of results lie far apart."""
    cut, bytes_ = pieces(p, k), _all_panels_bytes(p, k)
    if target.threads == 1 or cut.batch > 1 or cut.tiles <= costs.USED_SELDOM:
        return False
    if not target.outruns_l2:
        return not target.spreads_operands and bytes_ > target.l2_bytes and cut.tiles <= costs.HALVED_TILES
    is_large = bytes_ >= costs.HALVED_BYTES and cut.k >= costs.HALVED_LINES
    return bytes_ > target.l2_bytes * costs.PANEL_CACHE_SHARE or (is_large and cut.m <= 2 * cut.k)


def _is_half_in_lines(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether the half that a core brings to its caches is of whole lines, which small panels keep as they are."""
    s = sides(p, k)
    read = s.in_place(int(k["lanes"]))
    if read is None or target.spreads_operands or k["order"] != "panels" or not _is_worth_half(p, target, k):
        return False
    is_in_lines = pitch(read.indices[0], s.c.k[-1], s.element) % costs.LINE_BYTES == 0
    return is_in_lines and panel_bytes(p, k) <= costs.NEAR_BYTES // 4


def _all_panels_bytes(p: NestProblem, k: Chosen) -> int:
    """Bytes of all panels of one of a batch."""
    cut = pieces(p, k)
    return dt.itemsize(element_of(p)) * cut.k * cut.n


def lies_packed(p: NestProblem, k: Chosen) -> bool:
    """Whether the side with N lies in memory as panels do: blocks of one or several of them, or several to a panel, one
    point of the innermost K after another.

    Of several axes of N: what has one is short.
    """
    return along_panels(p, k) is not None


def along_panels(p: NestProblem, k: Chosen) -> int | None:
    """The place in the nest of the axis of K along which these panels are one stretch of memory, where they are."""
    s, lanes = sides(p, k), int(k["lanes"])
    read, block, width = s.in_place(lanes), s.c.n[-1].extent, lanes * int(k["vectors"])
    if read is None or len(s.c.n) < 2 or block % lanes or (block % width and width % block):
        return None
    return next((n for n, a in enumerate(sided(p, k).k) if stride(read.indices[0], a) == block), None)


def _is_often_from_afar(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether many row tiles go over panels of which multiply-adds outrun the cache that holds them."""
    return target.outruns_l2 and _all_panels_bytes(p, k) > target.l2_bytes and pieces(p, k).tiles > costs.USED_OFTEN


def _is_used_seldom(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether a few tiles of packed rows go over the side with N, read in place, in less time than it takes to pack it
    before: where a tile takes long for each line it needs, every few; else where each point of the innermost K is in
    another page, so that packing waits too, but few of its lines share their places in a cache."""
    s, cut = sides(p, k), pieces(p, k)
    read = s.in_place(int(k["lanes"]))
    if read is None or not k["pack"] or cut.tiles <= costs.USED_ONCE:
        return False
    step = pitch(read.indices[0], s.c.k[-1], s.element)
    if is_fed(p, target, k):
        return cut.tiles <= (costs.USED_ACROSS_LINES if step % costs.LINE_BYTES else costs.USED_FED)
    return cut.tiles <= costs.USED_SELDOM and step >= costs.SET_BYTES and step % costs.SET_BYTES != 0


def is_fed(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether a tile takes long enough for each line of a panel that lines come as fast from afar."""
    cycles = pieces(p, k).rows * int(k["vectors"]) / target.fma_units
    return int(k["lanes"]) * int(k["vectors"]) * dt.itemsize(element_of(p)) <= costs.FED_BYTES * cycles


def is_thin(s: Sides, target: Target, lanes: int) -> bool:
    """Whether few rows are multiplied with a side that is read in place from beyond a core's own cache, and of which a
    panel stays near."""
    read, each = s.in_place(lanes), dt.itemsize(s.element)
    if read is None or size(s.c.m) > costs.USED_FED * costs.TILE_ROWS:
        return False
    is_far = nbytes([read]) > target.l2_bytes * target.threads
    return is_far and size(s.c.k) * lanes * costs.THIN_VECTORS * each <= costs.NEAR_BYTES


def _is_near_in_lines(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether panels that end with lines, read in place, stay in the first-level cache from one row tile to the
    next: with room for rows, of which those of small tiles need more."""
    s, panel = sides(p, k), panel_bytes(p, k)
    read = s.in_place(int(k["lanes"]))
    if read is None or not k["in_lines"]:
        return False
    is_spread = all(pitch(read.indices[0], a, s.element) % costs.SET_BYTES for a in s.c.k if a.extent > 1)
    return is_spread and (panel <= costs.NEAR_BYTES if target.spreads_operands else panel < costs.NEAR_BYTES)


def _usual_pack_panels(p: NestProblem, target: Target, k: Chosen) -> bool:
    if (lies_packed(p, k) and not _is_often_from_afar(p, target, k)) or _is_near_in_lines(p, target, k):
        return False
    if pieces(p, k).tiles <= costs.USED_ONCE and (
        sides(p, k).in_place(int(k["lanes"])) is not None or _is_computed_along(p, target, k)
    ):
        return False
    if _is_used_seldom(p, target, k) or _is_half_in_lines(p, target, k):
        return False
    return k["order"] == "panels" or not is_kept(p, target, k)


def _is_computed_along(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether the side with N is computed from whole vectors, without conditions. What one tile uses alone is packed
    for nobody: with weights of bf16, 4 and 6 rows took 0.65 and 0.67 of the time of packing them, 16 rows, three
    tiles, 1.04."""
    side, last = sides(p, k).c.right, sides(p, k).c.n[-1]
    if False not in _pack_panels(p, target, k).values or any(isinstance(e, Select) for e in postorder(side)):
        return False
    return all(not is_data_dependent(r) and stride(r.indices[0], last) in (0, 1) for r in input_reads(side))


def _turn(p: NestProblem, _: Target, k: Chosen) -> Range:
    s, lanes = sides(p, k), int(k["lanes"])
    read, chunk, n = direct_read(s.right_joined.side, s.element), s.chunk(lanes), s.stretch
    if not k["pack_panels"] or read is None:
        return one(False, "the side with N is not packed from one read")
    width = lanes * int(k["vectors"])
    valid = [v for v in (width if n >= width else 0, n % width) if v]
    for axis in s.right_joined.axes:
        block = block_lanes(axis, chunk)
        if block >= costs.LEAST_TURNED and any(v % block == 0 for v in valid) and is_turnable(read, s.c.n[-1], axis):
            return flags(True, "")
    return one(False, "no axis of K has squares of points along which the side with N is contiguous")


def _pack_loop(p: NestProblem, _: Target, k: Chosen) -> Range:
    chunks = int(k["lanes"]) * int(k["vectors"]) // sides(p, k).chunk(int(k["lanes"]))
    if not k["pack_panels"] or k["turn"]:
        return one(False, "panels are not packed in chunks")
    return flags(chunks > costs.MANY_CHUNKS, f"a panel of {chunks} chunks is written out")


def _usual_pack_loop(p: NestProblem, target: Target, k: Chosen) -> bool:
    return bool(_pack_loop(p, target, k).values[-1]) and sides(p, k).right_nodes > costs.LONG


PACK_PANELS: Knob[NestProblem] = Knob(
    "pack_panels",
    FLAG,
    "the side with N is packed, not read in place or computed in each tile",
    _pack_panels,
    _usual_pack_panels,
)
TURN: Knob[NestProblem] = Knob(
    "turn", FLAG, "it is packed in squares turned in registers", _turn, lambda p, t, k: _turn(p, t, k).values[-1]
)
PACK_LOOP: Knob[NestProblem] = Knob(
    "pack_loop", FLAG, "it is packed in a loop over chunks", _pack_loop, _usual_pack_loop
)


# --- by whom


def _ahead(_: NestProblem, __: Target, k: Chosen) -> Range:
    is_packed = bool(k["pack_panels"] if k["order"] == "panels" else k["pack"])
    return flags(is_packed, "what a task owns is not packed")


def _pack_parts(p: NestProblem, _: Target, k: Chosen) -> Range:
    if not (k["pack"] or k["pack_panels"]):
        return one(1, "nothing is packed")
    extent = sides(p, k).c.k[0].extent
    return up_to(extent, f"the first axis of K has {extent} points")


def _usual_pack_parts(p: NestProblem, target: Target, k: Chosen) -> int:
    """So many that there are tasks enough, each still of several points of K."""
    cut, extent = pieces(p, k), sides(p, k).c.k[0].extent
    if not k["parallel"] or not (k["pack"] or k["pack_panels"]):
        return 1
    enough = -(-costs.PACKING_TASKS * wanted_tasks(target, k) // cut.owners(str(k["order"]) == "tiles"))
    points = max(1, cut.k // costs.PACKED_POINTS)
    return max(1, min(extent, enough, points))


AHEAD: Knob[NestProblem] = Knob(
    "ahead", FLAG, "what a task owns is packed before the tasks, once", _ahead, lambda _, __, ___: False
)
PACK_PARTS: Knob[NestProblem] = Knob(
    "pack_parts", NUMBER, "parts of K that are packed apart before the tasks", _pack_parts, _usual_pack_parts
)


PREFETCHES = (1, 2, 4, 8, 16, 32)


def _is_streamed(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether a batch of both sides is more than a core's own cache holds, and a point of K of a tile few lines."""
    s, cut = sides(p, k), pieces(p, k)
    is_line = bool(k["pack"]) or (s.left_read is not None and stride(s.left_read.indices[0], s.c.m[-1]) == 1)
    return is_line and dt.itemsize(s.element) * cut.k * (cut.m + cut.n) > target.l2_bytes


def _is_beyond_first_cache(p: NestProblem, k: Chosen) -> bool:
    """Whether a panel, read in place at each point of one axis of K, leaves the first-level cache from one row tile to
    the next: it is more than that, or its lines share a few places there."""
    s = sides(p, k)
    read, (*others, last) = s.in_place(int(k["lanes"])), s.c.k
    if read is None or others:
        return False
    step = pitch(read.indices[0], last, s.element)
    collides = step >= costs.SET_BYTES and step % costs.SET_BYTES == 0 and last.extent >= costs.FETCHED_K
    return collides or panel_bytes(p, k) > costs.NEAR_BYTES


def goes_in_passes(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether row tiles would wait for a panel that the second-level cache holds, and rows read in place are no long
    stretches along K: tasks go through K in passes then."""
    s, width, last = sides(p, k), int(k["lanes"]) * int(k["vectors"]), sides(p, k).c.k[-1]
    if s.left_read is not None and stride(s.left_read.indices[0], last) == 1 and last.extent >= costs.SHORT_K:
        return False
    is_long = dt.itemsize(s.element) * size(s.c.k) * width > costs.PASSED_BYTES
    is_shared = k["order"] == "tiles" and not (k["pack"] and k["pack_panels"])
    is_even = not s.c.batch or pieces(p, k).batch % target.threads == 0
    return target.outruns_l2 and is_long and is_shared and is_even


def _is_worth_far_ahead(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether lines fetched far ahead are there when they are needed, and those fetched a little ahead are not: of a
    long K; of rows that come from afar and do not drive each other out."""
    s = sides(p, k)
    if size(s.c.k) < costs.FETCHED_LONG or k["pack"] or s.left_read is None:
        return size(s.c.k) >= costs.FETCHED_LONG
    step = pitch(s.left_read.indices[0], s.c.k[-1], s.element)
    is_far = nbytes([s.left_read]) > target.l2_bytes * target.threads
    is_spread = step % (costs.SET_BYTES // 2) != 0
    return step < costs.LINE_BYTES or (is_far and is_spread and not goes_in_passes(p, target, k))


def _is_packed_afar(p: NestProblem, k: Chosen) -> bool:
    """Whether the side with N lies as panels do, and is so large that a step has it from beyond a core's own cache."""
    s = sides(p, k)
    if s.right_read is None or not lies_packed(p, k):
        return False
    return nbytes([s.right_read]) >= costs.FETCHED_BYTES and size(s.c.k) >= costs.SHORT_K


def _is_far(s: Sides, target: Target) -> bool:
    """Whether the side with N is one read of more than the cores' own caches hold."""
    return s.right_read is not None and nbytes([s.right_read]) > target.l2_bytes * target.threads


def _lies(p: NestProblem, k: Chosen) -> bool:
    """Whether a side lies somewhere, packed or in place."""
    s = sides(p, k)
    is_left = bool(k["pack"]) or s.left_read is not None
    return is_left or bool(k["pack_panels"]) or s.in_place(int(k["lanes"])) is not None


def _prefetch(p: NestProblem, _: Target, k: Chosen) -> Range:
    if not _lies(p, k):
        return one(1, "both sides are computed in each tile")
    return Range(PREFETCHES, "1 is not at all, and what comes later than 32 points is gone before it is needed")


def _ahead_of_panels(p: NestProblem, target: Target, k: Chosen) -> int:
    """Ahead where what tiles go through is more than a core's own cache holds, or a panel too long for what a core
    fetches by itself, or for its first cache where it is read in place."""
    s, width = sides(p, k), int(k["lanes"]) * int(k["vectors"])
    if k["pack_panels"] and _is_streamed(p, target, k):
        is_far_ahead = not target.outruns_l2 or _is_worth_far_ahead(p, target, k)
        return costs.FETCHED_PACKED if is_far_ahead else costs.FETCHED_AHEAD
    if k["pack_panels"] and dt.itemsize(s.element) * size(s.c.k) * width > costs.LONG_PANEL_BYTES:
        return costs.FETCHED_AHEAD
    is_seldom = not k["pack_panels"] and _is_used_seldom(p, target, k)
    if is_seldom and _is_far(s, target):
        return costs.FETCHED_FAR
    if not k["pack_panels"] and strides_far(target, s.in_place(int(k["lanes"])), s.element, s.c.k):
        return costs.FETCHED_FAR
    if not k["pack_panels"] and target.outruns_l2 and _is_packed_afar(p, k):
        return costs.FETCHED_PACKED
    is_in_lines = k["in_lines"] and not k["pack_panels"] and pieces(p, k).tiles <= costs.USED_FED
    if is_in_lines and _is_far(s, target):
        return costs.FETCHED_AHEAD
    if not k["pack_panels"] and _is_beyond_first_cache(p, k):
        return costs.FETCHED_AHEAD
    is_long = size(s.c.k) >= costs.SHORT_K and int(k["vectors"]) <= costs.FETCHED_VECTORS
    is_packed = (k["pack"] or s.left_read is None) and k["pack_panels"]
    return costs.FETCHED_AHEAD if is_packed and is_long and target.outruns_l2 else 1


def _ahead_of_rows(p: NestProblem, target: Target, k: Chosen) -> int:
    """Ahead where rows, read in place, are in another line at each point of K, of a tensor far away, or in lines that
    drive each other out of the cache."""
    s = sides(p, k)
    if k["pack"] or s.left_read is None:
        return 1
    address = s.left_read.indices[0]
    step = pitch(address, s.c.k[-1], s.element)
    collides = step >= costs.SET_BYTES and step % costs.SET_BYTES == 0
    is_far = step >= costs.LINE_BYTES and (
        target.outruns_l2 or nbytes([s.left_read]) > target.l2_bytes * target.threads
    )
    return costs.FETCHED_AHEAD if (collides or is_far) and stride(address, s.c.m[-1]) == 1 else 1


def _usual_prefetch(p: NestProblem, target: Target, k: Chosen) -> int:
    """Panels, or else rows. Where loads of operands are all that a core can do beside multiply-adds, it had better
    fetch panels by itself: tiles took 0.82 to 0.95 of the time in steps on Zen 3, those of a grouped convolution of 4
    channels 0.71; rows of long sums in place took 1.03 to 1.16."""
    if not _lies(p, k):
        return 1
    if target.spreads_operands:
        ahead = _ahead_of_panels(p, target, k)
        return ahead if ahead > 1 else _ahead_of_rows(p, target, k)
    is_short = size(sides(p, k).c.k) < costs.FETCHED_K
    return 1 if k["pack_panels"] or is_short else _ahead_of_rows(p, target, k)


PREFETCH: Knob[NestProblem] = Knob("prefetch", NUMBER, "points of K ahead that are fetched", _prefetch, _usual_prefetch)
