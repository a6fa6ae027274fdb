"""What a person asks of the compiler: train a model, compare it, explain it, examine this machine."""
