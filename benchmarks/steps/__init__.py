"""Training steps of every model beside four peers, each contender in a process of its own, in turn."""
