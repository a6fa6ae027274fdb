"""The capsule network of `models/capsnet.py` in JAX.

As in the peer in PyTorch, a capsule convolution `C[b,o,p,q,i,j] = sum_{c,r,s,k} A[b,c,2p+r,2q+s,i,k] W[o,c,r,s,k,j]`
is one ordinary convolution of a batch of (i, b) images with (k, c) channels, and activations are `[I, B, H, W, K*C]`
from the first layer to the last. Every size follows from the shapes of the parameters.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.nn import relu
from jax_base import Network, Tensors

LAYOUT = ("NHWC", "HWIO", "NHWC")


def capsule_conv(a: Array, w: Array) -> Array:
    """[I, B, H, W, K*C], w [O, C, R, S, K, J] -> [I, B, P, Q, J*O], stride 2."""
    i, b, height, width, channels = a.shape
    o, c, r, s, k, j = w.shape
    kernel = w.transpose(2, 3, 4, 1, 5, 0).reshape(r, s, k * c, j * o)
    images = a.reshape(i * b, height, width, channels)
    y = lax.conv_general_dilated(images, kernel, (2, 2), "VALID", dimension_numbers=LAYOUT)
    return y.reshape(i, b, *y.shape[1:])


def squash_capsules(m: Array, side: int) -> Array:
    """M * sqrt(n2 + 1e-9) / (1 + n2), n2 the squared norm of a capsule, over I and J of [I, B, P, Q, J*O]."""
    split = m.reshape(*m.shape[:4], side, -1)
    n2 = (split * split).sum((0, 4), keepdims=True)
    return (split * (jnp.sqrt(n2 + 1e-9) / (1 + n2))).reshape(m.shape)


def first_layer(x: Array, w: Array, bias: Array, side: int) -> Array:
    """relu(conv(x, w) + bias), [B, 1, H, W] -> capsules [I, B, P, Q, K*C]; channel 16c + 4i + k of w is (c, i, k)."""
    kernel = w.transpose(2, 3, 1, 0)
    y = lax.conv_general_dilated(x.transpose(0, 2, 3, 1), kernel, (1, 1), "VALID", dimension_numbers=LAYOUT)
    y = relu(y + bias).reshape(*y.shape[:3], -1, side, side)  # [B, P, Q, C, I, K]
    y = y.transpose(4, 0, 1, 2, 5, 3)
    return y.reshape(*y.shape[:4], -1)


def routing(u_hat: Array, rounds: int = 3) -> Array:
    """Dynamic routing with gradients through all rounds: u_hat [N, B, K, D] -> v [B, K, D]."""
    logits = None
    for r in range(rounds):
        if logits is None:
            s = u_hat.sum(0) / u_hat.shape[2]  # softmax of zeros
        else:
            s = (u_hat * jax.nn.softmax(logits)[..., None]).sum(0)
        n2 = (s * s).sum(2, keepdims=True)
        v = s * (jnp.sqrt(n2 + 1e-9) / (1 + n2))
        if r < rounds - 1:
            agreement = (u_hat * v).sum(3)  # [N, B, K]
            logits = agreement if logits is None else logits + agreement
    return v


class CapsNet(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """Lengths of the class capsules [B, classes]."""
        side = p["prim"].shape[-1]
        n, classes, out, e = p["digit"].shape
        a = first_layer(x, p["conv_w"], p["conv_b"], side)
        m1 = squash_capsules(capsule_conv(a, p["prim"]), side)
        m2 = squash_capsules(capsule_conv(m1, p["caps"]), side)  # [I, B, P, Q, J*O]
        i, b, height, width, _ = m2.shape
        u = m2.reshape(i, b, height, width, side, -1).transpose(5, 2, 3, 1, 0, 4).reshape(n, b, e)
        u_hat = jnp.einsum("nbe,nfe->nbf", u, p["digit"].reshape(n, classes * out, e))
        v = routing(u_hat.reshape(n, b, classes, out))
        return jnp.sqrt((v * v).sum(2) + 1e-9), state

    def criterion(self, scores: Array, labels: Array) -> Array:
        """Mean over samples of sum_k T max(0, 0.9 - |v|)^2 + 0.5 (1 - T) max(0, |v| - 0.1)^2."""
        t = jax.nn.one_hot(labels, scores.shape[1], dtype=scores.dtype)
        per_class = t * relu(0.9 - scores) ** 2 + 0.5 * (1 - t) * relu(scores - 0.1) ** 2
        return per_class.sum(1).mean()


Peer = CapsNet
"""The name `neoflow bench` looks for."""
