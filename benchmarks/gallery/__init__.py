"""Twenty operators of the literature, each as an index expression and as its usual PyTorch form."""
