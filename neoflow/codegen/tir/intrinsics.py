"""Elementary functions of float32 as arithmetic on vector lanes.

LLVM turns `exp`, `tanh`, `erf` ... into one libm call a lane, so a vector loop that holds one runs
at scalar speed.  Here each is a short polynomial over `tirx` expressions of any lane count, with at
most 4 units in the last place of error over all of float32, NaN, infinities and denormals
included (`tests/codegen/test_intrinsics.py` measures it).  The coefficients are minimax fits of the
function named beside them, found by Lawson's iteration in 40-digit arithmetic.

float64 has no polynomial here: it is the dtype of gradient checks, not of speed, and calls libm.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import tirx

from neoflow.codegen.tir.dialect import dialect
from neoflow.codegen.tir.emit import bind, call, element_of, fma, lanes_of, splat, vector_type

# exp(r) = 1 + r + r^2 P(r)                      |r| <= log(2)/2
_EXP = (0.00138131448, 0.00836941879, 0.041668456, 0.166665152, 0.49999994)
_EXP_NEGATIVE = tuple(c if n % 2 else -c for n, c in enumerate((*_EXP, 1.0, 1.0), 1))  # of exp(-r)
# log(1+m) = m - m^2/2 + m^3 P(m)                sqrt(1/2) <= 1+m <= sqrt(2)
_LOG = (
    0.0674663857,
    -0.116756514,
    0.118881628,
    -0.124055892,
    0.142195523,
    -0.166679963,
    0.200021192,
    -0.250000089,
    0.333333135,
)
# 2^f = 1 + f P(f)                               |f| <= 1/2
_EXP2 = (0.000154035118, 0.00133908041, 0.00961823776, 0.0555035731, 0.240226498, 0.693147188)
# exp(2r) = 1 + r P(r)                          |r| <= log(2)/4
_TANH = (0.0888887816, 0.267811566, 0.666674198, 1.33332047, 1.99999993, 2.00000002)
# erf(x) = 1 - 2^(-x P(x))                       0 <= x <= 4
_ERF = (
    5.87293107e-05,
    -0.000549668899,
    0.0018058914,
    0.000296782378,
    -0.0278753421,
    0.14832984,
    0.918443463,
    1.62790709,
)
# sin(r) = r + r^3 P(r^2), cos(r) = 1 + r^2 P(r^2)   |r| <= pi/4, in float64
_SIN = (2.7181216275e-06, -1.98393348360966e-4, 8.33332938588946e-3, -1.66666666414e-1)
_COS = (2.43904487962774e-5, -1.38867637746099e-3, 4.16666233237390e-2, -4.99999997251031e-1)

_ROUND_BIAS = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits
_ROUND_BITS = 0x4B400000  # the same number's bits
_POWER_BIAS = _ROUND_BIAS + 127.0  # adding it to n leaves bits that, shifted by a mantissa's, are those of 2^n
LOG2_HIGH, LOG2_LOW = 0.693359375, -2.12194440e-4  # their sum is log(2); products of the first and n are exact
_SIGN_BIT = -(1 << 31)


def _bits(x: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret(vector_type("int32", lanes_of(x)), x)


def _float(bits: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret(vector_type("float32", lanes_of(bits)), bits)


def _const(x: tirx.Expr, value: float) -> tirx.Expr:
    return splat(value, "float32", lanes_of(x))


def _iconst(x: tirx.Expr, value: int) -> tirx.Expr:
    return splat(value, "int32", lanes_of(x))


def _poly(coefficients: tuple[float, ...], x: tirx.Expr, element: str = "float32") -> tirx.Expr:
    """Horner's rule, highest power first."""
    lanes = lanes_of(x)
    value = splat(coefficients[0], element, lanes)
    for c in coefficients[1:]:
        value = fma(value, x, splat(c, element, lanes))
    return value


Names = Callable[[tirx.Expr], tirx.Expr]
"""Gives a value used twice a name, so that an expression stays a tree of linear size."""


