"""The figures that models are held to, from their PyTorch twins in float64: `python -m tests.data.generate`.

    python -m tests.data.generate [FILE ...]            compares expected_FILE.json with what PyTorch gives; status 1
                                                        when a figure is further off than the tolerance
    python -m tests.data.generate [FILE ...] --write    writes the files

For each model, variant and batch: the loss of the first step, and of every gradient the sum, the norm and eight
entries (at numpy.linspace(0, size - 1, 8)), to nine digits. Parameters, inputs and labels are the uniform fill of the
model. The networks are those of `benchmarks/peers`, which share nothing with neoflow but the parameters' names and
shapes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neoflow import fill

FOLDER = Path(__file__).parent
FILES = {
    "bert": ("bert/1", "bert_layer/1", "bert_layer/8"),
    "capsnet": ("capsconv/1", "capsconv/16", "capsnet/1", "capsnet/16"),
    "capsconv8": ("capsconv8/1",),
    "inception_v3": ("inception_v3/1",),
    "lltm": ("lltm_mnist/64", "lltm_ptb/64"),
    "mi_lstm": ("mi_lstm_mnist/64", "mi_lstm_ptb/64"),
    "mobilenet": ("mobilenet/1", "mobilenet/16"),
    "nasnet_a": ("nasnet_a/1",),
    "nasrnn": ("nasrnn/64",),
    "ptb_lstm": ("ptb_lstm/20",),
    "resnet": ("resnet18/1", "resnet18/16", "resnet50/1", "resnext50/1"),
    "scrnn": ("scrnn_mnist/64", "scrnn_ptb/64"),
    "shufflenet": ("shufflenet/1", "shufflenet/16"),
    "squeezenet": ("squeezenet/1",),
    "sru_rnntc": ("sru_rnntc/64",),
    "sublstm": ("sublstm_mnist/64", "sublstm_ptb/64"),
}
"""The figures of each file, as variant/batch."""
TOLERANCE = 1e-8
"""Of the loss; of a gradient's norm, its largest entry, and the sum of its magnitudes."""


def path_of(file: str) -> Path:
    return FOLDER / f"expected_{file}.json"


def digits(value: float) -> float:
    """Nine of them."""
    return float(f"{value:.9g}")


def of_gradient(gradient: np.ndarray) -> dict[str, Any]:
    """What is kept of a gradient."""
    flat = gradient.reshape(-1)
    places = np.linspace(0, flat.size - 1, min(8, flat.size)).astype(int)
    return {
        "sum": digits(flat.sum()),
        "norm": digits(np.linalg.norm(flat)),
        "entries": [digits(v) for v in flat[places]],
    }


def figures(file: str, key: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the file should say under a key, and the gradients by name."""
    variant, batch = key.split("/")
    if variant == "capsconv":
        return _capsconv(int(batch))
    module = importlib.import_module(f"models.{file}")
    model = module.build(int(batch), **module.VARIANTS[variant])
    peer = importlib.import_module(f"benchmarks.peers.torch_{file}").Peer(
        {name: value.astype(np.float64) for name, value in model.values().items()}
    )
    x, labels = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in model.example())
    loss, gradients = peer.loss_and_grads(x, labels)
    found: dict[str, Any] = {"loss": digits(loss)}
    if file.startswith("caps"):
        found |= {"inputs": [list(x.shape)], "target": list(labels.shape)}
    found["parameters"] = {n: {"shape": list(g.shape), "gradient": of_gradient(g)} for n, g in gradients.items()}
    if not model.trained:
        gradients["input 0"] = peer.every_gradient(x, labels)[1]["x"].numpy()
        found["input_gradients"] = [of_gradient(gradients["input 0"])]
    return found, gradients


def _capsconv(batch: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The capsule convolution alone, by its definition; the gradient of its input too."""
    import torch

    arrays = (
        fill.inputs("capsconv", (batch, 32, 20, 20, 4, 4)),
        fill.parameter("capsconv", "w", (32, 32, 9, 9, 4, 4), fan_in=10368),
        fill.fill("capsconv/g", (batch, 32, 6, 6, 4, 4), 1, 0),
    )
    a, w, g = (torch.from_numpy(v.astype(np.float64)) for v in arrays)
    a.requires_grad_()
    w.requires_grad_()
    windows = a.unfold(2, 9, 2).unfold(3, 9, 2)  # [B, C, P, Q, I, K, R, S]
    c = torch.einsum("bcpqikrs,ocrskj->bopqij", windows, w)
    loss = (c * g).mean()
    of_input, of_weights = (t.numpy() for t in torch.autograd.grad(loss, [a, w]))
    found = {
        "loss": digits(loss.item()),
        "inputs": [list(a.shape)],
        "target": list(c.shape),
        "parameters": {"w": {"shape": list(w.shape), "gradient": of_gradient(of_weights)}},
        "input_gradients": [of_gradient(of_input)],
    }
    return found, {"w": of_weights, "input 0": of_input}


def deviations(
    found: Mapping[str, Any], wanted: Mapping[str, Any], gradients: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, float]]:
    """How far a file is from PyTorch, as shares of what `TOLERANCE` is of; infinite where it says something else."""
    yield "loss", abs(found["loss"] - wanted["loss"]) / abs(found["loss"])
    for key in ("inputs", "target"):
        yield key, 0.0 if found.get(key) == wanted.get(key) else np.inf
    kept = {n: p["gradient"] for n, p in wanted["parameters"].items()}
    shapes = {n: p["shape"] for n, p in wanted["parameters"].items()}
    yield "shapes", 0.0 if shapes == {n: p["shape"] for n, p in found["parameters"].items()} else np.inf
    for n, other in enumerate(wanted.get("input_gradients", ())):
        kept[f"input {n}"] = other
    for name, gradient in gradients.items():
        if name not in kept:
            yield name, np.inf
            continue
        own, other, size = of_gradient(gradient), kept[name], np.abs(gradient)
        yield f"{name}: sum", abs(own["sum"] - other["sum"]) / size.sum()
        yield f"{name}: norm", abs(own["norm"] - other["norm"]) / own["norm"]
        entries = np.subtract(own["entries"], other["entries"])
        yield f"{name}: entries", float(np.abs(entries).max() / size.max())


def as_text(content: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with a line for each parameter."""
    parts = []
    for key, entry in content.items():
        lines = []
        for name, value in entry.items():
            if name == "parameters":
                rows = ",\n".join(f"   {json.dumps(n)}: {json.dumps(p)}" for n, p in value.items())
                lines.append(f'  "parameters": {{\n{rows}\n  }}')
            else:
                lines.append(f"  {json.dumps(name)}: {json.dumps(value)}")
        parts.append(f" {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.data.generate", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help=f"of {', '.join(FILES)}; all when none is named")
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing them")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.files) - set(FILES)):
        parser.error(f"there are no figures of {', '.join(unknown)}; there are {', '.join(FILES)}")
    worst = 0.0
    for file in given.files or FILES:
        content = {}
        for key in FILES[file]:
            content[key], gradients = figures(file, key)
            if not given.write:
                wanted = json.loads(path_of(file).read_text())[key]
                name, off = max(deviations(content[key], wanted, gradients), key=lambda d: d[1])
                print(f"{key}: at most {off:.1e} off, {name}")
                worst = max(worst, off)
        if given.write:
            path_of(file).write_text(as_text(content))
            print(path_of(file))
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
