"""The patterns that are known by name, a file each; the larger ones first."""

from neoflow.mapping.catalogue import (
    attention,
    batch_norm,
    convolution,
    cross_entropy,
    gru,
    layer_norm,
    lstm,
    mi_lstm,
    rnn,
    softmax,
)

FILES = (lstm, gru, mi_lstm, rnn, attention, cross_entropy, batch_norm, layer_norm, convolution, softmax)
CATALOGUE = tuple(pattern for file in FILES for pattern in file.PATTERNS)
