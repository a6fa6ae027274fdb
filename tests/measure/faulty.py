"""A worker whose candidates may be faults, by a knob: `python -m tests.measure.faulty PLACE`.

A schedule that unrolls 2 ends its process when it is built, one of 8 computes something else.
"""

import os
import sys
import time

from neoflow.measure import worker
from neoflow.runtime.executor import run_on

build = worker.build
UNROLL = {2: "crash", 8: "wrong", 1: "deadline"}


def built(subgraph, schedule, target):
    fault = UNROLL.get(dict(schedule.knobs).get("unroll"))
    if fault == "crash":
        os._exit(7)
    if fault == "deadline":
        time.sleep(600)
    if fault == "wrong":
        worker.run_on = wrongly
    return build(subgraph, schedule, target)


def wrongly(place, kernel, arrays, threads):
    worker.run_on = run_on
    run_on(place, kernel, arrays, threads)
    arrays[-1][...] = 7


worker.build = built

if __name__ == "__main__":
    worker.main(sys.argv[1])
