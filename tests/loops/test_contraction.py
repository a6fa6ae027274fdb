"""What the `contraction` template chooses without a search for a convolution's operands; without a compiler."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import neoflow as nf
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.nest import stride
from neoflow.loops.sides import row_box
from neoflow.loops.tile import even, sides
from neoflow.nn import functional as F
from neoflow.target import Target
from tests.loops.programs import subgraphs

TARGET = Target("cpu", "x86-64-v4", 2, 64, 1 << 20, 1)


def contraction(root, inputs, target=TARGET):
    """The largest contraction of a program, its schedule and its sides in the order of their loops."""
    found = []
    for s in subgraphs([root], inputs):
        schedule = default_schedule(s, target)
        if schedule.template == "contraction":
            found.append((schedule, sides(problem_of(s), schedule)))
    return max(found, key=lambda f: f[1].c.flops)


def convolution(batch, channels, filters, size, groups=1, kernel=3):
    x = nf.placeholder((batch, channels, size, size), name="x")
    w = nf.placeholder((filters, channels // groups, kernel, kernel), name="w")
    return x, w, F.conv2d(x, w, padding=kernel // 2, groups=groups)


def gradient(y, wanted, others):
    g = nf.placeholder(y.shape, name="g")
    (d,) = nf.vjp(y, [wanted], g)
    return contraction(d, [*others, g])


def test_weights_that_are_packed_are_packed_in_whole_squares():
    """Along all of their channels and taps: nine taps alone are one square of eight, and one by itself."""
    x, w, y = convolution(1, 512, 512, 7)
    schedule, s = contraction(y, [x, w])
    assert schedule["pack"] and schedule["turn"]
    assert [a.extent for a in s.c.k] == [512, 3, 3] and s.turned_part(16) == 1
    assert [a.extent for a in s.right_joined.axes] == [4608]


def test_rows_that_are_read_in_place_keep_the_axis_that_suits_them():
    x, w, y = convolution(1, 128, 128, 28)
    schedule, s = contraction(y, [x, w])
    assert not schedule["pack"] and s.c.k[-1].extent == 128 and s.turned_part(16) == 8 / 9


def test_a_panel_of_few_points_is_not_a_task():
    x, w, y = convolution(16, 128, 128, 56, groups=32)
    schedule, s = contraction(y, [x, w])
    assert schedule["order"] == "panels" and 400 < schedule["panels"] < 600
    assert s.c.k[-1].extent == 4, "the channels of a group, which are more than taps of a row"


def test_a_panel_of_many_points_is_one():
    x, w, y = convolution(16, 256, 256, 14)
    schedule, _ = contraction(y, [x, w])
    assert schedule["order"] != "panels" or schedule["panels"] == 1


def test_few_results_are_summed_along_memory():
    x, w, y = convolution(16, 128, 128, 56, groups=16)
    _, s = gradient(y, w, [x])
    assert s.left_read is not None and s.c.k[-1].extent == 56


def test_sums_over_images_far_away_go_along_their_lines():
    """Rows that are read in place would be in other pages at each image; near ones, or few, go as they did."""
    x, w, y = convolution(16, 64, 64, 56)
    schedule, s = gradient(y, w, [x])
    assert not schedule["pack"] and [a.extent for a in s.c.k] == [16, 56, 56]
    assert [stride(s.left_read.indices[0], a) for a in s.c.k[1:]] == [58, 1]
    _, forward = contraction(y, [x, w])
    assert forward.c.k[-1].extent == 3 and stride(forward.left_read.indices[0], forward.c.k[-1]) == 58, (
        "taps along M's other axis"
    )
    x, w, y = convolution(1, 64, 64, 28)
    _, near = contraction(y, [x, w])
    assert near.c.k[-1].extent == 64, "the channels of one image stay in a cache"


def test_large_weights_that_few_tiles_use_are_read_in_place_and_fetched_ahead():
    x, w, y = convolution(1, 512, 512, 7)
    schedule, s = gradient(y, x, [w])
    assert [a.extent for a in s.c.n] == [4608]
    assert not schedule["pack_panels"] and schedule["prefetch"] == 16


def few_rows(m, n, k, target=TARGET):
    """The schedule of a product of m rows, which lie along k."""
    a, b = nf.placeholder((k, m), name="a"), nf.placeholder((k, n), name="b")
    schedule, _ = contraction(nf.expr("y[n,m] = sum(a[k,m] * b[k,n])", a=a, b=b), [a, b], target)
    return schedule


def test_but_not_where_their_lines_share_a_place_and_two_multiply_adds_a_cycle_need_them_faster_than_they_come():
    eager = replace(TARGET, fma_units=2)
    assert few_rows(49, 2048, 512, eager)["pack_panels"] and few_rows(49, 512, 2048, eager)["pack_panels"]
    for n, k in ((2048, 512), (512, 2048)):
        schedule = few_rows(49, n, k)
        assert not schedule["pack_panels"] and schedule["prefetch"] == 16


def test_weights_that_some_tiles_use_are_read_in_place_but_not_across_lines():
    assert not few_rows(98, 512, 4096)["pack_panels"] and few_rows(196, 512, 4096)["pack_panels"]
    assert not few_rows(28, 1000, 2048)["pack_panels"] and few_rows(49, 1000, 2048)["pack_panels"]


def test_rows_whose_lines_are_lost_before_the_next_tile_reads_their_rest_are_not_packed():
    """Weights of 1024 channels, a page apart: lanes along them, and not along 196 pixels."""
    x, w = nf.placeholder((4, 1024, 14, 14), name="x"), nf.placeholder((2048, 1024, 1, 1), name="w")
    y = F.conv2d(x, w, stride=2)
    g = nf.placeholder(y.shape, name="g")
    (d,) = nf.vjp(y, [x], g)
    _, s = contraction(d, [w, g], replace(TARGET, threads=1))
    assert [a.extent for a in s.c.n] == [1024]


def test_nor_where_they_are_near():
    a, b = nf.placeholder((200, 49), name="a"), nf.placeholder((200, 1040), name="b")
    schedule, _ = contraction(nf.expr("y[n,m] = sum(a[k,m] * b[k,n])", a=a, b=b), [a, b])
    assert schedule["prefetch"] == 1


def product(m, n, k):
    a, b = nf.placeholder((m, k), name="a"), nf.placeholder((k, n), name="b")
    return contraction(nf.expr("y[m,n] = sum(a[m,k] * b[k,n])", a=a, b=b), [a, b])[0]


def test_what_no_core_keeps_is_fetched_far_ahead():
    near, far = product(256, 256, 256), product(512, 3072, 768)
    assert near["prefetch"] == 1
    assert far["pack_panels"] and far["pack"] and far["prefetch"] == 32


def test_a_side_in_place_whose_points_are_in_other_pages_is_fetched_ahead():
    x, w = nf.placeholder((16, 256, 56, 56), name="x"), nf.placeholder((64, 256, 1, 1), name="w")
    schedule, _ = contraction(F.conv2d(x, w), [x, w])
    assert not schedule["pack_panels"] and schedule["prefetch"] == 16


def test_a_panel_in_place_that_the_first_cache_does_not_keep_is_fetched_ahead():
    """More than 32 KB, or in lines that share their places there."""

    def asked(channels, filters, size):
        g, w = nf.placeholder((channels, size), name="g"), nf.placeholder((channels, filters), name="w")
        schedule, _ = contraction(nf.expr("y[n,m] = sum(g[k,m] * w[k,n])", g=g, w=w), [g, w])
        assert not schedule["pack_panels"]
        return schedule["prefetch"]

    assert asked(1024, 256, 196) == asked(256, 1024, 196) == 8
    assert asked(240, 1040, 196) == 1


def test_panels_that_come_from_afar_meet_several_row_tiles_in_a_block():
    """4 and 16 MB of panels, of which a core's own cache keeps 1 MB."""
    assert all(product(n, n, n)["order"] == "tiles" and product(n, n, n)["tiles"] == 6 for n in (1024, 2048))


