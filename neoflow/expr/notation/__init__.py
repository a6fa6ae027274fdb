"""Index notation: `y[i, j] = sum(x[i, k] * w[k, j])`, read with Python's `ast` and never evaluated.

    text       ::= statement { newline or ";" statement }
    statement  ::= left "=" expression [ "given" before { "," before } ]    or    left "=" scatter
    before     ::= name "[" integer "]" "=" ( tensor | number )
    left       ::= name    or    name "[" index, ... "]"
    index      ::= name | name "<" extent
    expression ::= number | index name | parameter | tensor "[" expression, ... "]" | rank-0 tensor
                 | + - * / // % ** < <= > >= == != & | ^ ~ << >> and or not, chained comparisons, `a if c else b`
                 | function "(" expression, ... ")" | cast(expression, dtype) | select(condition, a, b)
                 | reducer "(" expression ")" | reducer "[" index, ... "]" "(" expression ")"
    scatter    ::= "scatter" [ "[" index, ... "]" ] "(" expression ", at=[" expression, ... "])"

A reducer (sum prod max min argmax argmin mean any all var std) without axes goes over the index names that stand in
its argument, outside of reducers nested in it, and are neither on the left nor bound by a reducer around it. A scatter
adds its expression, for every point of the indices it names, to the element `at` of zeros. A number as an index counts
from the end where it is negative, `x[-1, j]`. The notation builds what the Python notation builds, through the same
functions.

A statement that reads what it defines at another value of its first index is a recurrence, alone or with others that
need it and one another: `given` says what there is before the first step.

The extent of an index follows from the shapes it is used on: that of the dimension in which it stands alone, and less
where `x[t + 1]` or `x[2*t + r]` would leave its tensor. Reads under a condition on it do not constrain it.

statements (in turn) · recurrence (those that need one another) · text (statements and their places) · statement (one
of them) · reader (its expression) · syntax (what `ast` finds in it)
"""

from neoflow.expr.notation.statements import expr

__all__ = ["expr"]
