"""The templates for GPUs: their knobs, legality and defaults; problems are those of `loops`. Needs no TVM."""
