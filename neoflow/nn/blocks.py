"""What convolutional networks are made of, for models written with named `Parameters`."""

from __future__ import annotations

from neoflow.expr.dsl import relu
from neoflow.expr.tensor import Tensor
from neoflow.nn.convolution import conv2d
from neoflow.nn.model import Parameters
from neoflow.nn.normalization import batch_norm, batch_norm_inference
from neoflow.nn.tools import Size, describe, expect, sizes

__all__ = ["conv_norm"]


def conv_norm(
    p: Parameters,
    name: str,
    x: Tensor,
    outputs: int,
    kernel: Size,
    stride: int = 1,
    padding: Size = 0,
    groups: int = 1,
    activation: bool = True,
    training: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    """Convolution without bias, batch normalisation and (with `activation`) relu: x [B, C, H, W] -> [B, outputs, P, Q].

    Parameters `name.0.weight`, `name.1.gamma`, `name.1.beta`; in training the running statistics go to `p.state`.
    """
    expect(
        x.rank == 4 and groups >= 1 and x.shape[1] % groups == 0,
        f"conv_norm takes x[B, C, H, W], and groups that divide C, not {describe(x)} and {groups}",
    )
    w = p(f"{name}.0.weight", outputs, x.shape[1] // groups, *sizes(kernel, 2, "conv_norm: kernel"))
    gamma, beta = p(f"{name}.1.gamma", outputs), p(f"{name}.1.beta", outputs)
    mean = p.statistic(f"{name}.1.running_mean", (outputs,), 0.0)
    variance = p.statistic(f"{name}.1.running_variance", (outputs,), 1.0)
    y = conv2d(x, w, None, stride, padding, groups=groups)
    if training:
        normalized = batch_norm(y, gamma, beta, mean, variance, eps=eps)
        p.state |= {mean: normalized.mean, variance: normalized.variance}
        y = normalized.y
    else:
        y = batch_norm_inference(y, gamma, beta, mean, variance, eps)
    return relu(y) if activation else y
