"""Solves a read's index equations  f(axes) = z  over the integers.

NeoFlow section 4.2, repaired: `//` and `%` become fresh variables tied by  x = V q + m; the linear system is brought to
Hermite normal form by a unimodular transform; what the equations leave free becomes new axes whose ranges follow
from the ranges of the variables; divisibility and range conditions stay as guards. Nothing is lost: the points
(free axes) that meet the guards are in bijection with the points of the original axes that are mapped to z.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from flint import fmpz_mat

from neoflow.expr import affine
from neoflow.expr.check import implied
from neoflow.expr.deep import Walk, run
from neoflow.expr.ir import Apply, Axis, Const, Expr, substitute


@dataclass(frozen=True)
class Variable:
    """An unknown of the system: an axis of the read (`axis`), or a quotient or remainder; it lies in [low, high]."""

    axis: Axis | None
    low: int
    high: int

    @property
    def count(self) -> int:
        return self.high - self.low + 1


@dataclass(frozen=True)
class Solution:
    """Every axis as an expression of the targets z and of new `free` axes, wherever `guards` and `matches` hold."""

    axes: dict[Axis, Expr]
    free: tuple[Axis, ...]
    guards: tuple[Expr, ...]
    matches: tuple[Expr, ...] = ()
    """index = target where an index depends on data; what it reads may need the conditions around the read first"""

    @property
    def trips(self) -> int:
        """Points visited for each z."""
        return math.prod(a.extent for a in self.free)

    def substituted(self, mapping: Mapping[Axis, Expr]) -> Solution:
        """With axes, targets or free ones, replaced; a guard that always holds is dropped."""

        def change(e: Expr) -> Expr:
            return affine.simplify(substitute(e, mapping))

        guards = [change(c) for c in self.guards]
        return Solution(
            {a: change(e) for a, e in self.axes.items()},
            tuple(b for a in self.free if (b := cast(Axis, mapping.get(a, a))).extent > 1),
            tuple(c for c in guards if not (isinstance(c, Const) and c.value)),
            tuple(change(c) for c in self.matches),
        )


_ORDERED = 5
"""Unknowns of which every order is tried: 120 Hermite forms, 17 us each (5 x 2, Zen 4): 2 ms."""


class _NotQuasiAffine(Exception):
    pass


class _System:
    """Equations: sum of coefficients * variables + constant = target, target a z axis or None for zero."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.equations: list[tuple[dict[int, int], int, Axis | None]] = []
        self._of_axis: dict[Axis, int] = {}
        self._of_digits: dict[tuple[Expr, int], tuple[int, int]] = {}

    def variable(self, v: Variable) -> int:
        self.variables.append(v)
        return len(self.variables) - 1

    def axis(self, a: Axis) -> int:
        if a not in self._of_axis:
            self._of_axis[a] = self.variable(Variable(a, 0, a.extent - 1))
        return self._of_axis[a]

    def add_equation(self, index: Expr, target: Axis) -> None:
        coefficients, constant = run(self.linear(index))
        self.equations.append((coefficients, constant, target))

    def linear(self, e: Expr) -> Walk[tuple[dict[int, int], int]]:
        terms, constant = affine.linear(e)
        result: dict[int, int] = {}
        for atom, k in terms.items():
            v = yield self.atom(atom)
            result[v] = result.get(v, 0) + k
        return result, constant

    def atom(self, atom: Expr) -> Walk[int]:
        if isinstance(atom, Axis):
            return self.axis(atom)
        if isinstance(atom, Apply) and atom.fn in ("floordiv", "mod") and isinstance(atom.args[1], Const):
            x, divisor = atom.args[0], int(atom.args[1].value)
            if divisor > 0:
                return (yield self.digits(x, divisor))[0 if atom.fn == "floordiv" else 1]
        raise _NotQuasiAffine(str(atom))

    def digits(self, x: Expr, divisor: int) -> Walk[tuple[int, int]]:
        """x = divisor * q + m, 0 <= m < divisor, as one more equation."""
        known = self._of_digits.get((x, divisor))
        if known is None:
            low, high = affine.bounds(x)
            if abs(low) >= affine.INF or abs(high) >= affine.INF:
                raise _NotQuasiAffine(str(x))
            coefficients, constant = yield self.linear(x)  # first, for what is not quasi-affine has no digits
            q = self.variable(Variable(None, low // divisor, high // divisor))
            m = self.variable(Variable(None, 0, divisor - 1))
            known = self._of_digits[(x, divisor)] = (q, m)
            coefficients[q] = coefficients.get(q, 0) - divisor
            coefficients[m] = coefficients.get(m, 0) - 1
            self.equations.append((coefficients, constant, None))
        return known


@lru_cache(maxsize=4096)
def hermite(matrix: tuple[tuple[int, ...], ...]) -> tuple[list[list[int]], list[list[int]]]:
    """(H, U) with U unimodular, U * matrix = H in row Hermite normal form; zero rows of H last.

    The rows of U beside zero rows of H are a basis of the left kernel, itself in Hermite form.
    """
    n, m = len(matrix), len(matrix[0])
    augmented = [list(row) + [int(i == j) for j in range(n)] for i, row in enumerate(matrix)]
    result = fmpz_mat(augmented).hnf()
    rows = [[int(result[i, j]) for j in range(m + n)] for i in range(n)]
    return [r[:m] for r in rows], [r[m:] for r in rows]


def solve(
    indices: tuple[Expr, ...], targets: tuple[Axis, ...], axes: tuple[Axis, ...], new_axes: itertools.count
) -> Solution:
    """Solve  indices(axes) = targets.

    axes: every axis the read's value depends on; those no index mentions stay free. `new_axes` numbers the free axes.
    Where an index is not quasi-affine (data-dependent, say) its axes stay free and  index = target  must match.
    """
    system = _System()
    guards: list[Expr] = []
    opaque: list[tuple[Expr, Axis]] = []
    for index, z in zip(indices, targets, strict=True):
        try:
            system.add_equation(index, z)
        except _NotQuasiAffine:
            opaque.append((index, z))
    values: dict[int, Expr] = {}
    free: list[Axis] = []
    for equations, variables in _components(system):
        best = _best_order(system, equations, variables)
        _solve_component(system, equations, best, values, free, guards, new_axes)
    solved: dict[Axis, Expr] = {}
    for v, variable in enumerate(system.variables):
        if variable.axis is not None and v in values:
            solved[variable.axis] = values[v]
    for a in axes:
        if a not in solved:
            fresh = Axis(next(new_axes), a.extent, a.name)
            solved[a] = affine.simplify(fresh)
            if a.extent > 1:
                free.append(fresh)
    matches = [Apply("eq", (affine.simplify(substitute(index, solved)), z)) for index, z in opaque]
    return Solution(solved, tuple(free), needed(guards), tuple(matches))


def _components(system: _System) -> list[tuple[list[int], list[int]]]:
    """Equations that share variables, transitively: each group is solved by itself."""
    groups: list[tuple[set[int], set[int]]] = []
    for r, (coefficients, _, _) in enumerate(system.equations):
        equations, variables = {r}, {v for v, k in coefficients.items() if k}
        rest = []
        for group in groups:
            if group[1] & variables:
                equations |= group[0]
                variables |= group[1]
            else:
                rest.append(group)
        groups = [*rest, (equations, variables)]
    return [(sorted(equations), sorted(variables)) for equations, variables in sorted(groups, key=lambda g: min(g[0]))]


def _matrix(system: _System, equations: list[int], order: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """One line a variable, one column an equation of the system."""
    return tuple(tuple(system.equations[r][0].get(v, 0) for r in equations) for v in order)


def _best_order(system: _System, equations: list[int], variables: list[int]) -> tuple[int, ...]:
    """The order of variables whose kernel leaves the fewest points to visit, then the plainest expressions."""

    def heuristic(v: int) -> tuple:
        biggest = max(abs(system.equations[r][0].get(v, 0)) for r in equations)
        return (biggest, system.variables[v].count, v)

    start = tuple(sorted(variables, key=heuristic))
    if len(variables) < 2:
        return start
    candidates = itertools.permutations(start) if len(start) <= _ORDERED else [start, tuple(reversed(start))]
    return min(candidates, key=lambda order: _cost(system, equations, order))


def _cost(system: _System, equations: list[int], order: tuple[int, ...]) -> tuple[int, int]:
    h, u = hermite(_matrix(system, equations, order))
    trips, steps = 1, 0
    for lattice, combination in zip(h, u, strict=True):
        if not any(lattice):
            pivot = next(i for i, k in enumerate(combination) if k)
            trips *= -(-system.variables[order[pivot]].count // combination[pivot])
            steps += combination[pivot] != 1
        else:
            steps += next(k for k in lattice if k) != 1
    return trips, steps


def _scaled(e: Expr, k: int) -> affine.Linear:
    return affine.scale(affine.linear(e), k)


def _sum(parts: list[affine.Linear]) -> Expr:
    total: affine.Linear = ({}, 0)
    for part in parts:
        total = affine.combine(total, part)
    return affine.simplify(affine.from_linear(total))


def _solve_component(
    system: _System,
    equations: list[int],
    order: tuple[int, ...],
    values: dict[int, Expr],
    free: list[Axis],
    guards: list[Expr],
    new_axes: itertools.count,
) -> None:
    """Fill `values` with the variables of one component, `free` with its new axes, `guards` with its conditions."""
    zero = affine.integer(0)
    targets: list[Expr] = []
    for r in equations:
        _, constant, z = system.equations[r]
        targets.append(affine.simplify(Apply("sub", (zero if z is None else z, affine.integer(constant)))))
    if not order:
        guards.extend(Apply("eq", (t, zero)) for t in targets)
        return
    h, u = hermite(_matrix(system, equations, order))
    x: list[list[affine.Linear]] = [[] for _ in order]
    kernel = []
    for lattice, combination in zip(h, u, strict=True):
        if not any(lattice):
            kernel.append(combination)
            continue
        column = next(c for c, k in enumerate(lattice) if k)
        pivot, target = lattice[column], targets[column]
        if pivot != 1:
            guards.append(Apply("eq", (Apply("mod", (target, affine.integer(pivot))), zero)))
        y = affine.simplify(Apply("floordiv", (target, affine.integer(pivot))))
        targets = [_sum([affine.linear(t), _scaled(y, -k)]) if k else t for t, k in zip(targets, lattice, strict=True)]
        # the pivot's own equation holds by the divisibility guard
        targets[column] = zero
        for i, k in enumerate(combination):
            if k:
                x[i].append(_scaled(y, k))
    guards.extend(Apply("eq", (t, zero)) for t in targets if t is not zero)
    for combination in kernel:
        pivot = next(i for i, k in enumerate(combination) if k)
        step, variable = combination[pivot], system.variables[order[pivot]]
        extent = -(-variable.count // step)
        fresh = Axis(next(new_axes), extent, variable.axis.name if variable.axis is not None else "")
        if extent > 1:
            free.append(fresh)
        offset = _sum([*x[pivot], ({}, -variable.low)])
        t = _sum(
            [affine.linear(fresh), _scaled(affine.simplify(Apply("floordiv", (offset, affine.integer(step)))), -1)]
        )
        for i, k in enumerate(combination):
            if k:
                x[i].append(_scaled(t, k))
    for i, v in enumerate(order):
        value = values[v] = _sum(x[i])
        variable = system.variables[v]
        guards.append(Apply("ge", (value, affine.integer(variable.low))))
        guards.append(Apply("lt", (value, affine.integer(variable.high + 1))))


def needed(guards: list[Expr]) -> tuple[Expr, ...]:
    """The guards without those that always hold or follow from the others."""
    kept: list[Expr] = []
    for g in guards:
        g = affine.simplify(g)
        if not (isinstance(g, Const) and g.value) and not any(g is k for k in kept):
            kept.append(g)
    for g in list(kept):
        others = [k for k in kept if k is not g]
        if implied(g, others):
            kept = others
    return tuple(kept)
