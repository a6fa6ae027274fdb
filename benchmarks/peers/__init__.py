"""The same models in other frameworks: parameters go in and come out as NumPy arrays."""
