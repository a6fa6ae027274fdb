"""The expression language: what users write, what every later stage reads."""
