"""One contender in a process of its own: it makes a model's training step, and runs blocks of steps when asked.

    worker.py REQUEST

REQUEST and all that follows are JSON, a line each: questions on standard input, answers on standard output. It is run
as a file, and neoflow and the peers are imported from the folder the request names, which may be an older checkout: so
of neoflow only public names are used. Parameters and inputs come from a file, the same for all, as do the gradients
that the first ones are compared with.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

RATE = 0.01
SETTLE = 0.02
"""Seconds of steps before a block: caches and threads are another contender's at first."""
TOLERANCE = 0.05
"""Of a gradient's norm: whether it is the same network, relus that round to their other side allowed for."""


class Step(Protocol):
    """A training step on parameters of its own."""

    def reset(self) -> None:
        """Give every parameter its first value."""

    def step(self) -> float:
        """Forward, gradients, SGD, all of it done on return; the loss before it."""

    def gradients(self) -> tuple[float, dict[str, np.ndarray]]:
        """The loss and the gradient of every parameter."""


class Neoflow:
    def __init__(self, request: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        import neoflow as nf

        module = importlib.import_module(f"models.{request['file']}")
        variants = module.VARIANTS
        self.nf = nf
        self.model = module.build(request["batch"], **variants.get(request["variant"], {}))
        self.values = {p: arrays[f"p/{n}"] for n, p in self.model.parameters.items()}
        self.values |= {p: value for p, value in self.model.initial().items() if p not in self.values}
        self.arrays = arrays["x"], arrays["labels"]
        parameters = self.model.parameters.values()
        self.roots = [self.model.loss, *nf.grad(self.model.loss, list(parameters))]
        self.reset()
        updates = {p: p - RATE * g for p, g in zip(parameters, self.roots[1:], strict=True)}
        updates.update(self.model.state)
        self.run = nf.compile([self.model.loss], self.model.inputs, updates)

    def reset(self) -> None:
        for p, value in self.values.items():
            self.nf.set_value(p, value)

    def step(self) -> float:
        return float(self.run(*self.arrays)[0])

    def gradients(self) -> tuple[float, dict[str, np.ndarray]]:
        loss, *values = self.nf.compile(self.roots, self.model.inputs)(*self.arrays)
        return float(loss), dict(zip(self.model.parameters, values, strict=True))


class Peer:
    """A network of `benchmarks/peers`."""

    framework: str

    def __init__(self, request: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        importlib.import_module("benchmarks.peers")
        module = importlib.import_module(f"benchmarks.peers.{self.framework}_{request['file']}")
        self.first = {n.removeprefix("p/"): a for n, a in arrays.items() if n.startswith("p/")}
        self.arrays: tuple[Any, Any] = arrays["x"], arrays["labels"]
        self.peer = getattr(module, request.get("peer", "Peer"))(self.first)

    def step(self) -> float:
        return self.peer.step(*self.arrays, RATE)

    def gradients(self) -> tuple[float, dict[str, np.ndarray]]:
        return self.peer.loss_and_grads(*self.arrays)


class Torch(Peer):
    framework = "torch"

    def reset(self) -> None:
        import torch

        with torch.no_grad():
            for name, tensor in self.peer.tensors.items():
                tensor.copy_(torch.from_numpy(self.first[name]))


class TorchCompile(Torch):
    def __init__(self, request: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        import torch

        super().__init__(request, arrays)
        self.peer.objective = torch.compile(self.peer.objective)


class Jax(Peer):
    framework = "jax"

    def __init__(self, request: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        import jax

        super().__init__(request, arrays)
        self.arrays = tuple(jax.device_put(a) for a in self.arrays)  # once: neoflow and PyTorch read NumPy's in place

    def reset(self) -> None:
        import jax

        self.peer.tensors = {n: jax.device_put(a) for n, a in self.first.items()}


KINDS: dict[str, tuple[str, type[Any]]] = {
    "neoflow": ("neoflow", Neoflow),
    "torch": ("torch", Torch),
    "torch.compile": ("torch", TorchCompile),
    "jax": ("jax", Jax),
}
"""By kind: the framework, imported before the clock starts, and how its step is made."""


def check(contender: Step, arrays: dict[str, np.ndarray]) -> float:
    """The largest error of a gradient, as a part of its norm (or of a hundred-thousandth of the largest one).

    Raises `ValueError` where the loss or a gradient is another network's.
    """
    contender.reset()
    loss, gradients = contender.gradients()
    wanted = {n.removeprefix("g/"): a for n, a in arrays.items() if n.startswith("g/")}
    if gradients.keys() != wanted.keys():
        raise ValueError(f"there are gradients of {sorted(gradients)}, not of {sorted(wanted)}")
    if not abs(loss - arrays["loss"]) <= 1e-4 * abs(arrays["loss"]):
        raise ValueError(f"the loss is {loss}, not {float(arrays['loss'])}")
    norms = {n: float(np.linalg.norm(g)) for n, g in wanted.items()}
    least = 1e-5 * max(norms.values())
    errors = {n: float(np.linalg.norm(gradients[n] - g)) / max(norms[n], least) for n, g in wanted.items()}
    worst = max(errors, key=lambda n: errors[n])
    if not errors[worst] <= TOLERANCE:
        raise ValueError(f"the gradient of {worst} is off by {errors[worst]:.1e} of its norm")
    return errors[worst]


def block(contender: Step, seconds: float) -> dict[str, float]:
    """Steps for so many seconds, from the first values; the time of one."""
    contender.reset()
    start = time.perf_counter()
    while time.perf_counter() < start + SETTLE:
        contender.step()
    steps, start = 0, time.perf_counter()
    while steps == 0 or time.perf_counter() < start + seconds:
        loss = contender.step()
        steps += 1
    return {"step": (time.perf_counter() - start) / steps, "steps": steps, "loss": loss}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is no answer

    def answer(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    request = json.loads(sys.argv[1])
    sys.path[0] = request["root"]
    framework, kind = KINDS[request["kind"]]
    module = importlib.import_module(framework)
    root = Path(request["root"]).resolve()
    try:
        if framework == "neoflow" and not Path(str(module.__file__)).resolve().is_relative_to(root):
            raise ImportError(f"neoflow comes from {module.__file__}, not from {root}")
        with np.load(request["arrays"]) as file:
            arrays = {n: file[n] for n in file.files}
        start = time.perf_counter()
        contender = kind(request, arrays)
        contender.step()
        seconds = time.perf_counter() - start
        error = check(contender, arrays)
    except Exception as failure:  # the table says so, and the others go on
        answer(failure=f"{type(failure).__name__}: {failure}".splitlines()[0])
        return
    answer(first_step=seconds, error=error, version=module.__version__)
    for line in sys.stdin:
        answer(**block(contender, json.loads(line)["seconds"]))


if __name__ == "__main__":
    main()
