"""Every model's training step and inference beside four peers: the model table."""
