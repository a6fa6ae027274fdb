"""What is said of a run, of a step beside its peers, of a compilation and of this machine: values, text and HTML."""
