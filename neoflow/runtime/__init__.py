"""Runs compiled programs: memory, plans, parameters."""
