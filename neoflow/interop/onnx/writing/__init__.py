"""From expressions to the nodes of an ONNX graph."""
