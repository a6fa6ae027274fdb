"""Processor seconds and memory of building a model's forward pass and of differentiating it, each in a fresh process.

python -m benchmarks.grad_speed            prints a table; exits with 1 when a limit is passed
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNet-50": ("models.resnet", {"name": "resnet50", "depths": (3, 4, 6, 3), "wide": True, "batch": 1}),
    "BERT, 12 layers": ("models.bert", {}),
    "LSTM, 2 layers, 20 steps": ("models.ptb_lstm", {}),
}
SECONDS, MEGABYTES = 2.0, 500.0
"""Limits for building, for differentiating, and for the whole process."""


def measure(title: str) -> dict[str, Any]:
    """Cold: nothing derived before. Seconds to build and to differentiate, tensors, peak resident megabytes."""
    import neoflow as nf
    from neoflow.expr.tensor import topological

    module, options = MODELS[title]
    build = import_module(module).build
    differentiate = nf.grad  # imported when first named
    start = time.process_time()
    model = build(**options)
    built = time.process_time()
    parameters = list(model.parameters.values())
    gradients = differentiate(model.loss, parameters)
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "forward": len(topological([model.loss])),
        "gradient": len(topological([model.loss, *gradients])),
        "build": built - start,
        "grad": done - built,
        "megabytes": peak,
    }


def main() -> int:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return 0
    print(f"{'model':26}{'tensors':>9}{'with grad':>11}{'build':>9}{'grad':>9}{'memory':>10}")
    failed = False
    for title in MODELS:
        command = [sys.executable, "-m", "benchmarks.grad_speed", title]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        failed |= max(found["build"], found["grad"]) > SECONDS or found["megabytes"] > MEGABYTES
        print(
            f"{title:26}{found['forward']:9}{found['gradient']:11}{found['build']:7.2f} s{found['grad']:7.2f} s"
            f"{found['megabytes']:7.0f} MB"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
