"""The public names: one list, in `neoflow`; everything that builds expressions stands on it."""

import inspect
import pydoc

import neoflow as nf
from neoflow.expr import constant, dsl, products, reducers
from neoflow.expr.shape import cumulative, fill, indexing, join, ordering, padding, rearrange

BEHIND = {"apply", "as_expr", "broadcast_shapes", "checked_dims", "checked_dtype", "checked_name", "checked_shape"}
BEHIND |= {"fail", "lift", "read", "reduction", "scalar", "scattered", "unnamed_axes", "operand", "operands"}
BEHIND |= {"dtype_of", "points_over", "renamed_axes", "written", "retyped"}
MODULES = (constant, cumulative, dsl, fill, indexing, join, ordering, padding, products, rearrange, reducers)


def test_every_public_name_is_there():
    assert len(set(nf.__all__)) == len(nf.__all__)
    assert set(dir(nf)) - set(nf.__all__) == {"jax", "onnx", "torch"}
    for name in nf.__all__:
        getattr(nf, name)


def test_help_shows_the_grammar():
    text = pydoc.plain(pydoc.render_doc(nf.expr))
    assert "expression ::= number | index name" in text
    assert "extents: of index names" in text


def test_every_function_that_builds_expressions_is_public():
    for module in MODULES:
        for name, value in vars(module).items():
            own = inspect.isfunction(value) and value.__module__ == module.__name__
            if own and not name.startswith("_") and name not in BEHIND:
                assert inspect.unwrap(getattr(nf, name)) is value
                assert name in nf.__all__
