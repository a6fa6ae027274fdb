"""Knobs of the `contraction` template: what a task owns, in which pieces it goes through K, how it writes.

A task owns a block of row tiles times a group of panels, of one part of K. With `passes`, it goes through its part of
K in as many blocks, one after the other, and its sums wait in memory of its thread: what a block needs stays in cache.
"""

from __future__ import annotations

import math

from neoflow.expr import dtype as dt
from neoflow.loops import costs, operands
from neoflow.loops.knob import FLAG, NUMBER, WORD, Chosen, Knob, Range, flags, one, up_to
from neoflow.loops.nest import pitch, stride
from neoflow.loops.problem import NestProblem, begins_registers, nbytes
from neoflow.loops.riding import adds_up, pieces_added
from neoflow.loops.tile import panel_bytes, pieces, places_beside, sides, wanted_tasks
from neoflow.target import Target

ORDERS, INNER, STORES = ("panels", "tiles"), ("tiles", "panels"), ("registers", "stack", "turned")
MOST_PASSES = 64
"""Blocks of K at most: each adds once more to a sum."""


def _parallel(_: NestProblem, target: Target, __: Chosen) -> Range:
    return flags(target.threads > 1, "there is one thread")


def _is_worth_sharing(p: NestProblem, target: Target, k: Chosen) -> bool:
    return target.threads > 1 and sides(p, k).c.flops >= costs.PARALLEL_FLOPS


# --- what a task owns


def _usual_order(p: NestProblem, target: Target, k: Chosen) -> str:
    """Panels packed by the task that owns them when there are enough tasks, or too much to pack to keep it all."""
    s = sides(p, k)
    c, address, cut, wanted = s.c, p.fused(k).outputs[0][1], pieces(p, k), wanted_tasks(target, k)
    blocks = min(cut.tiles, costs.BLOCKS_A_TASK * wanted)
    is_near = dt.itemsize(s.element) * cut.m * cut.k <= target.l2_bytes  # packed rows stay in the cache
    few = not k["pack"] or is_near or costs.ROWS_AGAIN * cut.m * cut.panels <= cut.n * blocks
    by_panels = cut.batch * cut.panels >= wanted and (few or cut.batch * cut.k * cut.n > costs.KEPT_ELEMENTS)
    # a batch inside the rows: tasks by rows then write one region after the other
    inner_batch = max((stride(address, a) or 0 for a in c.batch), default=0)
    is_inside = bool(c.batch) and inner_batch < max(stride(address, a) or 0 for a in c.m)
    if is_inside and cut.batch * cut.n * cut.k <= costs.INNER_BATCH_ELEMENTS:
        by_panels = False
    if _comes_from_afar(p, target, k) and cut.owners(by_panels=False) >= wanted:
        by_panels = False
    if not k["in_lines"] and operands.is_kept(p, target, k) and cut.owners(by_panels=False) >= wanted:
        by_panels = False
    if not by_panels and k["parallel"] and cut.owners(by_panels=False) < wanted:
        by_panels = cut.panels > cut.tiles
    return "panels" if by_panels or _has_long_k(p, target, k) else "tiles"