def clamped(x: tirx.Expr, low: float, high: float, name: Names) -> tirx.Expr:
    """No less than `low` and no more than `high`, of any float type, written so that a NaN passes."""
    least, most = (splat(value, element_of(x), lanes_of(x)) for value in (low, high))
    x = name(tirx.Select(x > most, most, x))
    return name(tirx.Select(x < least, least, x))


def _reduced(x: tirx.Expr, sign: float, bias: float, name: Names) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
    """n + `bias`, n and r of sign x = n log(2) + sign r, n being whole and |r| <= log(2) / 2."""
    biased = name(fma(x, _const(x, sign * math.log2(math.e)), _const(x, bias)))
    n = name(biased - _const(x, bias))
    return biased, n, name(fma(n, _const(x, -sign * LOG2_LOW), fma(n, _const(x, -sign * LOG2_HIGH), x)))


def _exp(x: tirx.Expr, name: Names) -> tirx.Expr:
    x = clamped(x, -104.5, 89.0, name)  # where exp is 0 or inf already
    biased, n, r = _reduced(x, 1.0, _ROUND_BIAS, name)
    value = _poly((*_EXP, 1.0, 1.0), r)
    scaled = dialect().scaled(value, n)
    if scaled is not None:
        return scaled
    # 2^n in two factors, for results that are denormal (n < -126) or near overflow (n = 128)
    k = name(_bits(biased) - _iconst(x, _ROUND_BITS))
    half = name(k >> _iconst(x, 1))
    first = _float((half + _iconst(x, 127)) << _iconst(x, 23))
    second = _float((k - half + _iconst(x, 127)) << _iconst(x, 23))
    return value * first * second


def _power(biased: tirx.Expr, name: Names) -> tirx.Expr:
    """2^n of n + `_POWER_BIAS`, -126 <= n <= 127."""
    return name(_float(_bits(biased) << _iconst(biased, 23)))


def _less_one(biased: tirx.Expr, rest: tirx.Expr, coefficients: tuple[float, ...], name: Names) -> tirx.Expr:
    """2^n (1 + rest P(rest)) - 1, to the last digits of a small one; biased: n + `_POWER_BIAS`, |n| <= 64."""
    power = _power(biased, name)
    return fma(rest * _poly(coefficients, rest), power, power - _const(rest, 1.0))


