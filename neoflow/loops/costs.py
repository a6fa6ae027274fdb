"""The numbers of the default schedules, each with where it comes from.

"Fitted" ones were set by timing the kernels of the models and of `benchmarks/kernels.py` on two cores of Zen 4 and
Zen 5 (AVX-512) and rounded: the choice matters where they differ by a factor, not by a tenth. A search replaces all
of them.
"""

from __future__ import annotations

from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Expr, Read, postorder

# --- tasks

PARALLEL_WORK = 32_768
"""Elementary operations below which sharing costs more than it saves: in vectors of 16 a core does so many in about
1 us, of which two threads save half; the barrier takes 0.1 to 0.2 us, what one core wrote and the other reads the rest.
A quarter and a sixteenth of it were no faster on capsnet, mi_lstm and shufflenet."""
PARALLEL_FLOPS = 8 * PARALLEL_WORK
"""The same for the operations of register tiles, several times as fast as those of other loops. Fitted."""
MAP_TASKS = 8
"""Tasks a thread of a map: when they are equal and fewer, the last one to finish is late by more than an eighth."""
CONTRACTION_TASKS = 4
"""Tasks a thread of a contraction, where each has its own panel or row tiles to pack."""
REDUCTION_TASKS = 2
"""Tasks a thread of a reduction; with fewer the reduced axis is split."""
SPLIT_REDUCED, SPLIT_K = 1024, 512
"""Terms of a sum from which parts of it are worth a second pass over partial sums. Fitted."""

# --- registers

