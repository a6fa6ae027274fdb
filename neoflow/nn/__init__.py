"""Neural networks, written in the expression language: nothing here is known to the compiler."""

from neoflow.boundary import publish
from neoflow.nn import functional, init, optim
from neoflow.nn.blocks import conv_norm
from neoflow.nn.layers import (
    BatchNorm,
    CapsuleConv,
    Conv2d,
    Dropout,
    Embedding,
    GRUCell,
    Layer,
    LayerNorm,
    Linear,
    LSTMCell,
    MultiHeadAttention,
    Sequential,
)
from neoflow.nn.model import Model, Parameters

__all__ = [
    "BatchNorm",
    "CapsuleConv",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GRUCell",
    "LSTMCell",
    "Layer",
    "LayerNorm",
    "Linear",
    "Model",
    "MultiHeadAttention",
    "Parameters",
    "Sequential",
    "conv_norm",
    "functional",
    "init",
    "optim",
]

publish(globals(), __all__)