def _signed(value: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    """A value that has the sign of x already, but for a zero."""
    return _float(_bits(value) | (_bits(x) & _iconst(x, _SIGN_BIT)))


def _log(x: tirx.Expr, name: Names) -> tirx.Expr:
    tiny = x < _const(x, 1.17549435e-38)
    scaled = name(tirx.Select(tiny, x * _const(x, 2.0**23), x))
    # Exponent such that the mantissa lies in [sqrt(1/2), sqrt(2)): 0x3f3504f3 is sqrt(1/2)
    offset = name(_bits(scaled) - _iconst(x, 0x3F3504F3))
    exponent = name(offset >> _iconst(x, 23))
    m = name(_float(_bits(scaled) - (exponent << _iconst(x, 23))) - _const(x, 1.0))
    e = tirx.Cast(vector_type("float32", lanes_of(x)), exponent)
    e = name(e - tirx.Select(tiny, _const(x, 23.0), _const(x, 0.0)))
    square = name(m * m)
    tail = fma(e, _const(x, LOG2_LOW), square * m * _poly(_LOG, m))
    tail = fma(square, _const(x, -0.5), tail)
    value = fma(e, _const(x, LOG2_HIGH), m + tail)
    value = tirx.Select(x < _const(x, math.inf), value, x)  # inf and NaN are their own logarithms
    value = tirx.Select(x > _const(x, 0.0), value, _const(x, math.nan))
    return tirx.Select(x == _const(x, 0.0), _const(x, -math.inf), value)


def _tanh(x: tirx.Expr, name: Names) -> tirx.Expr:
    """e / (e + 2), e = exp(2x) - 1; 1 from 10 on."""
    near = clamped(x, -10.0, 10.0, name)
    biased = name(fma(near, _const(x, 2.0 * math.log2(math.e)), _const(x, _POWER_BIAS)))
    rest = name(fma(biased - _const(x, _POWER_BIAS), _const(x, -math.log(2) / 2), near))
    e = name(_less_one(biased, rest, _TANH, name))
    return _signed(e / (e + _const(x, 2.0)), x)  # tanh(-0) too


def _sigmoid(x: tirx.Expr, name: Names) -> tirx.Expr:
    """s / (s + s e^-x), s e^-x = 2^(n - 24) e^-r: s = 2^-24 leaves room for e^104, whose inverse is the smallest number
    that there is, and e^-70 is nothing beside 1."""
    near = clamped(x, -104.5, 70.0, name)
    biased, _, r = _reduced(near, -1.0, _POWER_BIAS - 24.0, name)
    scale = _const(x, 2.0**-24)
    return scale / name(fma(_poly(_EXP_NEGATIVE, r), _power(biased, name), scale))


def _erf(x: tirx.Expr, name: Names) -> tirx.Expr:
    size = name(call("llvm.fabs", x))
    t = name(tirx.Select(size > _const(x, 4.0), _const(x, 4.0), size))
    y = name(-t * _poly(_ERF, t))
    biased = name(y + _const(x, _POWER_BIAS))
    rest = name(y - (biased - _const(x, _POWER_BIAS)))
    return call("llvm.copysign", _less_one(biased, rest, _EXP2, name), x)


def _sin_cos(x: tirx.Expr, quarter_turns: int, name: Names) -> tirx.Expr:
    """sin(x + quarter_turns * pi/2), reduced in float64; NaN beyond |x| = 2^30, where that is not exact enough."""
    lanes = lanes_of(x)
    double = vector_type("float64", lanes)
    wide = name(tirx.Cast(double, x))
    bias = splat(1.5 * 2.0**52, "float64", lanes)
    biased = name(fma(wide, splat(2 / math.pi, "float64", lanes), bias))
    n = name(biased - bias)
    r = fma(n, splat(-math.pi / 2, "float64", lanes), wide)
    r = name(fma(n, splat(-6.123233995736766e-17, "float64", lanes), r))
    square = name(r * r)
    sine = r * fma(square, _poly(_SIN, square, "float64"), splat(1.0, "float64", lanes))  # -0 stays
    cosine = fma(square, _poly(_COS, square, "float64"), splat(1.0, "float64", lanes))
    wide_bits = tirx.reinterpret(vector_type("int64", lanes), biased)
    k = name(tirx.Cast(vector_type("int32", lanes), wide_bits) + _iconst(x, quarter_turns))
    odd = (k & _iconst(x, 1)) == _iconst(x, 1)
    value = name(tirx.Select(odd, cosine, sine))
    negative = (k & _iconst(x, 2)) == _iconst(x, 2)
    value = tirx.Select(negative, splat(0.0, "float64", lanes) - value, value)
    near = call("llvm.fabs", x) < _const(x, 2.0**30)
    return tirx.Select(near, tirx.Cast(vector_type("float32", lanes), value), _const(x, math.nan))


_FLOAT32: dict[str, Callable[[tirx.Expr, Names], tirx.Expr]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sin": lambda x, name: _sin_cos(x, 0, name),
    "cos": lambda x, name: _sin_cos(x, 1, name),
}


def elementary(function: str, x: tirx.Expr, statements: list) -> tirx.Expr:
    """The float32 `function` of every lane of `x`: exp log tanh sigmoid erf sin cos.

    What it binds on the way is added to `statements`.
    """

    def name(value: tirx.Expr) -> tirx.Expr:
        return bind(statements, value)

    return _FLOAT32[function](name(x), name)
