"""Derivatives of the scalar functions, one row each: (operands, result, cotangent) -> cotangents of the operands."""

from __future__ import annotations

from collections.abc import Callable

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Const, Expr, Select


def const(value: float, like: Expr) -> Const:
    return Const(value, like.dtype)


def _is(e: Expr, value: float) -> bool:
    return isinstance(e, Const) and e.value == value


def add(a: Expr, b: Expr) -> Expr:
    if _is(a, 0):
        return b
    return a if _is(b, 0) else Apply("add", (a, b))


def sub(a: Expr, b: Expr) -> Expr:
    return a if _is(b, 0) else Apply("sub", (a, b))


def mul(a: Expr, b: Expr) -> Expr:
    if _is(a, 1):
        return b
    return a if _is(b, 1) else Apply("mul", (a, b))


def div(a: Expr, b: Expr) -> Expr:
    return a if _is(b, 1) else Apply("div", (a, b))


def neg(a: Expr) -> Expr:
    if isinstance(a, Const):
        return Const(-a.value, a.dtype)
    return a.args[0] if isinstance(a, Apply) and a.fn == "neg" else Apply("neg", (a,))


def fn(name: str, *args: Expr) -> Expr:
    return Apply(name, args)


def _share(wins: str, x: tuple[Expr, ...], g: Expr) -> tuple[Expr, Expr]:
    """max and min of two: the winner takes all, at a tie both get half."""
    a, b = x
    half = mul(const(0.5, g), g)
    zero = const(0, g)
    tie = Select(fn("eq", a, b), half, zero)
    return Select(fn(wins, a, b), g, tie), Select(fn(wins, b, a), g, tie)


_TWO_OVER_SQRT_PI = 1.1283791670955126

Rule = Callable[[tuple[Expr, ...], Expr, Expr], tuple[Expr | None, ...]]

# fmt: off
RULES: dict[str, Rule] = {
    "add":     lambda x, y, g: (g, g),
    "sub":     lambda x, y, g: (g, neg(g)),
    "mul":     lambda x, y, g: (mul(g, x[1]), mul(g, x[0])),
    "div":     lambda x, y, g: (div(g, x[1]), neg(div(mul(g, y), x[1]))),                       # -x/y^2 = -out/y
    "neg":     lambda x, y, g: (neg(g),),
    "maximum": lambda x, y, g: _share("gt", x, g),
    "minimum": lambda x, y, g: _share("lt", x, g),
    "abs":     lambda x, y, g: (mul(g, fn("sign", x[0])),),                                     # abs'(0) = 0
    "relu":    lambda x, y, g: (Select(fn("gt", y, const(0, g)), g, const(0, g)),),             # relu'(0) = 0
    "sign":    lambda x, y, g: (None,),
    "floor":   lambda x, y, g: (None,),
    "round":   lambda x, y, g: (None,),
    "ceil":    lambda x, y, g: (None,),
    "stop_gradient": lambda x, y, g: (None,),
    "round_tf32": lambda x, y, g: (g,),                                                          # as of a cast
    "exp":     lambda x, y, g: (mul(g, y),),
    "log":     lambda x, y, g: (div(g, x[0]),),
    "log1p":   lambda x, y, g: (div(g, add(const(1, g), x[0])),),
    "expm1":   lambda x, y, g: (mul(g, fn("exp", x[0])),),                                      # y + 1 would cancel
    "tanh":    lambda x, y, g: (mul(g, sub(const(1, g), mul(y, y))),),
    "sigmoid": lambda x, y, g: (mul(g, mul(y, sub(const(1, g), y))),),
    "sqrt":    lambda x, y, g: (div(mul(const(0.5, g), g), y),),
    "rsqrt":   lambda x, y, g: (mul(mul(const(-0.5, g), g), mul(y, mul(y, y))),),               # -x^(-3/2)/2
    "erf":     lambda x, y, g: (mul(g, mul(const(_TWO_OVER_SQRT_PI, g), fn("exp", neg(mul(x[0], x[0]))))),),
    "sin":     lambda x, y, g: (mul(g, fn("cos", x[0])),),
    "cos":     lambda x, y, g: (neg(mul(g, fn("sin", x[0]))),),
    "pow":     lambda x, y, g: _pow(x, y, g),
}
# fmt: on


def _pow(x: tuple[Expr, ...], y: Expr, g: Expr) -> tuple[Expr | None, ...]:
    """d x^p = p x^(p-1); d_p = x^p log x, and 0 where x = 0 (its limit for p > 0)."""
    base, power = x
    if isinstance(power, Const):
        if power.value == 0:
            return None, None
        lower = base if power.value == 2 else fn("pow", base, const(power.value - 1, g))
        slope = const(power.value, g) if power.value == 1 else mul(const(power.value, g), lower)
        return mul(g, slope), None
    zero = const(0, g)
    slope = Select(fn("eq", power, zero), zero, mul(power, fn("pow", base, sub(power, const(1, g)))))
    by_power = Select(fn("eq", base, zero), zero, mul(y, fn("log", base)))
    return mul(g, slope), mul(g, by_power)


def pullback(node: Apply, g: Expr) -> tuple[Expr | None, ...]:
    """Cotangents of a function's operands; None where there is none (integers, conditions, steps)."""
    if not dt.is_float(node.dtype):
        return (None,) * len(node.args)
    return RULES[node.fn](node.args, node, g)
