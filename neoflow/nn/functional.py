"""Operators of neural networks, each a few lines of the expression language: none is known to the compiler."""

from neoflow.boundary import publish
from neoflow.nn.activation import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    logsumexp,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    squash,
    tanh,
)
from neoflow.nn.attention import (
    multi_head_attention,
    scaled_dot_product_attention,
)
from neoflow.nn.convolution import (
    capsule_conv,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    depthwise_conv2d,
    im2col,
    masked_conv2d,
    shift_conv2d,
)
from neoflow.nn.linear import (
    block_circulant,
    embedding,
    linear,
    matmul,
    mttkrp,
    one_hot,
)
from neoflow.nn.losses import (
    cross_entropy,
    margin_loss,
    mse_loss,
)
from neoflow.nn.normalization import (
    BatchNormalized,
    batch_norm,
    batch_norm_inference,
    group_norm,
    instance_norm,
    layer_norm,
)
from neoflow.nn.pooling import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    global_avg_pool,
    global_max_pool,
    max_pool,
)
from neoflow.nn.random import (
    dropout,
    random_bits,
    uniform,
)
from neoflow.nn.recurrent import gru_cell, lstm_cell, lstm_gates

__all__ = [
    "BatchNormalized",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "batch_norm",
    "batch_norm_inference",
    "block_circulant",
    "capsule_conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross_entropy",
    "depthwise_conv2d",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "group_norm",
    "gru_cell",
    "im2col",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsumexp",
    "lstm_cell",
    "lstm_gates",
    "margin_loss",
    "masked_conv2d",
    "matmul",
    "max_pool",
    "mse_loss",
    "mttkrp",
    "multi_head_attention",
    "one_hot",
    "random_bits",
    "relu",
    "scaled_dot_product_attention",
    "shift_conv2d",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "squash",
    "tanh",
    "uniform",
]

publish(globals(), __all__)