UNROLLED_VECTORS = 4
"""Vectors reduced side by side: the latency of an addition, 4 cycles on every x86-64 core of ten years."""
GATHERED_VECTORS, GATHERED_REGISTERS = 2, 32
"""Those of sums over windows that go two points at a time, each vector put together of two loads, and registers that
hold more of them: of 3 and 4 depthwise convolutions and poolings took 1.08 to 1.25 times as long with 16 (Zen 3)."""
UNROLLED_K = 4
"""Length of the innermost K axis up to which it is written out; of a longer one so many points with 16 registers, where
26 products and 1x1 convolutions took 0.85 to 1.03 of the time, 0.98 in the median (8 points: 0.97 to 1.07; Zen 3). With
32 registers, and as many sums in a step, that was not measured."""
SHORT_ROW_VECTORS = 12
"""Vectors of neighbouring short rows that are reduced together, of 16 or 32 registers: the body needs some too."""
WAITED_FOR, PAIRS = 12, 4
"""Operations of a point of a map from which vectors are two registers, and how many such vectors a row must have: each
step of a polynomial waits for the one before, and two take turns; 1.05 to 1.2 times as fast for tanh, gelu and exp."""
WIDE_VECTORS, WIDE_SUM, LONG_SUM = (16, 8), 64, 128
"""Vectors of a wide row that are summed side by side down so many rows, the most that there are rows and registers for:
a KiB of each, or half, which memory fetches as one stretch; from the third-level cache 512 bytes are 1.3 times as fast
as 256, and a KiB 1.15 to 1.4 times as fast as 512; down 64 rows 1.1 to 1.3 times in the steps of recurrent models. In
row kernels, whose rows are strips of 64 columns, 8 vectors take 0.77 to 0.99 of the time of 4, and with terms of later
pages fetched 0.75 to 0.91 of that (MI-LSTM, BERT, capsules, on Zen 3).
LONG_SUM: rows from which terms from afar are fetched, and added to all sums at once. Fitted."""
SHARED_STEPS, SHORT_AXIS = 4, 8
"""Points of a reduced axis that are taken together where windows go along it one by one: of 3 points each, 22 loads for
36 products in place of 40; 7 were no faster from a core's own cache, and slower from beyond. Where windows go in larger
steps they share less: then all of a short axis or none. Fitted to depthwise convolutions, on Zen 4."""
LONG_WINDOW = 3
"""Points of a window from which neighbours share most of it: of 2 rows side by side were not surely faster."""
SHARED_OUTPUTS = 16
"""Outputs at most that slide over one read together, sums in lanes: of a window of 3 by 3 all, as gradients of
depthwise weights go through memory once then in place of three times: 0.53 to 0.73 of the time with 16 samples, 0.6 to
1.1 with one (Zen 3, two threads); of windows of two channels, which share nothing, 1.2 to 2.2."""
FEW_IN_LANES = 256
"""Terms of sums in lanes up to which all read one side of them from registers: steps of small recurrent models for one
sample took 0.87 to 0.97 of the time, sums of 512 and more, which come from farther, 1.0 to 1.1 (Zen 3)."""
FEW_TERMS = 16
"""Terms of a maximum up to which a core overlaps one output with the next by itself: rows side by side only make more
streams of memory than it fetches ahead. Fitted to pooling."""
NARROW_BYTES = 16
"""Of longer vectors, what a contraction fills at most where its terms fill all: gradients of weights of groups of 4
channels, 4 to a side, took 1.6 to 1.8 times as long as sums in lanes (Zen 4; 1.8 by vectors of 8 on Zen 3)."""
WRITTEN_TERMS = 96
"""Terms of vectors side by side that are written out together: guards at the border of a window are then decided for
each, which is most of what padded pooling computes. More is code that takes longer to compile than it saves."""
WRITTEN_IN_ALL = 1536
"""The same of a kernel of many sums: 79 of 16 rows, four vectors side by side, were 64,000 statements."""
TILE_ROWS, SPARE_REGISTERS = 14, 2
"""Rows of a register tile at most, and registers left for what is not an accumulator or a vector of the panel: 14 rows
of 2 vectors and the 2 of the panel are 30 of 32."""
FEWEST_SUMS = 6
"""Vectors of sums that one window of rows has at least, to be a tile of its own: of 3 rows and 2 vectors tiles took 0.6
to 0.7 of the time of 2 and 1 such windows, whose sums were in memory (Zen 3); of 3 rows and one vector 1.8."""
FEW_TILES, FEWER_ROWS, ROWLESS = 4, 4, 3.0
"""Row tiles a thread up to which their rows are chosen so that threads have as many; rows fewer than there is room for
that this may take; and what a tile takes for each point of K beside its rows, in rows."""
TILE_VECTORS = (1, 2, 3, 4, 5)
"""Vectors of a register tile that the default chooses from; with six, four rows are left of 32 registers."""
FEW_ROWS, LONG_TILE = 4, (6, 7)
"""Points of M up to which longer rows are tried too: no more than these could be in a tile."""

FETCHED_CACHE_SHARE = 0.25
"""What a row fetches for the next one takes at most this part of the level-2 cache. With 0.8 of it batch norm over
planes of 112 x 112 was 1.1 times as slow as without."""

TERMS_ACROSS = 8
"""Terms that are added at once to all outputs: rows of memory that are read side by side, as many streams as a core
follows. On an Intel Xeon columns of 1,024 to 16,384 rows, summed so, come at 49 to 53 GB/s, down strips of 64 to 256
columns at 25 to 38. Fitted."""
FETCHED_TERMS = 8
"""Terms after which what is fetched is read, down columns. Fitted."""

HIDES_LOADS, FETCHED_ROWS_BYTES = 16, 512
"""Operations on what is read from which a map fetches what later rows read, and how far at least, in whole rows: a
core has 256 to 512 instructions in work, and with more than that for a vector does not come to the next loads before it
waits for these. In steps of recurrent models gradients of gates, which read five to eight tensors of steps long past,
take 0.56 to 0.93 of the time with it, other maps 0.84 to 1.05; what moves elements 0.55 to 1.25 (Zen 3). What is
written fetched too changes nothing. Fitted."""

LEAST_PIECES, PIECE_BYTES = 4, 1 << 16
"""Pieces that the terms of an output lie in, and bytes of one at most, where the next one is fetched: behind the last
one something else is."""

