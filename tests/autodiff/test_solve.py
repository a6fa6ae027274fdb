"""`solve`: its points are in bijection with the axis points that an index maps to each target; Hermite normal forms.

Smith's form is not needed: `solve` uses U A = H alone, whose pivots are the divisibility conditions.
"""

import itertools

import numpy as np
import pytest
from flint import fmpz_mat

from neoflow.autodiff.solve import hermite, solve
from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis
from tests.indices import grid, integer, values

POINTS = 300_000


def random_index(rng, axes, depth=2):
    """Linear in some axes with small coefficients, `//` and `%` by constants over such, sometimes no such thing."""
    kind = rng.random()
    if depth and kind < 0.45:
        inner = random_index(rng, axes, depth - 1)
        fn = "floordiv" if rng.random() < 0.5 else "mod"
        e = Apply(fn, (inner, integer(int(rng.integers(2, 6)))))
    elif kind < 0.48:
        e = Apply("minimum", (axes[rng.integers(len(axes))], axes[rng.integers(len(axes))]))
    else:
        e = Apply(
            "mul", (integer(int(rng.choice([-3, -2, -1, 1, 1, 1, 2, 2, 3, 4, 6]))), axes[rng.integers(len(axes))])
        )
    for _ in range(rng.integers(0, 3) if depth else 0):
        e = Apply("add", (e, random_index(rng, axes, depth - 1)))
    return e


def random_system(rng):
    """Axes, indices inside their tensor, and its extents."""
    axes = tuple(Axis(n, int(rng.integers(1, 7))) for n in range(rng.integers(1, 5)))
    indices, extents = [], []
    for _ in range(rng.integers(1, 4)):
        e = affine.simplify(random_index(rng, axes))
        low, high = affine.bounds(e)
        indices.append(affine.simplify(Apply("sub", (e, integer(low)))))
        extents.append(high - low + 1 + int(rng.integers(0, 2)))
    return axes, tuple(indices), tuple(extents)


def check_bijection(axes, indices, extents):
    """Returns the number of points compared; 0 where there are too many."""
    targets = tuple(Axis(1000 + n, extent) for n, extent in enumerate(extents))
    solution = solve(indices, targets, axes, itertools.count(10_000))
    over = (*targets, *solution.free)
    if np.prod([a.extent for a in over], dtype=float) > POINTS:
        return 0
    at = grid(over)
    hold = np.ones(len(next(iter(at.values()))), bool)
    for guard in (*solution.guards, *solution.matches):
        hold &= np.broadcast_to(values(guard, at), hold.shape)
    columns = [at[z] for z in targets] + [np.broadcast_to(values(solution.axes[a], at), hold.shape) for a in axes]
    found = np.stack([c[hold] for c in columns], 1)
    domain = grid(axes)
    size = len(next(iter(domain.values())))
    columns = [np.broadcast_to(values(e, domain), (size,)) for e in indices] + [domain[a] for a in axes]
    expected = np.stack(columns, 1)
    order = np.lexsort(found.T), np.lexsort(expected.T)
    assert np.array_equal(found[order[0]], expected[order[1]]), (
        f"{[a.extent for a in axes]} {indices} in {extents}: {solution}"
    )
    return len(hold)


def solved_systems(seeds):
    return sum(check_bijection(*random_system(np.random.default_rng(seed))) > 0 for seed in seeds)


def test_random_systems():
    assert solved_systems(range(150)) > 100


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 20_000, 1000))
def test_ten_thousand_random_systems(start):
    solved = solved_systems(range(start, start + 1000))
    print(f"{solved} systems")
    assert solved > 700


I, J, K = Axis(0, 5), Axis(1, 4), Axis(2, 3)


def linear(*terms, constant=0):
    e = integer(constant)
    for k, a in terms:
        e = Apply("add", (e, Apply("mul", (integer(k), a))))
    return affine.simplify(e)


@pytest.mark.parametrize(
    ("axes", "indices", "extents", "trips"),
    [
        ((I,), (linear((2, I)),), (9,), 1),
        ((I, J), (linear((2, I), (1, J)),), (12,), 2),
        ((I, J), (linear((2, I), (3, J)),), (18,), 2),
        ((I, J), (linear((6, I), (4, J)),), (37,), 2),
        ((I, J), (linear((1, I), (1, J)), linear((1, I), (-1, J), constant=3)), (8, 8), 1),
        ((I, J, K), (linear((1, I)),), (5,), 12),
        ((I, J, K), (linear((3, J), (1, K)),), (12,), 5),
    ],
    ids=["2i", "2i+j", "2i+3j", "6i+4j", "i+j,i-j+3", "i", "3j+k"],
)
def test_points_visited_for_each_target(axes, indices, extents, trips):
    targets = tuple(Axis(1000 + n, extent) for n, extent in enumerate(extents))
    assert check_bijection(axes, indices, extents) > 0
    assert solve(indices, targets, axes, itertools.count(10_000)).trips == trips


def test_a_reshape_needs_no_guard():
    flat = linear((4, I), (1, J))
    indices = (Apply("floordiv", (flat, integer(2))), Apply("mod", (flat, integer(2))))
    targets = (Axis(1000, 10), Axis(1001, 2))
    solution = solve(indices, targets, (I, J), itertools.count(10_000))
    assert solution.free == () and solution.guards == ()
    assert check_bijection((I, J), indices, (10, 2))


def test_what_is_not_quasi_affine_is_matched_in_every_index():
    least = Apply("minimum", (I, J))
    indices = (Apply("floordiv", (least, integer(2))), Apply("mod", (least, integer(2))))
    assert check_bijection((I, J), indices, (3, 2))
    targets = (Axis(1000, 3), Axis(1001, 2))
    assert len(solve(indices, targets, (I, J), itertools.count(10_000)).matches) == 2


# --------------------------------------------------------------------------------------------------- normal forms


def check_hermite(matrix):
    """U A = H, |det U| = 1, H echelon with positive pivots and what is above a pivot reduced modulo it."""
    h, u = hermite(matrix)
    assert fmpz_mat(u) * fmpz_mat([list(r) for r in matrix]) == fmpz_mat(h)
    assert abs(fmpz_mat(u).det()) == 1
    last = -1
    for row, entries in enumerate(h):
        column = next((c for c, k in enumerate(entries) if k), None)
        if column is None:
            assert not any(any(r) for r in h[row:])
            break
        assert column > last and entries[column] > 0
        assert all(0 <= above[column] < entries[column] for above in h[:row])
        last = column


def random_matrices(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        shape = rng.integers(1, 7, 2)
        sparse = rng.random(shape) < rng.uniform(0.2, 1.0)
        yield tuple(map(tuple, (rng.integers(-9, 10, shape) * sparse).tolist()))


def test_hermite_normal_forms():
    for matrix in random_matrices(0, 2000):
        check_hermite(matrix)


@pytest.mark.slow
def test_a_hundred_thousand_hermite_normal_forms():
    for matrix in random_matrices(1, 100_000):
        check_hermite(matrix)
