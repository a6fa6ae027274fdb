"""Nested sums of products: what terms are when their operators are gone. See `sums`, which makes them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from neoflow.superopt.forms import Form
from neoflow.superopt.places import Places


@dataclass(frozen=True)
class Element:
    name: str
    indices: tuple[Form, ...]


@dataclass(frozen=True)
class Applied:
    fn: str
    args: tuple[Sum, ...]


@dataclass(frozen=True)
class Piece:
    axes: tuple[str, ...]
    where: Places
    value: Sum


@dataclass(frozen=True)
class Extreme:
    op: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Power:
    extents: tuple[Form, ...]
    power: int


@dataclass(frozen=True)
class Index:
    form: Form


Factor = Element | Applied | Extreme | Power | Index


@dataclass(frozen=True)
class Product:
    coefficient: Fraction
    axes: tuple[str, ...]
    where: Places
    factors: tuple[Factor, ...]


Sum = tuple[Product, ...]
