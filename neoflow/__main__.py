"""`python -m neoflow` is the `neoflow` command."""

from neoflow.cli import main

main()
