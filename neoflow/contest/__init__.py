"""A step of a model in several frameworks: each contender in a process of its own, timed in turn."""
