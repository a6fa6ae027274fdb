"""Runs compiled programs: memory, plans, parameters, training."""

from neoflow.runtime.parameters import get_value, load_parameters, save_parameters, set_value

__all__ = ["get_value", "load_parameters", "save_parameters", "set_value"]
