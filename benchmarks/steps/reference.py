"""What all contenders of a model get, and what bounds its step: run in a process of its own.

python -m benchmarks.steps.reference MODEL BATCH PATH    arrays to PATH; each kernel's work as JSON
python -m benchmarks.steps.reference roofs               what this machine reaches, as JSON
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

import neoflow as nf
from neoflow.devices import resolve_target
from neoflow.measure.roofs import measure_roofs
from neoflow.models import build_model
from neoflow.pipeline import compile_program
from neoflow.report.kernels import kernel_work
from neoflow.train.step import reset, sgd_updates


def prepare(name: str, batch: int, path: str) -> list[dict[str, Any]]:
    """Write "x", "labels", parameters "p/NAME", "loss" and gradients "g/NAME"; give the work of the step's kernels."""
    model = build_model(name, batch)
    x, labels = model.example()
    reset(model)
    gradients = nf.grad(model.loss, list(model.parameters.values()))
    loss, *values = nf.compile([model.loss, *gradients], model.inputs)(x, labels)
    arrays = {f"p/{n}": value for n, value in model.values().items()}
    arrays |= {f"g/{n}": value for n, value in zip(model.parameters, values, strict=True)}
    np.savez(path, x=x, labels=labels, loss=loss, allow_pickle=False, **arrays)
    program = compile_program([model.loss], model.inputs, sgd_updates(model, gradients))
    return [asdict(work) for work in kernel_work(program)]


def main() -> None:
    if sys.argv[1] == "roofs":
        found: Any = asdict(measure_roofs(resolve_target("cpu"), 1.0))
    else:
        name, batch, path = sys.argv[1:]
        found = prepare(name, int(batch), path)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
