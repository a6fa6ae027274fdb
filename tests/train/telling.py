"""A search that has found what a file says: `python -m tests.train.telling FILE`, in the place of the real one.

FILE: JSON, schedules by the digest of a subgraph. Told what kernels take in the program, it says that each of these is
better; its own seconds are made up.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    asked, took = (json.loads(sys.stdin.readline()) for _ in range(2))
    schedules = json.loads(Path(sys.argv[1]).read_text())
    assert len(asked["uses"]) == len(took)
    for digest, schedule in schedules.items():
        better = {"subgraph": digest, "name": "kernel", "schedule": schedule}
        print(json.dumps({"better": {**better, "seconds": took[digest] / 2, "before": took[digest]}}), flush=True)
    for _ in sys.stdin:  # pauses, and the end
        pass


if __name__ == "__main__":
    main()
