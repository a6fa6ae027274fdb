"""What a call of an operator costs inside a program that JAX has compiled, beside jnp and `jax.pure_callback`.

python -m benchmarks.jax_operator
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

import neoflow as nf

SIZE = 64


def programs() -> dict[str, Callable[[jax.Array], jax.Array]]:
    """The square of some numbers and 1, by each."""
    square = nf.jax.operator(lambda x: x * x, name="square")
    like = jax.ShapeDtypeStruct((SIZE,), jnp.float32)
    return {
        "jnp": jax.jit(lambda x: x * x + 1),
        "neoflow": jax.jit(lambda x: square(x) + 1),
        "jax.pure_callback": jax.jit(lambda x: jax.pure_callback(lambda a: np.square(a), like, x) + 1),
    }


def least(f: Callable[[jax.Array], jax.Array], calls: int) -> float:
    """Seconds of a call, the least of so many: what else runs only adds."""
    x = jnp.ones(SIZE, jnp.float32)
    found = []
    for _ in range(calls + 1):
        begun = time.perf_counter()
        f(x).block_until_ready()
        found.append(time.perf_counter() - begun)
    return min(found[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    calls = parser.parse_args(arguments).calls
    times = {name: least(f, calls) * 1e6 for name, f in programs().items()}
    print("| x * x + 1 of 64 numbers | a call | more |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {found:.1f} us | {found - times['jnp']:.1f} us |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
