"""The cells that are known by name, a file each."""

from neoflow.mapping.catalogue import gru, lstm, mi_lstm, rnn

CATALOGUE = (*lstm.PATTERNS, *gru.PATTERNS, *mi_lstm.PATTERNS, *rnn.PATTERNS)
