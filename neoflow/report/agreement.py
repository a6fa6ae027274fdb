"""A model's gradients and losses against a peer's in float64, beside what float32 costs the peer itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from neoflow.autodiff import grad
from neoflow.models import build_model, find_peer
from neoflow.pipeline import compile
from neoflow.train.step import RATE, reset, train_step

ULP = 2.0**-23
FEW_ULPS = 16 * ULP
"""Of a gradient's largest entry, allowed to any. Sums of 2,000 terms in another order are 4 to 13 apart (ptb_lstm)."""
FACTOR = 3.0
"""By how much our error may exceed the peer's own."""
FIRST_LOSS, LOSSES = 1e-5, 1e-3
NEIGHBOURS = 2
"""Where float64 is differentiated again; shufflenet's gradients are then off by at most 1.6 times the peer's own."""
ZERO = 1e-12
"""Of the largest gradient: one below it in float64 is zero, such as that of a shift before a normalisation."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Check:
    """Errors against the peer in float64: gradients as a part of their largest entry, losses as a part of the loss.

    Beside each is the peer's own: its error in float32, or how far its gradient in float64 moves with the values by a
    few ulps, since behind a million relus either is off by thousandths where an argument is within rounding of zero.
    Each gradient may be off by three times the peer's own error of that gradient, or by a few ulps.
    loss: of the first step. losses: the largest over `steps` steps of SGD.
    """

    peer: str
    loss: float
    gradients: dict[str, float]
    peer_gradients: dict[str, float]
    steps: int
    losses: float
    peer_losses: float

    @property
    def limits(self) -> dict[str, float]:
        """The largest error allowed of each gradient."""
        return {n: max(FEW_ULPS, FACTOR * self.peer_gradients[n]) for n in self.gradients}

    @property
    def losses_limit(self) -> float:
        return max(LOSSES, FACTOR * self.peer_losses)

    @property
    def is_close(self) -> bool:
        gradients = all(self.gradients[n] <= most for n, most in self.limits.items())
        return self.loss <= FIRST_LOSS and gradients and self.losses <= self.losses_limit

    def __str__(self) -> str:
        word = "agrees" if self.is_close else "DISAGREES"
        lines = [f"against {self.peer} in float64, in brackets what {self.peer} in float32 is off: {word}"]
        lines.append(f"  first loss            {self.loss:.1e} apart (at most {FIRST_LOSS:.0e})")
        for n, most in self.limits.items():
            found, own = self.gradients[n], self.peer_gradients[n]
            note = "" if found <= most else ", too much"
            lines.append(f"  gradient {n:12} {found:.1e} of its largest entry (at most {most:.0e}{note}) [{own:.1e}]")
        lines.append(
            f"  {self.steps:<3} SGD steps         {self.losses:.1e} apart in loss (at most {self.losses_limit:.0e}) "
            f"[{self.peer_losses:.1e}]"
        )
        return "\n".join(lines)


def errors(found: Arrays, exact: Arrays) -> dict[str, float]:
    """The largest error of each gradient that is not zero, as a part of its largest entry."""
    sizes = {n: float(np.abs(g).max()) for n, g in exact.items()}
    least = ZERO * max(sizes.values())
    return {n: float(np.abs(found[n] - g).max() / sizes[n]) for n, g in exact.items() if sizes[n] > least}


def widened(arrays: Arrays) -> dict[str, np.ndarray]:
    """Floats in float64."""
    return {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in arrays.items()}


def neighbours(arrays: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """The arrays with every float changed by up to 8 ulps, a few times, the same in every run."""
    for seed in range(NEIGHBOURS):
        rng = np.random.default_rng(seed)
        yield {
            n: (a * (1 + 8 * ULP * rng.uniform(-1, 1, a.shape))).astype(a.dtype) if a.dtype == np.float32 else a
            for n, a in arrays.items()
        }


def gradients(framework: str, name: str, arrays: Arrays) -> tuple[float, dict[str, np.ndarray]]:
    """A peer's loss and gradients, in the types of the arrays."""
    parameters = {n: a for n, a in arrays.items() if n not in ("x", "labels")}
    return find_peer(framework, name, parameters).loss_and_grads(arrays["x"], arrays["labels"])


def check(name: str, batch: int, framework: str, steps: int = 50) -> Check:
    """Compare gradients, and the losses of SGD steps, with a peer's in float64."""
    model = build_model(name, batch)
    parameters, values = model.parameters, model.values()
    x, labels = model.example()
    arrays = {**values, "x": x, "labels": labels}
    wide = widened(arrays)
    reset(model)
    loss, *found = compile([model.loss, *grad(model.loss, list(parameters.values()))], model.inputs)(x, labels)
    exact_loss, wanted = gradients(framework, name, wide)
    ours = errors(dict(zip(parameters, found, strict=True)), wanted)
    others = [arrays, *(widened(near) for near in neighbours(arrays))]
    own = [errors(gradients(framework, name, other)[1], wanted) for other in others]
    theirs = {n: max(e[n] for e in own) for n in ours}
    peer, exact = (find_peer(framework, name, {n: a[n] for n in values}) for a in (arrays, wide))
    step = train_step(model)
    runs: list[Callable[[], float]] = [
        lambda: float(step(x, labels)[0]),
        lambda: peer.step(x, labels, RATE),
        lambda: exact.step(wide["x"], labels, RATE),
    ]
    ours_run, theirs_run, exact_run = (
        [run() for _ in range(steps)] for run in runs
    )  # in turn their threads would wait
    losses, peer_losses = (
        max(abs(a - b) / abs(b) for a, b in zip(run, exact_run, strict=True)) for run in (ours_run, theirs_run)
    )
    first = abs(float(loss) - exact_loss) / abs(exact_loss)
    return Check(framework, first, ours, theirs, steps, losses, peer_losses)
