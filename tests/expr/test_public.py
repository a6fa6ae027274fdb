"""The public names: one list, in `neoflow`; everything that builds expressions stands on it."""

import inspect

import neoflow as nf
from neoflow.expr import dsl
from neoflow.expr.shape import fill, indexing, join, padding, rearrange

BEHIND = {
    "apply",
    "as_expr",
    "broadcast_shapes",
    "checked_dims",
    "checked_dtype",
    "checked_name",
    "checked_shape",
    "fail",
}
BEHIND |= {"lift", "read", "reduction", "scalar", "scattered", "slicing", "unnamed_axes"}


def test_every_public_name_is_there():
    assert len(set(nf.__all__)) == len(nf.__all__)
    assert set(nf.__all__) <= set(dir(nf))
    for name in nf.__all__:
        getattr(nf, name)


def test_every_function_that_builds_expressions_is_public():
    for module in (dsl, fill, indexing, join, padding, rearrange):
        for name, value in vars(module).items():
            own = inspect.isfunction(value) and value.__module__ == module.__name__
            if own and not name.startswith("_") and name not in BEHIND:
                assert inspect.unwrap(getattr(nf, name)) is value
                assert name in nf.__all__
