"""From root tensors to an ordered, canonical graph, and rewrites of it that keep every value."""

from neoflow.graph.canonicalize import canonicalize
from neoflow.graph.graph import Graph, make_graph, same_graph
from neoflow.graph.padding import pad_guards

__all__ = ["Graph", "canonicalize", "make_graph", "pad_guards", "same_graph"]