STREAMED_BYTES = 1 << 25
"""Bytes that a kernel writes from which they are stored past the caches: no core's last one keeps them until they are
read, and a line that is stored in the usual way is fetched from memory first. Measured on Zen 4: 1.4 times as fast from
here on, as fast as usual at a third of it."""

STREAMED_TILES_BYTES = 24 << 20
"""The same of what the tiles of a contraction write. On an Intel Xeon (18 GB/s of stores, 49 past the caches, of 256
MB) convolutions that write 25 and 51 MB took 0.60 to 0.87 of the time in steps of ResNet-50 and MobileNet; what writes
6 to 16 MB took 0.61 to 1.72, as what the program touches meanwhile leaves room in the last cache: that is found out in
the step (`instep.streamed`)."""

# --- what is packed, and by whom

REPACKED_PANELS = 6
"""Panels from which packing a side that can be read in place pays: each reads it again. Fitted."""
PACKED_FLOPS = 1 << 23
"""Work from which that pays where multiply-adds outrun the level-2 cache, as threads wait for each other before what is
packed: 14 kernels in steps of ShuffleNet, CapsNet and SqueezeNet, one image, take 0.82 to 1.05 of the time without, on
an Intel Xeon. Fitted."""
FEW_FLOPS, FEW_LINES = 1 << 25, 2
"""The same where loads do not spread operands, and of so few lines a place of the first-level cache that tiles find
them there again: on Zen 3 26 kernels in steps of ShuffleNet, CapsNet and recurrent models take 0.83 to 1.06 of the time
without, 0.94 on average. Fitted."""
LONG_ROW, FEW_PANELS = 512, 16
"""Points of the innermost K along which such rows lie, and panels, up to which those are read in place too: weights'
gradients in steps of MobileNet and ResNet-50 take 0.87 to 1.06 of the time, 0.93 on average, but up to 1.12 along 196
points and 1.19 along 49. Fitted."""
LONG_K, SHORT_SIDE = 16, 256
"""How many times as many points of K as of M, or N, there are, of which there are fewer than that many, where parts of
K are tasks that pack panels themselves, and multiply-adds outrun the level-2 cache. On an Intel Xeon 23 gradients of
weights take 0.52 to 1.06 of the time within a step so, 0.80 on average. Fitted."""
KEPT_ELEMENTS = 1 << 22
"""Elements of packed panels (16 MB, more than a core's share of the last cache) too many to be packed before the
tasks."""
INNER_BATCH_ELEMENTS = 1 << 23
"""The same where the batch lies inside the rows: tasks by rows then write one region after the other."""
IN_PLACE_BYTES, IN_PLACE_TILES = 1 << 21, 200
"""A side that all tasks share is read in place, where it can be, up to so many bytes a batch (the level-2 caches of two
cores) and so many passes over it, from which the stride of its rows costs more than packing. Fitted."""
HALVED_BYTES, HALVED_LINES = 3 << 17, 128
"""Bytes of such a side, and points of K, from which two cores rather pack half of it each than read all of it, where
multiply-adds outrun the second cache. Within a step, where it comes from another core's cache, 1x1 convolutions of
MobileNet and ResNet-50 at batch 1 take 0.49 to 0.98 of the time on an Intel Xeon; those of 64 channels 0.9 to 1.3, of
four times as many outputs as inputs 1.15. Fitted."""
HALVED_TILES = 24
"""Row tiles up to which they do where multiply-adds do not outrun that cache, nor loads spread operands, and the side
is more than it holds: on Zen 3 1x1 convolutions of one image in steps of MobileNet, ResNet-50 and SqueezeNet take 0.59
to 0.77 of the time with 8 and 11 tiles, 0.75 to 1.0 with 22, 0.95 to 1.1 with 43. Fitted."""
USED_ONCE = 1
"""Row tiles up to which a side that can be read in place is not packed: it would be read no more than once again."""
GONE_DOWN = 8
"""Row tiles above which a panel that the first cache does not keep is packed, where loads do not spread operands: on
Zen 3, 9 to 86 tiles of 1,024 to 1,728 points of K took 0.74 to 0.97 of the time; 5 took 1.14."""
USED_SELDOM, FETCHED_FAR = 4, 16
"""Row tiles up to which a side that is in another page at each point of K is read in place too, and points of K that
are then fetched ahead: 1.4 times as fast for the weights of 512 channels of 3x3 as packing them. Fitted."""
USED_OFTEN = 32
"""Row tiles above which a side that lies in memory nearly as panels do is packed all the same, where it is more than a
core's own cache holds and multiply-adds outrun that: gradients of a BERT layer's weights take 0.90 to 0.96 of the time
on an Intel Xeon. Fitted."""
FED_BYTES, USED_FED, USED_ACROSS_LINES = 5, 8, 2
"""Bytes of a panel for each cycle of a tile up to which lines come from the third-level cache as fast as a tile goes
through them (14 rows of 2 vectors need 4.6 at a multiply-add a cycle, 9.1 at two), and row tiles up to which a side is
read in place then, and where each vector lies in two lines: of the time of packing, products of 20 to 112 rows take
0.73 to 0.92 on Zen 4, but 1.2 to 1.5 across lines from 4 tiles on."""
THIN_VECTORS = 2
"""Vectors of a panel of which all of K stays near where panels end with lines: grouped 1x1 convolutions of 20 to 80
rows over 28 x 28 points take 0.65 to 0.8 of the time on Zen 4."""
ROWS_AGAIN = 2
"""How many times as much may be read of rows again, for each panel, as of panels again for each block of rows, before
tasks own blocks of rows. Fitted."""
PANEL_CACHE_SHARE = 0.75
"""A panel takes at most this part of the level-2 cache: the rest is for rows and results. Half of it was slower for
512 channels of 7x7, as are sums in parts."""
PACKING_TASKS, PACKED_POINTS = 1, 16
"""Tasks of packing for each task that is wanted, and points of K from which a part of a panel is one."""
FETCHED_AHEAD, LONG_PANEL_BYTES = 8, 1 << 17
"""Points of K that are fetched ahead where those of a line each would drive each other out, and of panels of more bytes
than these: 1.04 to 1.08 times as fast for 256 and 512 channels of 3x3; of panels that are read in place where the first
cache does not keep them, 1.1 to 1.6 times on an Intel Xeon. Fitted."""
FETCHED_PACKED = 32
"""Points of K that are fetched ahead where both sides are packed and more than a core's own cache holds: an Intel Xeon
(2 MB of its own, 11 bytes a cycle and 300 cycles from the third level) then takes 0.8 to 0.95 of the time, whatever the
tile, and of 64 no less. Each is a load where 14 rows of 2 vectors leave a third of the loads idle. Fitted."""
FETCHED_BYTES = 1 << 19
"""Bytes of a side that lies in memory as panels do, read in place, from which lines are fetched far ahead: weights that
come from beyond a core's own cache in each step. Within inference of ResNet-50, ResNeXt-50 and NASNet, one image, on an
Intel Xeon 0.4 to 0.95 of the time. Fitted."""
PASSED_BYTES, PASSED_SHARE, UNEVEN = 1 << 16, 0.5, 1.1
"""Where multiply-adds outrun the level-2 cache: bytes of a panel from which tasks go through K in passes; the part of
that cache that a task's rows of a pass and its sums take; and how many times its share of row tiles a thread may have
so. On an Intel Xeon products of 64 rows and 2,048 points of K take 0.56 to 0.8 of the time. Fitted."""
PART_ROWS = 2
"""Points of K of a part, where K is in parts that are tasks, for each row: fewer are written as partial sums too often
to gain by parts of which all panels stay in the second-level cache. Gradients of 1x1 and 3x3 weights, 16 images, take
0.76 to 0.83 of the time so on an Intel Xeon. Fitted."""
FETCHED_LONG, FETCHED_VECTORS = 256, 3
"""Where multiply-adds outrun the level-2 cache: points of K from which panels are worth fetching far ahead, of fewer
and of rows read in place those `FETCHED_AHEAD` are; and vectors of a panel up to which short ones, and rows in another
line at each point, are fetched ahead too. On an Intel Xeon 0.82 to 1.0 of the time. Fitted."""
FETCHED_K, FETCHED_TURNED_K = 20, 1024
"""Points of K from which a tile takes long enough to fetch what it writes meanwhile; where it is written turned, a line
is a few elements, and there are as many more of them. Fitted. On an Intel Xeon 19 kernels of 20 to 128 points of K in
steps of ResNet-50, MobileNet and ShuffleNet take 0.77 to 1.02 of the time so, 0.89 on average; run again and again,
with what they write in the third-level cache, 0.99 to 1.10: steps have it in memory."""
NEAR_ROWS_BYTES = 512
"""From row to row of what is written: so near it is not fetched where multiply-adds outrun the level-2 cache. Products
of 65,536 rows of 32 to 128 points take 1.04 to 1.08 of the time with it, on an Intel Xeon. Fitted."""
MOST_TILES_A_BLOCK, BLOCKS_A_TASK, FAR_TILES_A_BLOCK = 8, 4, 6
"""Row tiles that are one block at most, and blocks that are left for each task that is wanted; and row tiles of a block
where not all panels stay in the level-2 cache, so that each block waits for them once more. Fitted: on an Intel Xeon
the products of a layer of BERT at batch 8 take 0.92 of the time with 6 tiles in place of 1 or 2; those of 1024^3 and
2048^3 0.96 to 1.01."""
FAR_ROWS_A_BLOCK = 160
"""Rows of such a block where tiles have few, as loads do not spread operands, and K is as long as `SPLIT_K`: on Zen 3
products in steps of BERT, MobileNet and MI-LSTM take 0.77 to 1.11 of the time of blocks of 36 rows, 0.95 in all; of 84
rows 0.96, of 400 0.95; of 128 points of K 1.05."""
FED_PANEL_BYTES = 1 << 16
"""Bytes of a panel of a part of K, which is `LONG_K` times as long as the outputs or more, where tiles outrun the
level-2 cache and loads do not spread operands. On Zen 3 14 gradients of weights in steps of ShuffleNet, MobileNet,
ResNet-50 and CapsNet take 0.84 to 1.01 of the time of parts whose panel fits that cache, or of none, 0.91 on average;
half of it 0.95, twice as much 0.97."""
NEXT_LINES = 40
"""Lines of the next panel that a row tile fetches at most, before its sums: twice as many as a core waits for at once.
Grouped 1x1 convolutions and their gradients, 16 images of ShuffleNet, whose planes are 0.2 to 3 KiB, take 0.66 to 0.95
of the time so, 0.84 on average, MobileNet's 0.94 to 1.0; of one image, of larger planes and 1.6 to 3.2 MB in all, 0.9
to 1.1; with more lines 0.94 to 1.5 (Zen 3). Fitted."""
SHORT_K, GROUPS_A_TASK = 64, 8
"""Points of K up to which a task owns more than one panel, and groups of panels that are left for each task that is
wanted: 32 for each thread. Panels of 36 points of K were a third faster in groups."""

