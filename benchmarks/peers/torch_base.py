"""What the PyTorch peers share: tensors by name, losses and gradients as NumPy arrays, a step of SGD."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Arrays = Mapping[str, NDArray[np.float32]]


class Network(ABC):
    """A network with its parameters on PyTorch's side, under the model's names; `step` trains them in place.

    A peer gives `scores` and, where it is not the cross entropy, `criterion`. Sizes follow from the parameters' shapes.
    Parameters, and what a step is fed, are on the device on which PyTorch makes tensors when the network is made.
    """

    def __init__(self, parameters: Arrays) -> None:
        self.tensors = {n: torch.tensor(value, requires_grad=True) for n, value in parameters.items()}  # a copy

    @abstractmethod
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """Forward: [..., classes]."""

    def criterion(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy, the mean over all labels."""
        return F.cross_entropy(scores.flatten(0, -2), labels.flatten())

    def reset(self, parameters: Arrays) -> None:
        """Take these values, in place."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(torch.from_numpy(parameters[name]))

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.tensors.items()}

    def given(self, array: NDArray) -> Tensor:
        """What a step is fed, where the parameters are."""
        return torch.from_numpy(array).to(next(iter(self.tensors.values())).device)

    def objective(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss: what `torch.compile` may take."""
        return self.criterion(self.scores(x, training=True), labels)

    def loss(self, x: NDArray, labels: NDArray[np.int64]) -> Tensor:
        return self.objective(self.given(x), self.given(labels))

    def loss_and_grads(self, x: NDArray, labels: NDArray[np.int64]) -> tuple[float, dict[str, NDArray[np.float32]]]:
        """The loss and the gradient of every parameter, without an update."""
        loss = self.loss(x, labels)
        gradients = torch.autograd.grad(loss, list(self.tensors.values()))
        return loss.item(), {name: g.cpu().numpy() for name, g in zip(self.tensors, gradients, strict=True)}

    def step(self, x: NDArray, labels: NDArray[np.int64], lr: float = 0.01) -> float:
        """One eager SGD step, `p -= lr * dp` in place; returns the loss before it."""
        tensors = list(self.tensors.values())
        loss = self.loss(x, labels)
        gradients = torch.autograd.grad(loss, tensors)
        with torch.no_grad():
            torch._foreach_add_(tensors, gradients, alpha=-lr)
        return loss.item()

    def infer(self, x: NDArray) -> NDArray[np.float32]:
        """The scores; the largest is the prediction."""
        with torch.inference_mode():
            return self.scores(self.given(x), training=False).cpu().numpy()


class Operator(Network):
    """An operator alone: its loss is the mean of weighted scores; a step differentiates x too, and updates nothing."""

    def criterion(self, scores: Tensor, labels: Tensor) -> Tensor:
        return (scores * labels).mean()

    def every_gradient(self, x: NDArray, labels: NDArray) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the gradients of the parameters and of `x` by name."""
        image = self.given(x).detach().requires_grad_()
        loss = self.objective(image, self.given(labels))
        gradients = torch.autograd.grad(loss, [*self.tensors.values(), image])
        return loss, dict(zip([*self.tensors, "x"], gradients, strict=True))

    def step(self, x: NDArray, labels: NDArray, lr: float = 0.01) -> float:
        """Gradients alone."""
        return self.every_gradient(x, labels)[0].item()


class ConvNet(Network):
    """A network of convolutions with batch normalisation, and its running statistics."""

    eps = 1e-5

    def __init__(self, parameters: Arrays) -> None:
        super().__init__(parameters)
        gammas = {n.removesuffix(".gamma"): t.detach() for n, t in self.tensors.items() if n.endswith(".gamma")}
        self.means = {n: torch.zeros_like(g) for n, g in gammas.items()}
        self.variances = {n: torch.ones_like(g) for n, g in gammas.items()}

    def conv(self, x: Tensor, name: str, training: bool, stride: int = 1, is_padded: bool = True) -> Tensor:
        """Convolution (padded by half of its kernel; groups by the weights' shape), batch normalisation."""
        p, w, norm = self.tensors, self.tensors[f"{name}.0.weight"], f"{name}.1"
        padding = [n // 2 if is_padded else 0 for n in w.shape[2:]]
        y = F.conv2d(x, w, stride=stride, padding=padding, groups=x.shape[1] // w.shape[1])
        statistics = self.means[norm], self.variances[norm]
        return F.batch_norm(y, *statistics, p[f"{norm}.gamma"], p[f"{norm}.beta"], training, momentum=0.1, eps=self.eps)

    def classify(self, x: Tensor) -> Tensor:
        """The mean over all places, and a linear map: [B, C, H, W] -> [B, classes]."""
        return F.linear(x.mean((2, 3)), self.tensors["fc.weight"], self.tensors["fc.bias"])
