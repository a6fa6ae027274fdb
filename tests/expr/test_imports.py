"""The modules of `expr` say at their top what they need; that it is no circle is a contract in `pyproject.toml`."""

import ast
from pathlib import Path

import neoflow.expr

SLOW_TO_IMPORT = {("functions.py", "scipy"), ("check.py", "islpy")}
"""Packages that only some programs need, imported by the function that does."""


def test_no_import_hides_in_a_function():
    found = set()
    for path in Path(neoflow.expr.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.Lambda)):
                for node in ast.walk(function):
                    if isinstance(node, ast.Import):
                        found |= {(path.name, alias.name) for alias in node.names}
                    elif isinstance(node, ast.ImportFrom):
                        found.add((path.name, node.module))
    assert found == SLOW_TO_IMPORT