# --- estimated cycles of a contraction on one core

TILE_CYCLES, REGISTER_CYCLES, STEP_CYCLES = 50, 4, 3
"""What a register tile costs beside its multiply-adds: entering and leaving it, clearing and storing each accumulator,
each step of K. Fitted."""
SHARED_ROWS, SPILLED = 8, 1.4
"""Registers of rows that LLVM keeps from one step to the next where both read them, and how many times as long a tile
takes that has too few left. Fitted."""
LATENCY = 4.0
"""Cycles of a multiply-add: so many accumulators for each unit keep it busy."""
FEW_VECTORS, ENOUGH_SUMS, MORE_ROWS = 2, 10, 1.2
"""Vectors of a row of most tiles; of how many accumulators none waits for its last sum, whatever else delays it; and
how many times the rows are worth that they lie further apart: capsules of 4 x 4 have tiles of 4 rows, or of 5 and 6
along the next axis, which take 0.86 to 0.94 of the time on Zen 3."""
PACK_ELEMENT, PACK_CHUNK, PACK_LANES, PACK_TURNED = 3.0, 2.0, 4, 0.6
"""Cycles of packing an element by itself and a vector at once; the side with M is computed so many at a time; of an
element of a square that is turned in registers. Fitted."""
SHARED_ELEMENT, SHARED_CACHES = 1.5, 2
"""Cycles of writing and reading again an element that is packed for all tasks, of more than so many times what the
cores' own caches hold. Fitted to the products of capsules."""
LEAST_TURNED = 4
"""Lanes of a square from which turning it in registers takes fewer instructions than gathering."""
NEAR_BYTES, STREAMED_LINE = 1 << 15, 0.8
"""Bytes of a panel that stay in the first-level cache from one row tile to the next, and cycles of a line of one that
does not. Fitted."""
LINE_BYTES, SET_BYTES, WAYS = 64, 4096, 4
"""A line of the cache; addresses so far apart share the lines of its first level, of which eight or twelve are kept on
every x86-64 processor of ten years: so many of them for the rows of a tile."""
NEAR_STEP = SET_BYTES // 2
"""Bytes of a step of the innermost K up to which a row, read in place, stays in its page for a few steps: on an Intel
Xeon weight gradients over 16 images are 1.1 to 1.9 times as fast along lines of an image as along the images."""
LOST_LINE = 20
"""Cycles of a line that others have driven out before it was used up. Fitted."""
MANY_LINES, REREAD_LINE = 64, 3.0
"""Lines a place of the first-level cache of which the second does not keep all either, and cycles of each that a tile
comes to, where loads do not spread operands: on Zen 3 products of 49 and 64 rows, A B and A^T B, with 512 to 2,048
points of K in a page each, take 0.53 to 0.84 of the time by the other side; those of 196 to 768 rows whose panels, read
in place, have more such lines 0.53 to 1.0 of it packed, 0.83 on average. Fitted."""
WRITE_CHUNK, WRITE_PIECE, TURN_ELEMENT, TURNED_LINE = 2.0, 12.0, 0.5, 6
"""Cycles of writing a vector of an output, and for each piece of a row: short ones far apart miss the cache; of turning
an element of an output in registers, and the neighbours of a line from which that pays. Fitted."""

