"""neoflow's operators inside other libraries. Each is imported when its name is first used: `nf.torch`."""
