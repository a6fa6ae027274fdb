"""PyTorch's recurrent networks on a GPU, which are cuDNN's: on memory of ours, in the stream of the step.

They are no part of a CUDA graph. Under capture PyTorch's allocator has to be told of the graph, by functions that it
shows to nobody, or it gives the memory that the graph writes to others; and autograd works on a thread that captures
nothing. Between two graphs of one stream all of that is as in any program of PyTorch, and the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from neoflow import dtype as dt
from neoflow.code import Handed
from neoflow.runtime import torch_cells
from neoflow.runtime.device import Device
from neoflow.runtime.device.cuda import Cuda

DEVICE = "cuda"
_EXACT = "ieee"
_NETWORKS: dict[str, tuple[Any, dict[str, str]]] = {
    "torch.lstm": (torch.nn.LSTM, {}),
    "torch.gru": (torch.nn.GRU, {}),
    "torch.rnn_tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}),
    "torch.rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}


def refusal(place: Device) -> str | None:
    """Why cuDNN cannot be called through this PyTorch there; None where it can."""
    assert isinstance(place, Cuda)
    gpu = place.driver.gpu
    if not torch.backends.cuda.is_built():
        return f"PyTorch {torch.__version__} was built without CUDA"
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} reaches no GPU here"
    if not torch.backends.cudnn.is_available():
        return f"PyTorch {torch.__version__} has no cuDNN"
    if not torch.backends.cudnn.enabled:
        return "cuDNN is switched off: torch.backends.cudnn.enabled is False"
    if gpu.ordinal >= torch.cuda.device_count():
        return f"PyTorch sees {torch.cuda.device_count()} GPUs, and the program is for cuda:{gpu.ordinal}"
    theirs = "sm_{}{}".format(*torch.cuda.get_device_capability(gpu.ordinal))
    if theirs != gpu.architecture:
        return f"PyTorch's cuda:{gpu.ordinal} is another GPU, {theirs}: the program's is {gpu.architecture}"
    return None


def on(place: Device) -> InStream:
    """What computes a call there."""
    assert isinstance(place, Cuda)
    return InStream(place)


class InStream:
    """A call in the stream of a GPU, with its weights packed as cuDNN wants them; see `handed.Made`."""

    def __init__(self, place: Cuda):
        driver = place.driver
        self._device = torch.device(DEVICE, driver.gpu.ordinal)
        self._stream: Any = torch.cuda.ExternalStream(driver.stream, device=self._device)
        self._weights: list[Any] = []
        """those of a network of PyTorch's, pieces of one buffer"""

    def tensor(self, address: int, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor in that memory, dense."""
        return torch.as_tensor(_Memory(address, shape, dtype), device=self._device)

    def run(self, call: Handed, inputs: Sequence[Any], outputs: Sequence[Any], kept: dict[int, Any]) -> None:
        """Put the work into the stream."""
        with _float32_as_it_is(), torch.cuda.stream(self._stream):
            torch_cells.run(call, inputs, outputs, kept, self._packed)

    def _packed(self, call: Handed, holes: Mapping[str, Any]) -> Sequence[Any]:
        """Weights and biases copied to where cuDNN reads them as they lie: a bias that there is not is zero.

        Without that PyTorch packs them in every call, into memory that is new, and warns of it.
        """
        if not self._weights:
            self._weights = _network(call.implementation, holes, self._device)
        with torch.no_grad():
            for name, there in zip(torch_cells.WEIGHTS, self._weights, strict=False):
                if name in holes:
                    there.copy_(holes[name])
                    there.requires_grad_(holes[name].requires_grad)
        return self._weights


class _Memory:
    """Dense memory of a GPU as other libraries take it: the CUDA array interface, version 3. Nobody waits for a stream:
    it is used in that of the step alone."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str):
        kind = np.dtype(dt.NUMPY[dtype]).str
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": kind,
            "data": (address, False),
            "strides": None,
            "stream": None,
        }


def _network(implementation: str, holes: Mapping[str, Any], device: Any) -> list[Any]:
    """The weights of a network of PyTorch's of these sizes, which packs them; biases zero. Nothing is drawn at random:
    it is made where there is no memory."""
    kind, options = _NETWORKS[implementation]
    made = kind(
        holes["w"].shape[1], holes["u"].shape[1], bias="b" in holes, device="meta", dtype=holes["w"].dtype, **options
    ).to_empty(device=device)
    found = [p.requires_grad_(False) for p in made.parameters()]
    for bias in found[2:]:
        bias.zero_()
    return found


@contextmanager
def _float32_as_it_is() -> Iterator[None]:
    """Meanwhile cuDNN's recurrent networks do not round float32 to TF32, as PyTorch lets them otherwise."""
    networks: Any = torch.backends.cudnn.rnn
    if not hasattr(networks, "fp32_precision"):  # before PyTorch 2.9
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
        return
    before = networks.fp32_precision
    networks.fp32_precision = _EXACT
    try:
        yield
    finally:
        networks.fp32_precision = before