# --- what is written out

MANY_CHUNKS, LONG = 8, 12
"""Up to so many chunks, or nodes of the expression, the packing of a panel is written out: beyond, code grows faster
than it saves loops. Fitted to compile time."""
SHORT = 4
"""Up to so many nodes, the expressions of the outputs are written out for every vector of a tile."""


def _instructions(nodes: set[Expr]) -> int:
    return sum(FUNCTIONS[n.fn].instructions if isinstance(n, Apply) else 1 for n in nodes)


def operations(expressions: tuple[Expr, ...]) -> int:
    """Elementary operations of a point, roughly: instructions of its functions, and one for every other node."""
    nodes = {n for e in expressions for n in postorder(e)}
    return _instructions(nodes)


def arithmetic(expressions: tuple[Expr, ...]) -> int:
    """The same without what computes addresses: a vector has one of those, whatever its lanes."""
    todo, nodes = list(expressions), set[Expr]()
    while todo:
        node = todo.pop()
        if node not in nodes:
            nodes.add(node)
            todo += [] if isinstance(node, Read) else node.children
    return _instructions(nodes)


def of_data(expressions: tuple[Expr, ...]) -> int:
    """Operations on what is read: without those on axes alone, as conditions on a border are."""
    nodes = set[Expr]()
    for node in (n for e in expressions for n in postorder(e)):
        if isinstance(node, Read) or not nodes.isdisjoint(node.children):
            nodes.add(node)
    return _instructions(nodes)


def points(axes: tuple[Axis, ...]) -> int:
    """Points of a product of axes."""
    total = 1
    for a in axes:
        total *= a.extent
    return total
