"""Neural networks, written in the expression language: nothing here is known to the compiler."""

from neoflow.boundary import publish
from neoflow.nn import functional, init, optim
from neoflow.nn.blocks import conv_norm
from neoflow.nn.form import inference, state, training_form
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
from neoflow.nn.summary import Summary, summary

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
    "Summary",
    "conv_norm",
    "functional",
    "inference",
    "init",
    "optim",
    "state",
    "summary",
    "training_form",
]

publish(globals(), __all__)
