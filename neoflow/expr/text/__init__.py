"""Definitions and tensors as text that reads back to the same: nothing is inferred, folded or renamed on the way.

    leaf       ::= label [string] ":" kind type [place]             x: placeholder float32[64, 784] @ "train.py":12
    type       ::= dtype "[" extent, ... "]"
    compute    ::= label [string] [ "[" axis "<" extent, ... "]" ] "=" expression
                   [ "reads" label, ... ] [ "axes" string, ... ] [place] newline
                   { "where" name "=" expression newline }
    place      ::= "@" string ":" line
    expression ::= literal | axis | label | "$" slot | "#" axis number | name of a `where`
                 | (label | "$" slot) "[" expression, ... "]"
                 | "(" expression ")" | expression infix expression | ("-" | "~") expression
                 | function "(" expression, ... ")" | "select(" condition "," a "," b ")" | "cast(" e "," dtype ")"
                 | reducer "[" axis "<" extent, ... "]" "(" expression ")"
                 | "scatter" [ "[" axis "<" extent, ... "]" ] "(" expression ", at=[" expression, ... "])"
    literal    ::= ["-"] integer (int64) | ["-"] (real | "inf") | "nan" (float32) | True | False
                 | dtype "(" number ")"                              the other types: float64(0.5), int8(-3)

The expressions are those that `print` shows, with every type and extent said. A string after a label is the tensor's
name where the label is another. What is used more than once and is long stands once, in a `where` below its uses: a
text is as long as the DAG, not as the tree. Axes and slots are numbered in the order of reading, as `close` does; where
a definition numbers its slots otherwise it reads `$0`, `$1` ... and `reads` says what these are, and where it numbers
its axes otherwise they are `#4`, `#7`. `axes` has the names of axes that cannot stand in a text.

write (a definition to its line) · syntax (a line to instructions) · build (instructions to a definition, typed and
proved) · tensors (labels, leaves, computes)
"""

from neoflow.expr.text.build import Source, build_definition
from neoflow.expr.text.syntax import read_place, read_statement
from neoflow.expr.text.tensors import (
    compute_lines,
    leaf_line,
    make_labels,
    named,
    place_text,
    read_compute,
    read_leaf,
    read_type,
    type_text,
)
from neoflow.expr.text.write import definition_lines, is_free_name

__all__ = [
    "Source",
    "build_definition",
    "compute_lines",
    "definition_lines",
    "is_free_name",
    "leaf_line",
    "make_labels",
    "named",
    "place_text",
    "read_compute",
    "read_leaf",
    "read_place",
    "read_statement",
    "read_type",
    "type_text",
]
