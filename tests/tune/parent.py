"""A process with workers, to be killed: `python -m tests.tune.parent FAULT`; prints the pids of its workers."""

import sys
import time

from neoflow.tune.process import Request
from neoflow.tune.workers import Workers

if __name__ == "__main__":
    workers = Workers([sys.executable, "-m", "tests.tune.wild"], 2)
    workers.answers([Request({"do": "nothing"})] * 4)
    workers.settle()
    print(*workers.pids, flush=True)
    workers.answers([Request({"do": sys.argv[1]}, seconds=600.0)] * 2)
    time.sleep(600)