def test_panels_that_stay_near_are_met_by_few_row_tiles_at_a_time():
    """512 KB of panels: blocks are left for every thread."""
    near = product(1024, 256, 512)
    assert near["order"] == "tiles" and near["tiles"] == 74 // 32


@given(st.integers(1, 99), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_blocks_leave_no_thread_a_task_more_than_another(pieces, most, others, threads):
    count = -(-pieces // most)
    found = even(count, pieces, others, threads)
    assert count <= found <= pieces, "blocks are no longer than asked for, and none is empty"
    if found * others % threads:
        wanted = [n for n in range(count, pieces + 1) if n * others % threads == 0]
        assert found == count and (count * others <= threads or not wanted or wanted[0] > count + threads)


def test_an_odd_number_of_blocks_is_one_more():
    assert even(37, 74, 1, 2) == 38 and even(37, 74, 2, 2) == 37
    assert even(1, 74, 1, 2) == 1, "one task is as many as were asked for"
    assert even(7, 7, 1, 2) == 7, "a tile is not cut"


def test_rows_in_place_from_afar_meet_all_panels_while_they_are_near():
    """Of one thread, which has no need of tasks: windows of 9 MB, read once and not for each of four panels."""

    def order(batch, threads=1):
        x = nf.placeholder((batch, 16, 24, 24, 4, 4), name="x")
        w = nf.placeholder((32, 16, 3, 3, 4, 4), name="w")
        schedule, _ = contraction(F.capsule_conv(x, w, stride=2), [x, w], replace(TARGET, threads=threads))
        assert not schedule["pack"]
        return schedule["order"]

    assert order(16) == order(16, threads=2) == "tiles"
    assert order(1) == "panels", "0.6 MB stay in a core's own cache"


def test_groups_of_few_channels_have_lanes_along_lines_of_the_image():
    """Of eight channels a group, half a vector each, panels that end with lines of 28 points take as long (0.96 to 1.02
    of the time) as lanes along the channels, where one unit passes halves of vectors two at a time."""
    assert [TARGET.fmas("float32", lanes) for lanes in (4, 8, 16)] == [2, 2, 1]
    assert [replace(TARGET, fma_units=2).fmas("float32", lanes) for lanes in (8, 16)] == [2, 2]
    x, w, y = convolution(1, 256, 256, 28, 32)
    schedule, _ = contraction(y, [x, w])
    assert schedule["side"] == "left" and schedule["in_lines"]
    x, w, y = convolution(1, 128, 128, 56, 32)
    assert contraction(y, [x, w])[0]["side"] == "left"  # of four channels lanes are along the image


def test_half_vectors_leave_fewer_lanes_empty():
    """20 points are three halves of vectors or two whole ones: where a processor passes halves through two units."""
    k = nf.axis(4096, "k")
    x, g = nf.placeholder((4096, 80), name="x"), nf.placeholder((4096, 80), name="g")

    def product(points):
        return nf.compute((points, points), lambda i, j: nf.sum(x[k, i] * g[k, j], axis=[k]))

    schedule, s = contraction(product(20), [x, g])
    assert (schedule["lanes"], schedule["vectors"]) == (8, 3) and s.cuts(8) == 3 and s.cuts(16) == 2
    two_units, _ = contraction(product(20), [x, g], replace(TARGET, fma_units=2))
    assert two_units["lanes"] == 16
    whole, _ = contraction(product(80), [x, g])
    assert whole["lanes"] == 16, "no lane stays empty"


def stem(filters, size):
    """A first convolution: three channels, every second point."""
    x, w = nf.placeholder((4, 3, 2 * size, 2 * size), name="x"), nf.placeholder((filters, 3, 3, 3), name="w")
    return contraction(F.conv2d(x, w, stride=2, padding=1), [x, w])[0]


def test_tiles_do_not_write_more_lines_than_the_cache_keeps():
    """Planes of 112 x 112 lie at four places of the first cache, which keeps 16 lines there; of 108 x 108 at more."""
    assert stem(32, 112)["vectors"] == 1 and stem(32, 108)["vectors"] == 2


EAGER = replace(TARGET, l2_bytes=1 << 21, fma_units=2)
"""Two multiply-adds of 512 bits a cycle, as on an Intel Xeon."""


def turned_product(m, n, k, target):
    """Rows of the side without lanes lie along M: another line at each point of K."""
    a, b = nf.placeholder((m, k), name="a"), nf.placeholder((k, n), name="b")
    return contraction(nf.expr("y[m,n] = sum(a[m,k] * b[k,n])", a=a, b=b), [a, b], target)[0]


def test_rows_that_drive_each_other_out_are_not_fetched_far_ahead():
    assert turned_product(64, 512, 2048, EAGER)["prefetch"] == 8
    assert turned_product(64, 512, 2048, TARGET)["prefetch"] == 32


def gradient_of(x, w, target):
    y = F.conv2d(x, w)
    g = nf.placeholder(y.shape, name="g")
    (d,) = nf.vjp(y, [w], g)
    return contraction(d, [x, g], target)


def test_few_row_tiles_are_as_long_that_threads_have_as_many():
    """64 rows in six tiles of 11, three for each of two threads, not five of 14."""
    schedule = turned_product(64, 156, 384, EAGER)
    assert (schedule["side"], schedule["order"], schedule["tile_rows"]) == ("right", "tiles", 11)
    assert turned_product(64, 156, 384, replace(EAGER, threads=1))["tile_rows"] == 14


def test_a_task_goes_over_a_panel_with_several_row_tiles_where_it_would_wait_for_it():
    """64 x 128 by 128 x 512: 11 tiles of 6 rows. What is written is near: else a row at a time is a stream."""
    found = {target: turned_product(64, 512, 128, target) for target in (TARGET, EAGER)}
    assert found[TARGET]["order"] == found[EAGER]["order"] == "tiles"
    assert found[TARGET]["tiles"] == 1 < found[EAGER]["tiles"]
    assert turned_product(256, 3136, 64, EAGER)["tiles"] == 1


def test_cores_pack_half_of_a_large_side_each_rather_than_read_all_of_it():
    """1x1 convolutions of one image; over many rows, or of few points of K, they read it in place."""
    for channels, outputs, extent, wanted in (
        (128, 128, 56, "panels"),
        (256, 128, 28, "panels"),
        (64, 256, 56, "tiles"),
        (128, 512, 28, "tiles"),
    ):
        x, w, y = convolution(1, channels, outputs, extent, kernel=1)
        found, _ = contraction(y, [x, w], EAGER)
        assert (found["order"], found["pack_panels"]) == (wanted, wanted == "panels")
        assert not contraction(y, [x, w], TARGET)[0]["pack_panels"]


def test_few_row_tiles_meet_the_half_of_a_large_side_that_a_core_reads_in_place_where_it_is_of_whole_lines():
    """1x1 convolutions of one image: 11, 22 and 43 tiles over 1.6 and 0.8 MB; and 11 over lines of 3,025 points."""
    for channels, outputs, extent, wanted in (
        (32, 64, 112, ("panels", False)),
        (64, 128, 56, ("panels", False)),
        (64, 256, 56, ("tiles", False)),
        (96, 64, 55, ("panels", True)),
    ):
        x, w, y = convolution(1, channels, outputs, extent, kernel=1)
        found, _ = contraction(y, [x, w], OLDER)
        assert found["side"] == "left" and (found["order"], found["pack_panels"]) == wanted, (channels, outputs)


def test_weights_that_lie_as_panels_do_are_fetched_far_ahead_where_they_are_large():
    for channels, wanted in ((512, 32), (64, 1)):
        x = nf.placeholder((49, channels), name="x")
        w, k = nf.placeholder((channels // 16, channels, 16), name="w"), nf.axis(channels, "k")
        y = nf.compute((49, channels), lambda i, j, x=x, w=w, k=k: nf.sum(x[i, k] * w[j // 16, k, j % 16], axis=[k]))
        found, _ = contraction(y, [x, w], EAGER)
        assert found["vectors"] > 1 and not found["pack_panels"] and found["prefetch"] == wanted


def test_little_work_does_not_wait_until_rows_are_packed():
    x, w, y = convolution(1, 80, 320, 7, kernel=1)
    assert not contraction(y, [x, w], EAGER)[0]["pack"]


def test_where_few_lanes_would_be_filled_terms_fill_them():
    """Weights' gradients of groups of 4 channels: 4 filters by 4 channels by 9 taps, sums over rows of 56 points."""

    def largest(channels, target):
        x, w, y = convolution(16, channels, channels, 56, groups=channels // (4 if channels == 128 else 32))
        g = nf.placeholder(y.shape, name="g")
        (d,) = nf.vjp(y, [w], g)
        schedules = [default_schedule(s, target) for s in subgraphs([d], [x, g])]
        return next(s for s in schedules if s.template != "map")

    for target in (TARGET, OLDER):
        few, many = largest(128, target), largest(64, target)
        assert few.template == "reduction" and few["lane"] == "reduced" and int(few["tile_rows"]) > 1
        assert many.template == "contraction"


OLDER = Target("cpu", "x86-64-v3", 2, 32, 1 << 19, 2)


def test_where_loads_spread_operands_tiles_have_two_vectors():
    """A load for each product, as tiles of one vector have, is twice as slow as two products for each load."""
    for m, k, n in ((1024, 1024, 1024), (512, 512, 512), (64, 512, 2048), (1000, 768, 3072), (196, 2304, 256)):
        a, b = nf.placeholder((m, k), name="a"), nf.placeholder((k, n), name="b")
        schedule, _ = contraction(a @ b, [a, b], OLDER)
        vectors = schedule["vectors"]
        assert vectors >= 2 and schedule["tile_rows"] * vectors + vectors + 1 <= OLDER.registers
        assert not schedule["turn_rows"] and (schedule["prefetch"] == 1 or not schedule["pack_panels"])


def test_rows_of_a_block_are_many_where_tiles_have_few_and_k_is_long():
    """All panels come from beyond the second cache for each block."""
    long, short = (turned_product(1024, n, k, OLDER) for n, k in ((3072, 768), (3000, 128)))
    assert long["order"] == short["order"] == "tiles"
    assert long["tiles"] * long["tile_rows"] > 120 and short["tiles"] * short["tile_rows"] <= 60
    wide = turned_product(1024, 3072, 768, replace(EAGER, fma_units=1))
    assert wide["tiles"] * wide["tile_rows"] <= 84, "tiles of 14 rows"


def capsules(batch, size):
    x = nf.placeholder((batch, 16, size, size, 4, 4), name="x")
    w = nf.placeholder((32, 16, 3, 3, 4, 4), name="w")
    return x, w, F.capsule_conv(x, w, stride=2)


def test_rows_of_a_tile_go_along_another_axis_where_the_last_one_leaves_few_sums():
    """Capsules of 4 x 4: a tile along them has 4 rows, of 2 vectors each; along the image it has 6, or 5."""
    x, w, y = capsules(16, 24)
    schedule, s = contraction(y, [x, w], OLDER)
    assert [a.extent for a in s.c.m] == [16, 11, 4, 11] and row_box(s.c.m, schedule["tile_rows"]) == (3, 6)
    schedule, s = contraction(y, [x, w])
    assert s.c.m[-1].extent == 4, "tiles of 12 rows are 3 capsules: sums enough with 32 registers"


def test_but_not_where_rows_are_neighbours_in_the_outputs():
    """Of images of 7 x 7 a tile has lines of 7, or of 4 and 3, which are written as vectors: it stays."""
    x, w, y = convolution(4, 32, 32, 7)
    schedule, s = contraction(y, [x, w], OLDER)
    assert [a.extent for a in s.c.m] == [4, 7, 7] and schedule["last_m"] == 2
    assert stride(s.nest.outputs[0][1], s.c.m[-1]) == 1 and row_box(s.c.m, schedule["tile_rows"]) == (2, 4)


def test_a_panel_in_place_that_tiles_go_down_again_and_again_is_packed_where_the_first_cache_does_not_keep_it():
    """Sums over 27 steps of gradients of weights: 110 KB, a line of 64 bytes at a time, 512 bytes apart; and 8 KB, of
    which all lines have the same place in a cache, or not."""
    for rows, columns, terms, is_packed in (
        (512, 128, 1728, True),
        (512, 128, 256, False),
        (768, 3072, 128, True),
        (768, 3000, 128, False),
    ):
        x, g = nf.placeholder((terms, rows), name="x"), nf.placeholder((terms, columns), name="g")
        y = nf.expr("y[i,j] = sum(x[r,i] * g[r,j])", x=x, g=g)
        schedule, _ = contraction(y, [x, g], OLDER)
        assert schedule["side"] == "right" and schedule["pack_panels"] is is_packed, (rows, columns, terms)


def test_lanes_go_along_the_side_whose_lines_drive_each_other_out():
    """As a panel it is packed once; as rows in place each tile would go down K from page to page: 512 points of K in
    lines 8 KB apart."""
    for n, side in ((2048, "right"), (2040, "left")):
        schedule = turned_product(64, n, 512, OLDER)
        assert (schedule["side"], schedule["pack_panels"]) == (side, True)


def test_rows_that_the_first_cache_keeps_are_read_in_place_where_there_is_little_work():
    """Lines of 156 or 500 points of K; where they are 512 points, six rows share two places."""
    for m, k, n, is_packed in (
        (64, 156, 384, False),
        (64, 500, 192, False),
        (64, 512, 192, True),
        (192, 500, 192, True),
    ):
        schedule = turned_product(m, n, k, OLDER)
        assert schedule["side"] == "right" and schedule["pack"] is is_packed, (m, k, n)


def test_rows_along_a_long_k_are_read_in_place_by_few_panels():
    """Gradients of the weights of 1x1 convolutions, sums over lines of 784, 196 and 784 points; 8, 8 and 32 panels."""
    for channels, outputs, extent, is_packed in ((128, 256, 28, False), (128, 256, 14, True), (512, 1024, 28, True)):
        x, w, _ = convolution(4, channels, outputs, extent, kernel=1)
        assert gradient_of(x, w, OLDER)[0]["pack"] is is_packed, (channels, extent)


def test_a_tile_is_one_window_where_two_would_crowd_the_registers():
    """Gradients of weights of 3 x 3, sums over lines that the windows slide along: 6 rows of 2 vectors are 12 sums, and
    8 values that two points of K share; not where windows go two points at a time, nor with 32 registers."""
    for kernel, step, target, rows in ((3, 1, OLDER, 3), (3, 2, OLDER, 6), (3, 1, TARGET, 14), (1, 1, OLDER, 6)):
        x, w = nf.placeholder((1, 64, 56, 56), name="x"), nf.placeholder((64, 64, kernel, kernel), name="w")
        y = F.conv2d(x, w, stride=step, padding=kernel // 2)
        g = nf.placeholder(y.shape, name="g")
        (d,) = nf.vjp(y, [w], g)
        schedule, _ = contraction(d, [x, g], target)
        assert schedule["tile_rows"] == rows, (kernel, step, target.mcpu)


def test_but_not_where_multiply_adds_spread_what_windows_share():
    """Of weights of 3 x 3 over 28 x 28: 9 rows of 3 vectors, and 12 values that no register needs to hold."""
    x, w, y = convolution(1, 128, 128, 28)
    g = nf.placeholder(y.shape, name="g")
    (d,) = nf.vjp(y, [w], g)
    schedule, _ = contraction(d, [x, g], EAGER)
    assert not schedule["pack"] and (schedule["tile_rows"], schedule["vectors"]) == (9, 3)


def test_a_core_that_only_loads_beside_multiplying_fetches_panels_by_itself():
    """Panels of a grouped convolution in place; rows of a long K in place it does not foresee."""
    x, w, y = convolution(16, 128, 128, 56, groups=32)
    for target, ahead in ((TARGET, 8), (OLDER, 1)):
        schedule, _ = contraction(y, [x, w], target)
        assert not schedule["pack_panels"] and schedule["prefetch"] == ahead, target.mcpu
    for terms, ahead in ((384, 8), (16, 1)):
        x, w = nf.placeholder((terms, 729), name="x"), nf.placeholder((terms, 16), name="w")
        schedule, _ = contraction(nf.expr("y[i,j] = sum(x[k,i] * w[k,j])", x=x, w=w), [x, w], OLDER)
        assert not schedule["pack"] and not schedule["pack_panels"] and schedule["prefetch"] == ahead, terms
