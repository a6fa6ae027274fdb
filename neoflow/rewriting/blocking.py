"""How many blocks of steps of a linear recurrence go side by side, where that pays.

A step of a loop takes as long for one number as for some (10 ns of a core at 5 GHz), so that blocks side by side pay
where what is carried is one number, and steps are many. Where there are more, a step's numbers fill vectors as they
are, and blocks cost what they cost: the recurrence twice, and its inputs and results in another order. Measured with
`h[t] = a[t] * h[t-1] + x[t]` on two cores, time in blocks over time one by one:

    numbers      1 024 steps    4 096    16 384    65 536
          1            0.9        0.6       0.5       0.6
          2                                 1.0       1.3
          4                       1.1       1.2       1.8
         16            1.2        1.4
        128            1.7        5

From how many steps on was measured on an Intel Xeon beside others, in turns, by one thread and by two; the call alone
takes about 30 us of what is compared. Forward, and with gradients:

    numbers      128 steps       256         512        1 024        2 048        4 096
          1     1.0  0.98    1.0  0.97    1.0  0.93    0.89 0.84   0.78 0.72   0.75 0.63
          2     1.0  1.0     1.0  1.0     1.0  1.0     1.0  1.0    1.0  1.0    0.95 0.88
          4     1.0  1.0     1.0  1.0     1.1  1.1     1.0  1.1    1.0  1.0    1.1  1.1
         16     1.0  1.0     1.1  1.1     1.1  1.1     1.2  1.2    1.2  1.2    1.2+ 1.0+

What is saved follows from the steps alone, 12 ns of each but 3 sqrt(T): an estimate would be this number, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from neoflow.expr.recurrence import Looped, Run
from neoflow.graph.blocks import Linear
from neoflow.verdict import Verdict

LEAST_STEPS = 512
MOST_NUMBERS = 1
"""Of each tensor that is carried. Both from the tables."""


def count_of(run: Run, form: Linear, led: Sequence[Looped]) -> int | Verdict:
    """Of a run with a linear step; or why it goes step by step. led: what of it is read."""
    r = run.recurrence
    size = r.carried[0].size
    if r.steps < LEAST_STEPS:
        return Verdict(False, f"linear, but {r.steps} steps are few")
    if size > MOST_NUMBERS or any(t.of.size > MOST_NUMBERS for t in led):
        return Verdict(False, f"linear, but a step has {max(size, *(t.of.size for t in led))} numbers side by side")
    if len(form.reached) > len(r.carried):
        return Verdict(False, "linear, but what it carries is mixed: blocks would take more than twice the work")
    root = math.isqrt(r.steps)
    whole = [k for k in range(root // 2, 2 * root + 1) if r.steps % k == 0]
    return min(whole, key=lambda k: abs(math.log(k / root)), default=root)
