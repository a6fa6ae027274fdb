"""Every stage of a model's compilation as text, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neoflow.autodiff import grad
from neoflow.errors import ConfigError
from neoflow.expr.printer import print_program
from neoflow.expr.tensor import topological
from neoflow.models import build_model
from neoflow.pipeline import compile_program
from neoflow.trace import Trace
from neoflow.train.step import sgd_updates
from neoflow.tune import Limits


@dataclass(frozen=True)
class Stage:
    """What one stage made, as text; code has no seconds of its own."""

    name: str
    summary: str
    text: str
    seconds: float | None

    def __str__(self) -> str:
        took = "" if self.seconds is None else f" ({self.seconds * 1e3:.1f} ms)"
        return f"=== {self.name}{took}: {self.summary}\n{self.text}"


def explain(
    name: str,
    batch: int | None = None,
    mode: str = "train",
    stage: str | None = None,
    format: str | None = None,
    target: str = "cpu",
    precision: str = "fp32",
    memory: str | None = None,
    optimize: float | None = None,
    tune: Limits | None = None,
) -> list[Stage]:
    """The stages of a step (SGD) or of inference; of one `stage` only when given; `format` adds the generated code,
    also to one stage. target, memory, optimize, tune: as `nf.compile` takes them; no such device need be here.

    Raises `ConfigError` for a stage there is not.
    """
    model = build_model(name, batch)
    trace = Trace()
    is_training = mode == "train"
    root = model.loss if is_training else model.scores
    trace.run(
        "model", lambda: root, lambda t: f"{len(topological([t]))} tensors", lambda t: print_program(topological([t]))
    )
    if is_training:
        parameters = list(model.parameters.values())
        gradients = trace.run(
            "gradients",
            lambda: grad(model.loss, parameters),
            lambda g: f"{len(g)} gradients, {len(topological(g))} tensors with what they read",
            lambda g: print_program(topological(g)),
        )
        updates = sgd_updates(model, gradients)
        compiled = compile_program(
            [model.loss], model.inputs, updates, target, precision, tune, memory=memory, optimize=optimize
        )
    else:
        compiled = compile_program(
            [model.scores], [model.x], None, target, precision, tune, memory=memory, optimize=optimize
        )
    trace.records += compiled.trace.records
    # What prints each stage; nothing is printed that is not asked for.
    found: dict[str, tuple[str, Callable[[], str], float | None]] = {
        r.name: (r.summary, r.text, r.seconds) for r in trace.records
    }
    if format is not None:
        found[format] = (f"the code of {len(compiled.kernels)} kernels", lambda: compiled.source(format), None)
    if stage is not None and stage not in found:
        raise ConfigError(f"there is no stage {stage!r}; there are {', '.join(found)}")
    return [Stage(n, s, text(), t) for n, (s, text, t) in found.items() if stage is None or n in (stage, format)]
