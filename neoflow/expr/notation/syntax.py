"""What `ast` finds in a statement, before names mean anything."""

from __future__ import annotations

import ast

from neoflow.expr.functions import ARG_REDUCERS, REDUCERS

REDUCER_NAMES = (*REDUCERS, *ARG_REDUCERS, "mean", "any", "all", "var", "std")
BINDER_NAMES = (*REDUCER_NAMES, "scatter")


def elements(node: ast.expr) -> list[ast.expr]:
    """What stands between the commas of brackets."""
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def is_binder(node: ast.AST) -> bool:
    """Whether `node` applies a reducer or a scatter, with or without brackets."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return isinstance(function, ast.Name) and function.id in BINDER_NAMES


def names_in(root: ast.AST) -> list[ast.Name]:
    """Names read under `root`, in the order of the text: no functions, no tensors indexed, nothing in reducers."""
    found: list[ast.Name] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            found.append(node)
        elif isinstance(node, ast.Call):
            stack += [] if is_binder(node) else node.args
        elif isinstance(node, ast.Subscript):
            stack.append(node.slice)
        else:
            stack += ast.iter_child_nodes(node)
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def hint(node: ast.AST) -> str:
    """What to write instead of a node that is not part of index notation."""
    match node:
        case ast.Attribute():
            return "; bind the value by keyword instead"
        case ast.Tuple() | ast.List():
            return "; an expression is one scalar"
        case ast.BinOp(op=ast.MatMult()):
            return "; write sum(x[i, k] * w[k, j])"
    return ""
