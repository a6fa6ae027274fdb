"""A worker whose candidates may be faults, by a knob: `python -m tests.measure.faulty PLACE`.

A schedule that unrolls 2 ends its process when it is built, one of 8 computes something else.
"""

import os
import sys
import time

from neoflow.measure import worker
from neoflow.partition import Subgraph

build = worker.build
UNROLL = {2: "crash", 8: "wrong", 1: "deadline"}


def built(subgraph, schedule, target):
    fault = UNROLL.get(dict(schedule.knobs).get("unroll"))
    if fault == "crash":
        os._exit(7)
    if fault == "deadline":
        time.sleep(600)
    if fault == "wrong":
        other = subgraph.to_text().replace("in0[i, r]", "in0[i, (31 - r)]")
        subgraph = Subgraph.from_text(other)
    return build(subgraph, schedule, target)


worker.build = built

if __name__ == "__main__":
    worker.main(sys.argv[1])
