"""Side-by-side runs against other frameworks."""
