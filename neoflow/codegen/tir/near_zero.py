"""log1p and expm1 as arithmetic on vector lanes of float32 or float64: accurate down to the smallest x.

    log1p(x) = k log 2 + log(1 + f) + c / u    u = fl(1 + x) = 2^k (1 + f), c what u lost; 1/2 <= (1 + f)^2 < 2
    log(1 + f) = f - s (f - R(s^2))            s = f / (2 + f), R(z) = 2 z / 3 + 2 z^2 / 5 + ...
    expm1(x) = 2^k E(r) + (2^k - 1)            x = k log 2 + r, |r| <= log(2) / 2; E(r) = r + r^2 / 2! + r^3 / 3! + ...

At most 4 units in the last place over all numbers (`tests/codegen/test_intrinsics.py` measures less than 2). The series
are cut where what is left out is below a tenth of a unit.

Source: Goldberg, What Every Computer Scientist Should Know About Floating-Point Arithmetic, 1991, theorem 4 (what u
lost); Muller, Elementary Functions, 2016, sections 11.2 and 11.3 (the reductions).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.tir.emit import Value, bind, call, element_of, fma, lanes_of, splat, vector_type
from neoflow.codegen.tir.intrinsics import LOG2_HIGH, LOG2_LOW, Names, clamped


@dataclass(frozen=True)
class _Format:
    """A float type: its bits as integers, and where the series end.

    mantissa, bias: of its exponents. high, low: log 2, the product of `high` and an exponent being exact (or fused).
    most: from here on e^x is infinite. powers: of r in E. odd: terms of R.
    """

    integer: str
    mantissa: int
    bias: int
    high: float
    low: float
    most: float
    powers: int
    odd: int

    @property
    def rounding(self) -> float:
        """Adding it leaves the nearest integer in the low bits of the mantissa."""
        return 1.5 * 2.0**self.mantissa

    @property
    def rounding_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) + (1 << (self.mantissa - 1))

    @property
    def root_bits(self) -> int:
        """sqrt(1/2): its bits, rounded down."""
        return ((self.bias - 1) << self.mantissa) + int((math.sqrt(2.0) - 1.0) * 2.0**self.mantissa)


_FORMATS = {
    "float32": _Format("int32", 23, 127, LOG2_HIGH, LOG2_LOW, 89.0, 8, 4),
    "float64": _Format("int64", 52, 1023, math.log(2.0), 2.3190468138462996e-17, 710.0, 15, 10),
}


@dataclass(frozen=True)
class _Lanes:
    """Constants and bits of one vector type; `name` gives a value used twice a name, out of TVM's sight."""

    form: _Format
    element: str
    lanes: int
    name: Names

    def const(self, value: float) -> Value:
        return splat(value, self.element, self.lanes)

    def whole(self, value: int) -> Value:
        return splat(value, self.form.integer, self.lanes)

    def bits(self, x: Value) -> Value:
        return tirx.reinterpret(vector_type(self.form.integer, self.lanes), x)

    def floats(self, bits: Value) -> Value:
        return tirx.reinterpret(vector_type(self.element, self.lanes), bits)

    def series(self, coefficients: list[float], x: Value) -> Value:
        """Horner's rule, highest power first."""
        value = self.const(coefficients[0])
        for c in coefficients[1:]:
            value = fma(value, x, self.const(c))
        return value


def _expm1(x: Value, v: _Lanes) -> Value:
    form, name = v.form, v.name
    y = clamped(x, -40.0, form.most, name)  # e^-40 is nothing beside 1
    biased = name(fma(y, v.const(math.log2(math.e)), v.const(form.rounding)))
    n = name(biased - v.const(form.rounding))
    r = name(fma(n, v.const(-form.low), name(fma(n, v.const(-form.high), y))))
    tail = v.series([1.0 / math.factorial(k) for k in range(form.powers, 1, -1)], r)
    e = name(fma(name(r * r), tail, r))
    half = name(v.bits(biased) - v.whole(form.rounding_bits - form.bias + 1))  # 2^(k - 1): 2^1024 is no number
    power = name(v.floats(half << v.whole(form.mantissa)))
    value = fma(e, power, name(power - v.const(0.5))) * v.const(2.0)
    is_tiny = call("llvm.fabs", x) < v.const(2.0 ** -(form.mantissa + 2))
    return tirx.Select(is_tiny, x, value)


def _log1p(x: Value, v: _Lanes) -> Value:
    form, name = v.form, v.name
    u = name(x + v.const(1.0))
    lost = name(x - name(u - v.const(1.0)))
    offset = name(v.bits(u) - v.whole(form.root_bits))
    exponent = name(offset >> v.whole(form.mantissa))
    f = name(v.floats(v.bits(u) - (exponent << v.whole(form.mantissa))) - v.const(1.0))
    k = name(tirx.Cast(vector_type(v.element, v.lanes), exponent))
    s = name(f / (f + v.const(2.0)))
    z = name(s * s)
    rest = name(z * v.series([2.0 / (2 * j + 1) for j in range(form.odd, 0, -1)], z))
    low = name(fma(k, v.const(form.low), lost / u))
    value = name(fma(k, v.const(form.high), f - (s * (f - rest) - low)))
    value = tirx.Select(x < v.const(math.inf), call("llvm.copysign", value, x), x)  # -0 and the smallest, inf and NaN
    value = tirx.Select(x > v.const(-1.0), value, v.const(math.nan))
    return tirx.Select(x == v.const(-1.0), v.const(-math.inf), value)


NEAR_ZERO: dict[str, Callable[[Value, _Lanes], Value]] = {"log1p": _log1p, "expm1": _expm1}


def near_zero(function: str, x: Value, statements: list) -> Value:
    """The `function` of every lane of `x`, float32 or float64: log1p expm1.

    What it binds on the way is added to `statements`.
    """

    def name(value: Value) -> Value:
        return bind(statements, value)

    element = element_of(x)
    return NEAR_ZERO[function](name(x), _Lanes(_FORMATS[element], element, lanes_of(x), name))
