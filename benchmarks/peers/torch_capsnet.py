"""The capsule network in PyTorch, written for speed in eager mode: the peer of `models/capsnet.py`.

Every size follows from the shapes of the parameters. A capsule convolution
`C[b,o,p,q,i,j] = sum_{c,r,s,k} A[b,c,2p+r,2q+s,i,k] W[o,c,r,s,k,j]` is one ordinary convolution of a batch of (i, b)
images with (k, c) channels. Activations are `[I, B, H, W, K*C]` in memory from the first layer to the last, which is
oneDNN's preferred order (channels last), so that nothing is transposed but the weights (small) and the last capsules.

Tried and slower on a CPU (2 cores, forward and backward, batch 16): the convolutions channels first (1.35x) or by
`F.unfold` and `matmul` (2x), the whole step with strided windows and one `einsum` (1.3x); routing by batched
matrix-vector products (1.35x), by `einsum` (1.4x) or with N innermost (2.2x).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch_base import Arrays, Network

FAN_IN = {"conv_w": 25, "conv_b": None, "prim": 576, "caps": 1152, "digit": 16}


def parameter_shapes(
    *,
    kernel: int = 5,
    primary: int = 16,
    capsules: int = 32,
    side: int = 4,
    image: int = 28,
    classes: int = 10,
    out: int = 16,
) -> dict[str, tuple[int, ...]]:
    """Shapes by name: `primary` and `capsules` count capsules of side x side, `out` the length of a digit capsule."""
    grid = (((image - kernel + 1) - 3) // 2 + 1 - 3) // 2 + 1
    channels = primary * side * side
    return {
        "conv_w": (channels, 1, kernel, kernel),
        "conv_b": (channels,),
        "prim": (capsules, primary, 3, 3, side, side),
        "caps": (capsules, capsules, 3, 3, side, side),
        "digit": (capsules * grid * grid, classes, out, side * side),
    }


def capsule_conv(a: Tensor, w: Tensor) -> Tensor:
    """[I, B, H, W, K*C], w [O, C, R, S, K, J] -> [I, B, P, Q, J*O], stride 2."""
    i, b, height, width, channels = a.shape
    o, c, r, s, k, j = w.shape
    images = a.view(i * b, height, width, channels).permute(0, 3, 1, 2)  # channels last in memory
    kernel = w.permute(5, 0, 2, 3, 4, 1).reshape(j * o, r, s, k * c).permute(0, 3, 1, 2)
    y = F.conv2d(images, kernel, stride=2).permute(0, 2, 3, 1)
    return y.view(i, b, *y.shape[1:])


def squash_capsules(m: Tensor, side: int) -> Tensor:
    """M * sqrt(n2 + 1e-9) / (1 + n2), n2 the squared norm of a capsule, over I and J of [I, B, P, Q, J*O]."""
    m = m.unflatten(4, (side, -1))
    n2 = (m * m).sum((0, 4), keepdim=True)
    return (m * (torch.sqrt(n2 + 1e-9) / (1 + n2))).flatten(4)


def first_layer(x: Tensor, w: Tensor, bias: Tensor, side: int) -> Tensor:
    """relu(conv(x, w) + bias), [B, 1, H, W] -> capsules [I, B, P, Q, K*C]; channel 16c + 4i + k of w is (c, i, k)."""
    r, s = w.shape[2:]
    windows = x[:, 0].unfold(1, r, 1).unfold(2, s, 1)  # [B, P, Q, R, S]
    b, p, q = windows.shape[:3]
    kernel = w.view(-1, side, side, r * s).permute(1, 3, 2, 0).reshape(side, r * s, -1)
    centre = bias.view(-1, side, side).permute(1, 2, 0).reshape(side, 1, -1)
    y = torch.baddbmm(centre, windows.reshape(b * p * q, r * s).expand(side, -1, -1), kernel)
    return F.relu(y).view(side, b, p, q, -1)


def routing(u_hat: Tensor, rounds: int = 3) -> Tensor:
    """Dynamic routing with gradients through all rounds: u_hat [N, B, K, D] -> v [B, K, D]."""
    logits = u_hat.new_zeros(())
    for r in range(rounds):
        if r == 0:
            s = u_hat.sum(0) / u_hat.shape[2]  # softmax of zeros
        else:
            s = (u_hat * torch.softmax(logits, 2).unsqueeze(3)).sum(0)
        n2 = (s * s).sum(2, keepdim=True)
        v = s * (torch.sqrt(n2 + 1e-9) / (1 + n2))
        if r < rounds - 1:
            logits = logits + (u_hat * v).sum(3)  # [N, B, K]
    return v


def capsule_lengths(p: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Forward: images [B, 1, H, W] -> lengths |v| of the class capsules [B, classes]."""
    side = p["prim"].shape[-1]
    n, classes, out, e = p["digit"].shape
    a = first_layer(x, p["conv_w"], p["conv_b"], side)
    m1 = squash_capsules(capsule_conv(a, p["prim"]), side)
    m2 = squash_capsules(capsule_conv(m1, p["caps"]), side).unflatten(4, (side, -1))  # [I, B, P, Q, J, O]
    u = m2.permute(5, 2, 3, 1, 0, 4).reshape(n, -1, e)
    u_hat = torch.bmm(u, p["digit"].view(n, classes * out, e).transpose(1, 2))
    v = routing(u_hat.view(n, -1, classes, out))
    return torch.sqrt((v * v).sum(2) + 1e-9)


def margin_loss(lengths: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples of sum_k T max(0, 0.9 - |v|)^2 + 0.5 (1 - T) max(0, |v| - 0.1)^2."""
    t = F.one_hot(labels, lengths.shape[1]).to(lengths.dtype)
    per_class = t * F.relu(0.9 - lengths).square() + 0.5 * (1 - t) * F.relu(lengths - 0.1).square()
    return per_class.sum(1).mean()


class CapsNet(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """Lengths of the class capsules [B, classes]."""
        return capsule_lengths(self.tensors, x)

    def criterion(self, scores: Tensor, labels: Tensor) -> Tensor:
        return margin_loss(scores, labels)


Peer = CapsNet
"""The name `neoflow bench` looks for."""


def loss_and_grads(
    parameters: Arrays, x: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[float, dict[str, NDArray[np.float32]]]:
    """Loss and the gradient of every parameter, without an update."""
    return CapsNet(parameters).loss_and_grads(x, labels)


def infer(parameters: Arrays, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lengths of the class capsules [B, classes]."""
    return CapsNet(parameters).infer(x)


def main() -> None:
    """Time one training step."""
    import statistics
    import time

    from neoflow import fill

    parameters = {n: fill.parameter("capsnet", n, s, FAN_IN[n]) for n, s in parameter_shapes().items()}
    for batch in (1, 16):
        x, y = fill.inputs("capsnet", (batch, 1, 28, 28)), fill.labels("capsnet", (batch,), 10)
        model, seconds = CapsNet(parameters), []
        first = model.step(x, y)
        for _ in range(30):
            start = time.perf_counter()
            model.step(x, y)
            seconds.append(time.perf_counter() - start)
        print(f"batch {batch:2}: {1e3 * statistics.median(seconds):6.1f} ms a step, first loss {first:.8f}")


if __name__ == "__main__":
    main()
