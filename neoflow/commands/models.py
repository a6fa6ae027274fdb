"""`neoflow models`: the models that have a name."""

from __future__ import annotations

from neoflow.commands.options import AsJson, print_json


def models(as_json: AsJson = False) -> None:
    """List the models that `train`, `bench` and `explain` know by name, with their variants and files."""
    from neoflow.models import list_models

    found = list_models()
    if as_json:
        print_json([{"name": f.name, "variants": list(f.variants), "path": str(f.path)} for f in found])
    else:
        width = max((len(str(f)) for f in found), default=0)
        print(*(f"{f!s:{width}}  {f.path}" for f in found), sep="\n")
