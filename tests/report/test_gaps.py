"""Kernels beside their floors: what limits one, in words."""

from neoflow.report.gaps import limit
from neoflow.report.roofline import KernelRow
from neoflow.roofs import Level, Roofs

ROOFS = Roofs(100.0, (Level("L2", 1 << 20, 50.0), Level("memory", None, 10.0)))


def row(seconds, flops, nbytes, calls=1):
    return KernelRow(0, "k", ("k",) * calls, "", seconds, 1.0, flops, nbytes, nbytes // calls, "s", "")


def test_what_limits_a_kernel():
    assert limit(row(2e-3, int(1e8), 1 << 10), ROOFS) == "arithmetic, at 50% of the peak"
    assert limit(row(1e-3, 1, int(5e6)), ROOFS) == "memory, at 50% of 10 GB/s"
    assert limit(row(8e-6, 1, 100, 4), ROOFS).startswith("2.0 us a call: its start")
