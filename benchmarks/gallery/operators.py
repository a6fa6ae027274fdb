"""The operators: a function each that writes it in neoflow, with the sizes that are measured, and its PyTorch form.

`small` are sizes for tests, none a multiple of a vector. The first value a function returns is the operator, the others
are its inputs in the order in which the PyTorch form takes them; gradients are taken by all that are floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.nn import functional as TF

import neoflow as nf

Tensors = tuple[nf.Tensor, ...]


@dataclass(frozen=True)
class Operator:
    """source: the paper. build: the operator and its inputs, in neoflow. peer: the same over PyTorch tensors.

    limits: of what integer inputs hold, by name: values are below.
    """

    name: str
    source: str
    build: Callable[..., tuple[nf.Tensor, Tensors]]
    peer: Callable[..., torch.Tensor]
    small: Mapping[str, int]
    limits: Mapping[str, str] = field(default_factory=dict)


def _inputs(**shapes: tuple[int, ...]) -> list[nf.Tensor]:
    return [nf.placeholder(shape, name=name) for name, shape in shapes.items()]


def capsule_convolution(b=16, c=8, o=16, n=14, d=4):
    x, w = _inputs(x=(b, c, n, n, d, d), w=(o, c, 3, 3, d, d))
    y = nf.expr("y[b,o,p,q,i,j] = sum(x[b,c,2*p+r,2*q+s,i,k] * w[o,c,r,s,k,j])", x=x, w=w)
    return y, (x, w)


def _capsule_convolution(x, w):
    b, c, n, _, d, _ = x.shape
    o = w.shape[0]
    planes = x.permute(0, 4, 1, 5, 2, 3).reshape(b * d, c * d, n, n)
    kernel = w.permute(0, 5, 1, 4, 2, 3).reshape(o * d, c * d, 3, 3)
    y = TF.conv2d(planes, kernel, stride=2)
    return y.reshape(b, d, o, d, *y.shape[2:]).permute(0, 2, 4, 5, 1, 3)


def tropical_convolution(b=16, c=16, o=32, n=129):
    x, w = _inputs(x=(b, c, n), w=(o, c, 3))
    y = nf.expr("y[b,o,t] = max[c,r](x[b,c,2*t+r] + w[o,c,r])", x=x, w=w)
    return y, (x, w)


def _tropical_convolution(x, w):
    windows = x.unfold(2, 3, 2)  # b c t r
    return (windows[:, None] + w[None, :, :, None]).amax((2, 4))


def involution(b=8, g=4, c=16, n=30):
    x, k = _inputs(x=(b, g, c, n, n), k=(b, g, 3, 3, n - 2, n - 2))
    y = nf.expr("y[b,g,c,p,q] = sum(x[b,g,c,p+r,q+s] * k[b,g,r,s,p,q])", x=x, k=k)
    return y, (x, k)


def _involution(x, k):
    windows = x.unfold(3, 3, 1).unfold(4, 3, 1)  # b g c p q r s
    return torch.einsum("bgcpqrs,bgrspq->bgcpq", windows, k)


def locally_connected(b=16, c=16, o=16, n=64):
    x, w = _inputs(x=(b, c, n), w=(n - 4, o, c, 5))
    y = nf.expr("y[b,o,p] = sum(x[b,c,p+r] * w[p,o,c,r])", x=x, w=w)
    return y, (x, w)


def _locally_connected(x, w):
    return torch.einsum("bcpr,pocr->bop", x.unfold(2, 5, 1), w)


def dilated_depthwise(b=16, c=64, n=32):
    x, w = _inputs(x=(b, c, n, n), w=(c, 3, 3))
    y = nf.expr("y[b,c,p,q] = sum(x[b,c,p+2*r,q+2*s] * w[c,r,s])", x=x, w=w)
    return y, (x, w)


def _dilated_depthwise(x, w):
    return TF.conv2d(x, w[:, None], dilation=2, groups=x.shape[1])


def window_attention(b=4, h=4, t=256, w=16, d=32):
    q, k, v = _inputs(q=(b, h, t, d), k=(b, h, t + w - 1, d), v=(b, h, t + w - 1, d))
    scores = nf.expr("s[b,h,t,w] = sum(q[b,h,t,d] * k[b,h,t+w,d])", q=q, k=k)
    weights = nf.nn.functional.softmax(scores * d**-0.5, axis=-1)
    y = nf.expr("y[b,h,t,d] = sum(a[b,h,t,w] * v[b,h,t+w,d])", a=weights, v=v)
    return y, (q, k, v)


def _window_attention(q, k, v):
    size = k.shape[2] - q.shape[2] + 1
    keys, values = k.unfold(2, size, 1), v.unfold(2, size, 1)  # b h t d w
    weights = torch.softmax(torch.einsum("bhtd,bhtdw->bhtw", q, keys) * q.shape[3] ** -0.5, -1)
    return torch.einsum("bhtw,bhtdw->bhtd", weights, values)


def alibi_attention(b=4, h=8, t=128, d=32):
    q, k, v, m = _inputs(q=(b, h, t, d), k=(b, h, t, d), v=(b, h, t, d), m=(h,))
    products = nf.expr("s[b,h,i,j] = sum(q[b,h,i,d] * k[b,h,j,d])", q=q, k=k)
    scores = nf.compute((b, h, t, t), lambda b, h, i, j: nf.select(
        j <= i, products[b, h, i, j] * d**-0.5 - m[h] * nf.cast(i - j, "float32"), float("-inf")))  # fmt: skip
    y = nf.expr("y[b,h,i,d] = sum(a[b,h,i,j] * v[b,h,j,d])", a=nf.nn.functional.softmax(scores, axis=-1), v=v)
    return y, (q, k, v, m)


def _alibi_attention(q, k, v, m):
    t = q.shape[2]
    places = torch.arange(t)
    distance = places[:, None] - places[None, :]
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5 - m[None, :, None, None] * distance
    return torch.softmax(scores.masked_fill(distance < 0, float("-inf")), -1) @ v


def linear_attention(b=4, h=4, t=256, d=32):
    q, k, v = _inputs(q=(b, h, t, d), k=(b, h, t, d), v=(b, h, t, d))
    features = [nf.select(x > 0.0, x + 1.0, nf.exp(x)) for x in (q, k)]
    state = nf.expr("s[b,h,d,e] = sum(k[b,h,t,d] * v[b,h,t,e])", k=features[1], v=v)
    norm = nf.sum(features[1], axis=2)
    above = nf.expr("y[b,h,t,e] = sum(q[b,h,t,d] * s[b,h,d,e])", q=features[0], s=state)
    below = nf.expr("z[b,h,t] = sum(q[b,h,t,d] * n[b,h,d])", q=features[0], n=norm)
    y = nf.expr("y[b,h,t,e] = a[b,h,t,e] / z[b,h,t]", a=above, z=below)
    return y, (q, k, v)


def _linear_attention(q, k, v):
    q, k = TF.elu(q) + 1, TF.elu(k) + 1
    return q @ (k.transpose(2, 3) @ v) / (q @ k.sum(2)[..., None])


def rotary_embedding(b=4, t=256, h=8, d=64):
    x, a = _inputs(x=(b, t, h, d), a=(t, d // 2))
    y = nf.compute((b, t, h, d), lambda b, t, h, d: x[b, t, h, d] * nf.cos(a[t, d // 2]) + nf.select(
        d % 2 < 1, -x[b, t, h, d // 2 * 2 + 1], x[b, t, h, d // 2 * 2]) * nf.sin(a[t, d // 2]))  # fmt: skip
    return y, (x, a)


def _rotary_embedding(x, a):
    cos, sin = torch.cos(a)[:, None], torch.sin(a)[:, None]
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def rms_norm(n=2048, d=512):
    x, g = _inputs(x=(n, d), g=(d,))
    scale = nf.rsqrt(nf.mean(x * x, axis=-1) + 1e-6)
    y = nf.expr("y[n,d] = x[n,d] * s[n] * g[d]", x=x, s=scale, g=g)
    return y, (x, g)


def _rms_norm(x, g):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g


def squeeze_excitation(b=16, c=64, n=28, r=16):
    x, v, w = _inputs(x=(b, c, n, n), v=(r, c), w=(c, r))
    inner = nf.relu(nf.expr("h[b,r] = sum(m[b,c] * v[r,c])", m=nf.mean(x, axis=(2, 3)), v=v))
    gate = nf.sigmoid(nf.expr("g[b,c] = sum(h[b,r] * w[c,r])", h=inner, w=w))
    y = nf.expr("y[b,c,p,q] = x[b,c,p,q] * g[b,c]", x=x, g=gate)
    return y, (x, v, w)


def _squeeze_excitation(x, v, w):
    gate = torch.sigmoid(torch.relu(x.mean((2, 3)) @ v.T) @ w.T)
    return x * gate[:, :, None, None]


def multiplicative_lstm(b=32, n=128):
    x, h, c, w, u, k = _inputs(x=(b, n), h=(b, n), c=(b, n), w=(4, n, n), u=(4, n, n), k=(4, 4, n))
    wx = nf.expr("y[b,g,j] = sum(x[b,i] * w[g,j,i])", x=x, w=w)
    uh = nf.expr("y[b,g,j] = sum(h[b,i] * u[g,j,i])", h=h, u=u)
    z = nf.expr("z[b,g,j] = k[g,0,j]*p[b,g,j]*q[b,g,j] + k[g,1,j]*p[b,g,j] + k[g,2,j]*q[b,g,j] + k[g,3,j]",
                k=k, p=wx, q=uh)  # fmt: skip
    cell = nf.expr("n[b,j] = sigmoid(z[b,0,j]) * c[b,j] + sigmoid(z[b,1,j]) * tanh(z[b,2,j])", z=z, c=c)
    y = nf.expr("y[b,j] = sigmoid(z[b,3,j]) * tanh(c[b,j])", z=z, c=cell)
    return y, (x, h, c, w, u, k)


def _multiplicative_lstm(x, h, c, w, u, k):
    p, q = torch.einsum("bi,gji->bgj", x, w), torch.einsum("bi,gji->bgj", h, u)
    z = k[:, 0] * p * q + k[:, 1] * p + k[:, 2] * q + k[:, 3]
    cell = torch.sigmoid(z[:, 0]) * c + torch.sigmoid(z[:, 1]) * torch.tanh(z[:, 2])
    return torch.sigmoid(z[:, 3]) * torch.tanh(cell)


def neural_tensor(b=32, n=64, m=64, k=16):
    x, z, w = _inputs(x=(b, n), z=(b, m), w=(k, n, m))
    y = nf.expr("y[b,k] = sum(x[b,i] * w[k,i,j] * z[b,j])", x=x, w=w, z=z)
    return y, (x, z, w)


def _neural_tensor(x, z, w):
    return torch.einsum("bi,kij,bj->bk", x, w, z)


def factorization_machine(b=256, n=256, f=16):
    x, v = _inputs(x=(b, n), v=(n, f))
    first = nf.expr("s[b,f] = sum(x[b,n] * v[n,f])", x=x, v=v)
    second = nf.expr("q[b,f] = sum(x[b,n] * x[b,n] * v[n,f] * v[n,f])", x=x, v=v)
    y = nf.expr("y[b] = 0.5 * sum[f](s[b,f] * s[b,f] - q[b,f])", s=first, q=second)
    return y, (x, v)


def _factorization_machine(x, v):
    return 0.5 * ((x @ v) ** 2 - (x * x) @ (v * v)).sum(1)


def compressed_interaction(b=64, m=20, h=32, d=16):
    x, z, w = _inputs(x=(b, m, d), z=(b, m, d), w=(h, m, m))
    y = nf.expr("y[b,h,d] = sum(x[b,i,d] * z[b,j,d] * w[h,i,j])", x=x, z=z, w=w)
    return y, (x, z, w)


def _compressed_interaction(x, z, w):
    return torch.einsum("bid,bjd,hij->bhd", x, z, w)


def graph_convolution(n=1024, e=8192, d=64):
    x = nf.placeholder((n, d), name="x")
    source, target = nf.placeholder((e,), "int64", name="source"), nf.placeholder((e,), "int64", name="target")
    weight = nf.placeholder((e,), name="weight")
    k, c = nf.axis(e, "k"), nf.axis(d, "c")
    y = nf.scatter((n, d), [k, c], [target[k], c], weight[k] * x[source[k], c])
    return y, (x, source, target, weight)


def _graph_convolution(x, source, target, weight):
    return torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source])


def embedding_bag(v=4096, b=256, t=20, d=64):
    table, ids = nf.placeholder((v, d), name="table"), nf.placeholder((b, t), "int64", name="ids")
    y = nf.expr("y[b,d] = sum[t](w[i[b,t],d])", w=table, i=ids) * (1.0 / t)
    return y, (table, ids)


def _embedding_bag(table, ids):
    return TF.embedding_bag(ids, table, mode="mean")


def radial_basis(b=256, k=128, d=32):
    x, c, g = _inputs(x=(b, d), c=(k, d), g=(k,))
    y = nf.expr("y[b,k] = exp(-0.05 * g[k] * g[k] * sum[d]((x[b,d] - c[k,d]) ** 2))", x=x, c=c, g=g)
    return y, (x, c, g)


def _radial_basis(x, c, g):
    return torch.exp(-0.05 * g * g * ((x[:, None] - c[None]) ** 2).sum(-1))


def chamfer_distance(b=8, n=256, m=256):
    x, z = _inputs(x=(b, n, 3), z=(b, m, 3))
    d = nf.expr("d[b,i,j] = sum[k]((x[b,i,k] - z[b,j,k]) * (x[b,i,k] - z[b,j,k]))", x=x, z=z)
    y = nf.mean(nf.min(d, axis=2), axis=1) + nf.mean(nf.min(d, axis=1), axis=1)
    return y, (x, z)


def _chamfer_distance(x, z):
    d = ((x[:, :, None] - z[:, None]) ** 2).sum(-1)
    return d.amin(2).mean(1) + d.amin(1).mean(1)


def contrastive_loss(n=256, d=64):
    x, z = _inputs(x=(n, d), z=(n, d))
    scores = nf.expr("s[i,j] = 10.0 * sum[d](x[i,d] * z[j,d])", x=x, z=z)
    logs = nf.nn.functional.log_softmax(scores, axis=-1)
    y = nf.expr("y[i] = -l[i,i]", l=logs)
    return y, (x, z)


def _contrastive_loss(x, z):
    return -torch.diagonal(torch.log_softmax(10.0 * (x @ z.T), -1))


OPERATORS = (
    Operator("capsule convolution", "Hinton et al., Matrix capsules with EM routing, 2018", capsule_convolution,
             _capsule_convolution, {"b": 2, "c": 3, "o": 2, "n": 7, "d": 3}),
    Operator("tropical convolution", "Fan et al., Tropical convolutional networks, 2021", tropical_convolution,
             _tropical_convolution, {"b": 2, "c": 3, "o": 5, "n": 11}),
    Operator("involution", "Li et al., Involution, 2021", involution, _involution, {"b": 2, "g": 2, "c": 3, "n": 7}),
    Operator("locally connected layer", "Taigman et al., DeepFace, 2014", locally_connected, _locally_connected,
             {"b": 3, "c": 2, "o": 5, "n": 11}),
    Operator("dilated depthwise convolution", "Yu and Koltun, Dilated convolutions, 2016", dilated_depthwise,
             _dilated_depthwise, {"b": 2, "c": 5, "n": 9}),
    Operator("sliding-window attention", "Beltagy et al., Longformer, 2020", window_attention, _window_attention,
             {"b": 1, "h": 2, "t": 9, "w": 4, "d": 5}),
    Operator("attention with linear biases", "Press et al., ALiBi, 2022", alibi_attention, _alibi_attention,
             {"b": 1, "h": 3, "t": 7, "d": 5}),
    Operator("linear attention", "Katharopoulos et al., Transformers are RNNs, 2020", linear_attention,
             _linear_attention, {"b": 2, "h": 2, "t": 7, "d": 5}),
    Operator("rotary embedding", "Su et al., RoFormer, 2021", rotary_embedding, _rotary_embedding,
             {"b": 2, "t": 5, "h": 3, "d": 6}),
    Operator("root mean square norm", "Zhang and Sennrich, 2019", rms_norm, _rms_norm, {"n": 7, "d": 13}),
    Operator("squeeze and excitation", "Hu et al., Squeeze-and-excitation networks, 2018", squeeze_excitation,
             _squeeze_excitation, {"b": 2, "c": 5, "n": 3, "r": 3}),
    Operator("multiplicative LSTM cell", "Wu et al., On multiplicative integration, 2016", multiplicative_lstm,
             _multiplicative_lstm, {"b": 3, "n": 5}),
    Operator("neural tensor layer", "Socher et al., Reasoning with neural tensor networks, 2013", neural_tensor,
             _neural_tensor, {"b": 3, "n": 5, "m": 7, "k": 2}),
    Operator("factorization machine", "Rendle, Factorization machines, 2010", factorization_machine,
             _factorization_machine, {"b": 3, "n": 7, "f": 5}),
    Operator("compressed interaction", "Lian et al., xDeepFM, 2018", compressed_interaction, _compressed_interaction,
             {"b": 3, "m": 5, "h": 2, "d": 7}),
    Operator("graph convolution", "Kipf and Welling, 2017", graph_convolution, _graph_convolution,
             {"n": 7, "e": 19, "d": 5}, {"source": "n", "target": "n"}),
    Operator("embedding bag", "Joulin et al., fastText, 2016", embedding_bag, _embedding_bag,
             {"v": 11, "b": 3, "t": 5, "d": 7}, {"ids": "v"}),
    Operator("radial basis layer", "Broomhead and Lowe, 1988", radial_basis, _radial_basis, {"b": 3, "k": 5, "d": 7}),
    Operator("Chamfer distance", "Fan et al., A point set generation network, 2017", chamfer_distance,
             _chamfer_distance, {"b": 2, "n": 5, "m": 7}),
    Operator("contrastive loss", "van den Oord et al., Contrastive predictive coding, 2018", contrastive_loss,
             _contrastive_loss, {"n": 7, "d": 5}),
)  # fmt: skip
