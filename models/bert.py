"""A transformer encoder with post-normalisation and a classifier over the mean of all positions; no mask, no dropout.

Source: Devlin et al., BERT, 2018 (the base configuration).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"bert": {}, "bert_layer": {"name": "bert_layer", "layers": 1}}
SMALL = {"layers": 2, "length": 28, "width": 112, "heads": 4, "inner": 448, "classes": 10}


def encoder_layer(x, p, prefix, heads, inner):
    """x [B, S, E] -> [B, S, E]: attention, then two linear maps with a gelu between, each added and normalised."""
    width = x.shape[2]
    qkv_w, qkv_b = p(f"{prefix}.qkv_w", 3 * width, width), p(f"{prefix}.qkv_b", 3 * width)
    o_w, o_b = p(f"{prefix}.o_w", width, width), p(f"{prefix}.o_b", width)
    f1_w, f1_b = p(f"{prefix}.f1_w", inner, width), p(f"{prefix}.f1_b", inner)
    f2_w, f2_b = p(f"{prefix}.f2_w", width, inner), p(f"{prefix}.f2_b", width)

    def norm(x, name):
        return F.layer_norm(x, p(f"{prefix}.{name}.gamma", width), p(f"{prefix}.{name}.beta", width), eps=1e-12)

    x = norm(x + F.multi_head_attention(x, qkv_w, qkv_b, o_w, o_b, heads), "n1")
    return norm(x + F.linear(F.gelu(F.linear(x, f1_w, f1_b)), f2_w, f2_b), "n2")


def build(batch=8, *, name="bert", layers=12, length=128, width=768, heads=12, inner=3072, classes=2):
    """x [B, S, E]: vectors, not words."""
    p = nn.Parameters(name)
    x = nf.placeholder((batch, length, width), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    out_w, out_b = p("out_w", classes, width), p("out_b", classes)
    y = x
    for n in range(layers):
        y = encoder_layer(y, p, f"layer.{n}", heads, inner)
    logits = F.linear(nf.mean(y, axis=1), out_w, out_b)
    return nn.Model(name, x, labels, p, F.cross_entropy(logits, labels), logits, classes)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()