def _has_long_k(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether parts of K had better be tasks, which pack what they own: none waits for what others pack."""
    cut = pieces(p, k)
    if not (k["parallel"] and target.outruns_l2) or p.nest.sums or cut.batch >= wanted_tasks(target, k):
        return False
    return max(cut.m, cut.n) < costs.SHORT_SIDE and cut.k >= costs.LONG_K * max(cut.m, cut.n)


def _comes_from_afar(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether the side with M, read in place, would come from beyond a core's own cache again for each panel, and all
    panels stay there: packed before, they meet each block of row tiles while it is near. With one thread on Zen 4
    convolutions of capsules took 0.68 and 0.87 of the time so, others and matrix products 0.90 to 1.01."""
    s, cut = sides(p, k), pieces(p, k)
    if k["pack"] or s.left_read is None or s.c.batch or cut.panels == 1:
        return False
    panels = dt.itemsize(s.element) * cut.k * cut.n
    return nbytes([s.left_read]) > target.l2_bytes and panels <= target.l2_bytes * costs.PANEL_CACHE_SHARE


def _splits(p: NestProblem, _: Target, k: Chosen) -> Range:
    if p.nest.sums:
        return one(1, "a tile that is not complete is not added up")
    extent = sides(p, k).c.k[0].extent
    return up_to(extent, f"the first axis of K has {extent} points")


def _usual_splits(p: NestProblem, target: Target, k: Chosen) -> int:
    if p.nest.sums:
        return 1
    cut, wanted = pieces(p, k), wanted_tasks(target, k)
    tasks = cut.owners(k["order"] == "panels")
    splits = math.ceil(wanted / tasks) if k["parallel"] and tasks < wanted and cut.k >= costs.SPLIT_K else 1
    splits = max(splits, _near_parts(p, target, k), _fed_parts(p, target, k))
    if splits > 1 and target.outruns_l2 and k["order"] == "tiles":  # parts of which all panels stay, for all row tiles
        splits = max(splits, min(_near_parts(p, target, k, cut.n), cut.k // (costs.PART_ROWS * cut.m)))
    return min(splits, sides(p, k).c.k[0].extent)


def _near_parts(p: NestProblem, target: Target, k: Chosen, width: int | None = None) -> int:
    """Parts of K of which so many points of N, or a panel, stay in a core's own cache."""
    width = int(k["lanes"]) * int(k["vectors"]) if width is None else width
    return math.ceil(4 * pieces(p, k).k * width / (target.l2_bytes * costs.PANEL_CACHE_SHARE))


def _fed_parts(p: NestProblem, target: Target, k: Chosen) -> int:
    """Parts of a K that is long beside the outputs of which a panel nearly stays in the first-level cache, where tiles
    would go through it faster than the second brings it; 1 where there are not so many parts."""
    cut, parts = pieces(p, k), _panel_parts(p, k, costs.FED_PANEL_BYTES)
    is_long = cut.k >= costs.LONG_K * min(cut.m, cut.n) and parts <= sides(p, k).c.k[0].extent
    is_fed = target.spreads_operands or operands.is_fed(p, target, k)
    return parts if k["parallel"] and is_long and not is_fed else 1


def _panel_parts(p: NestProblem, k: Chosen, nbytes: int) -> int:
    """Parts of K of which a panel has so many bytes at most."""
    return math.ceil(panel_bytes(p, k) / nbytes)


def _passes(p: NestProblem, _: Target, k: Chosen) -> Range:
    extent = math.ceil(sides(p, k).c.k[0].extent / int(k["splits"]))
    return up_to(min(MOST_PASSES, extent), f"a part of the first axis of K has {extent} points, and passes are few")


def _usual_passes(p: NestProblem, target: Target, k: Chosen) -> int:
    """Where K is in no parts because of what rides along, as many; or so many that a panel stays in the first-level
    cache while the row tiles of a task go over it, where these would wait for the second."""
    most = int(_passes(p, target, k).values[-1])
    if p.nest.sums:
        return min(_near_parts(p, target, k), most)
    if int(k["splits"]) > 1 or not operands.goes_in_passes(p, target, k):
        return 1
    passes = min(_panel_parts(p, k, costs.NEAR_BYTES), most)
    return passes if _near_tiles(p, target, k, passes) > 1 else 1


def _near_tiles(p: NestProblem, target: Target, k: Chosen, passes: int) -> int:
    """Row tiles of a task that goes over each panel with several: their rows of a pass, and sums that wait for the next
    one, stay in a core's own cache, and no thread has a tenth more of them than another. A batch may be a task each."""
    s, cut, splits = sides(p, k), pieces(p, k), int(k["splits"])
    each = dt.itemsize(s.element) * cut.rows * (cut.k // passes + (cut.n if splits == 1 else 0))
    most = cut.batch * cut.tiles * splits // wanted_tasks(target, k)
    if splits == 1:
        share = -(-cut.batch * cut.tiles // wanted_tasks(target, k))
        most = min(share, int(target.l2_bytes * costs.PASSED_SHARE) // each)
    fair = costs.UNEVEN * cut.batch * cut.tiles * splits / target.threads
    those = range(1, min(most, cut.tiles) + 1)
    even = [n for n in those if n * math.ceil(math.ceil(cut.tiles / n) * cut.batch * splits / target.threads) <= fair]
    return max(even, default=1)


def _tiles(p: NestProblem, _: Target, k: Chosen) -> Range:
    return up_to(pieces(p, k).tiles, f"there are {pieces(p, k).tiles} row tiles")


def _usual_tiles(p: NestProblem, target: Target, k: Chosen) -> int:
    cut, wanted = pieces(p, k), wanted_tasks(target, k)
    if k["order"] == "panels":
        return cut.tiles
    passes = int(k["passes"])
    if sides(p, k).c.batch and (passes == 1 or not target.outruns_l2):
        return 1
    if target.outruns_l2 and not p.nest.sums and (passes > 1 or int(k["splits"]) > 1):
        return _near_tiles(p, target, k, passes)
    usual = min(costs.MOST_TILES_A_BLOCK, cut.tiles // (costs.BLOCKS_A_TASK * wanted))
    if dt.itemsize(sides(p, k).element) * cut.k * cut.n > target.l2_bytes:  # panels come from beyond it for each block
        is_long = not target.spreads_operands and cut.k >= costs.SPLIT_K
        most = max(costs.FAR_TILES_A_BLOCK, costs.FAR_ROWS_A_BLOCK // cut.rows if is_long else 0)
        return max(1, min(most, cut.tiles // wanted))
    is_near = target.outruns_l2 and usual <= 1 and _touched(p, k) <= target.l2_bytes  # else streams, a row each, pay
    return _near_tiles(p, target, k, passes) if is_near else max(1, usual)


def _touched(p: NestProblem, k: Chosen, is_streamed: bool = False) -> int:
    """Bytes that tiles write, unless past the caches, and read beside their sums."""
    s, cut = sides(p, k), pieces(p, k)
    written = 0 if is_streamed else len(s.nest.outputs)
    count = written + len(places_beside(s.written, s.c.m, s.c.n))
    return cut.batch * cut.m * cut.n * count * dt.itemsize(s.element)


def _panels(p: NestProblem, _: Target, k: Chosen) -> Range:
    return up_to(pieces(p, k).panels, f"there are {pieces(p, k).panels} panels")


def _usual_panels(p: NestProblem, target: Target, k: Chosen) -> int:
    """One for a task that owns panels, but for so many that finding each takes as long as summing a short K, or that
    add to one partial sum."""
    cut, s = pieces(p, k), sides(p, k)
    if k["order"] != "panels":
        return cut.panels
    if adds_up(s.c.n, s.nest) and not s.is_usually_turned(int(k["tile_rows"])):  # a number for each lane
        fair = cut.batch * cut.panels // wanted_tasks(target, k)
        return max(1, min(cut.panels, fair, pieces_added(int(k["lanes"]) * int(k["vectors"]))))
    if cut.k > costs.SHORT_K:
        return 1
    enough = costs.GROUPS_A_TASK * wanted_tasks(target, k)
    return max(1, min(cut.panels, cut.batch * cut.panels * int(k["splits"]) // enough))


def _inner(_: NestProblem, __: Target, k: Chosen) -> Range:
    if k["order"] == "panels" and k["pack_panels"] and not k["ahead"]:
        return one("tiles", "a panel that its task packs is gone through at once")
    return Range(INNER, "row tiles or panels")


# --- how it writes


def _store(p: NestProblem, _: Target, k: Chosen) -> Range:
    s, lanes = sides(p, k), int(k["lanes"])
    if int(k["splits"]) > 1:
        return one("stack", "partial sums are added row by row, through memory")
    found = ["stack"]
    if s.has_lines and s.line_chunk(lanes) == lanes:
        found.insert(0, "registers")
    if s.is_written_along_m:
        found.append("turned")
    return Range(tuple(found), "a vector of N is not one of every output, or neighbouring rows are not")


def _usual_store(p: NestProblem, target: Target, k: Chosen) -> str:
    allowed, s = _store(p, target, k), sides(p, k)
    if "turned" in allowed and s.is_usually_turned(int(k["tile_rows"])):
        return "turned"
    return "registers" if s.written_nodes <= costs.SHORT and "registers" in allowed else "stack"


def _stream(p: NestProblem, target: Target, k: Chosen) -> Range:
    is_whole = k["store"] != "turned" and int(k["splits"]) == 1 and _is_in_registers(p, target, k)
    return flags(is_whole, "what a tile writes is no whole registers, or partial sums")


def _is_in_registers(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether every vector that a tile stores of a whole panel begins at a whole register of its output."""
    s = sides(p, k)
    (*_, last), formulas = s.lines
    lanes, outputs = s.line_chunk(int(k["lanes"])), formulas[: len(s.nest.outputs)]
    return all(begins_registers(address, value.dtype, last, lanes, target) for _, address, value in outputs)


def _usual_stream(p: NestProblem, target: Target, k: Chosen) -> bool:
    s, cut = sides(p, k), pieces(p, k)
    own = cut.batch * cut.m * cut.n * sum(dt.itemsize(value.dtype) for value in s.written)
    return own >= costs.STREAMED_TILES_BYTES and bool(_stream(p, target, k).values[-1])


def _fetch(p: NestProblem, _: Target, k: Chosen) -> Range:
    if k["stream"] and not _touched(p, k, is_streamed=True):
        return flags(False, "nothing is read beside the sums, and what is written goes past the caches")
    return flags(int(k["splits"]) == 1 and int(k["passes"]) == 1, "a tile does not write what it has summed at once")


def _usual_fetch(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Where it comes from beyond the cores' own caches, and takes a small part of the time of the sums; but where rows
    lie so near each other that a fast core has them fetched by itself."""
    s, cut = sides(p, k), pieces(p, k)
    least = costs.FETCHED_TURNED_K if k["store"] == "turned" else costs.FETCHED_K
    if not _fetch(p, target, k).values[-1] or cut.k < least:
        return False
    apart = pitch(p.fused(k).outputs[0][1], s.c.m[-1], s.element)
    if target.outruns_l2 and k["store"] != "turned" and 0 < apart <= costs.NEAR_ROWS_BYTES:
        return False
    return _touched(p, k, bool(k["stream"])) > target.l2_bytes * target.threads


def _tiles_over_panel(p: NestProblem, k: Chosen) -> int:
    """Row tiles of a task that go over a panel one after the other."""
    return min(int(k["tiles"]), pieces(p, k).tiles) if k["inner"] == "tiles" else 1


def _lines_fetched(p: NestProblem, k: Chosen) -> int:
    """Of a panel that is read in place, the lines that each row tile of the one before it would fetch."""
    width = int(k["lanes"]) * int(k["vectors"])
    lines = math.ceil(width * dt.itemsize(sides(p, k).element) / costs.LINE_BYTES)
    return lines * math.ceil(pieces(p, k).k / _tiles_over_panel(p, k))


def _next_panel(p: NestProblem, _: Target, k: Chosen) -> Range:
    s, width = sides(p, k), int(k["lanes"]) * int(k["vectors"])
    if k["pack_panels"] or s.in_place(int(k["lanes"])) is None:
        return one(False, "panels are not read in place")
    if _tiles_over_panel(p, k) == 1:
        return one(False, "no row tiles go over a panel one after the other")
    if int(k["splits"]) > 1 or int(k["passes"]) > 1:
        return one(False, "panels are of parts of K")
    is_in_line = len(s.c.n) == 1 or bool(k["in_lines"]) or s.c.n[-1].extent % width == 0
    return flags(is_in_line, "the next panel begins elsewhere, where a line ends")


def _usual_next_panel(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Where that comes from beyond the cores' own caches, or from beyond one's and points of K lie in the same page or
    the next, and no point of K is fetched ahead: a core sees a panel only when its first row tile waits for it."""
    s = sides(p, k)
    read = s.in_place(int(k["lanes"]))
    if read is None or target.spreads_operands or int(k["prefetch"]) > 1 or not _next_panel(p, target, k).values[-1]:
        return False
    is_near = pitch(read.indices[0], s.c.k[-1], s.element) <= costs.SET_BYTES
    kept = target.l2_bytes * (1 if is_near else costs.SHARED_CACHES * target.threads)
    return nbytes([read]) > kept and _lines_fetched(p, k) <= costs.NEXT_LINES


PARALLEL: Knob[NestProblem] = Knob("parallel", FLAG, "threads share the tasks", _parallel, _is_worth_sharing)
ORDER: Knob[NestProblem] = Knob(
    "order", WORD, "what a task packs", lambda _, __, ___: Range(ORDERS, "panels or tiles"), _usual_order, ORDERS
)
SPLITS: Knob[NestProblem] = Knob("splits", NUMBER, "parts of K that are tasks", _splits, _usual_splits)
PASSES: Knob[NestProblem] = Knob(
    "passes", NUMBER, "blocks of K that a task goes through one after the other", _passes, _usual_passes
)
TILES: Knob[NestProblem] = Knob("tiles", NUMBER, "row tiles that a task owns", _tiles, _usual_tiles)
PANELS: Knob[NestProblem] = Knob("panels", NUMBER, "panels that a task owns", _panels, _usual_panels)
INNERMOST: Knob[NestProblem] = Knob(
    "inner", WORD, "what a task goes through fastest", _inner, lambda _, __, ___: "tiles", INNER
)
STORE: Knob[NestProblem] = Knob(
    "store", WORD, "how a tile gets from the registers to the outputs", _store, _usual_store, STORES
)
STREAM: Knob[NestProblem] = Knob("stream", FLAG, "what is written goes past the caches", _stream, _usual_stream)
FETCH: Knob[NestProblem] = Knob(
    "fetch", FLAG, "what a tile reads beside its sums, and writes, is fetched before them", _fetch, _usual_fetch
)
NEXT_PANEL: Knob[NestProblem] = Knob(
    "next_panel", FLAG, "row tiles fetch what the next panel reads, each a part", _next_panel, _usual_next_panel
)
