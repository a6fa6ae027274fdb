"""Programs as other libraries know operators, closed in their inputs; and what follows from one by a few steps.

    saving    what a backward pass would have to compute again, at more cost than keeping it, is an output too
    adjoint   from values of a program and cotangents of its outputs to the cotangents of its inputs
    batched   each of some inputs with one more axis, the first

Each step gives a program again, so that derivatives of every order, of batches too, come from these three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow import dtype as dt
from neoflow.autodiff import grad, vjp
from neoflow.caller import caller
from neoflow.errors import ExpressionError
from neoflow.expr.batched import batched as batched_tensors
from neoflow.expr.count import count_definition
from neoflow.expr.dsl import sum as total
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Parameter, Placeholder, Tensor, topological

DEAR = 64
"""Operations an element from which a tensor is kept for the backward pass and not computed again. An element written
and read once more, 8 bytes of float32, takes about 0.4 ns of a memory that moves 20 GB/s, and as long as 64 operations
at 160 GFLOP/s (`neoflow doctor` measures both). Chosen, not fitted."""


@dataclass(frozen=True)
class Program:
    """outputs: tensors over these inputs and constants, nothing else."""

    inputs: tuple[Placeholder, ...]
    outputs: tuple[Tensor, ...]

    @property
    def has_inner(self) -> bool:
        """Whether anything is computed on the way to the outputs."""
        outputs = set(self.outputs)
        return any(isinstance(t, Compute) and t not in outputs for t in topological(list(self.outputs)))

    @property
    def depends(self) -> tuple[tuple[int, ...], ...]:
        """For every output the positions of the inputs it needs."""
        needs = [set(topological([t])) for t in self.outputs]
        return tuple(tuple(n for n, x in enumerate(self.inputs) if x in needed) for needed in needs)


@dataclass(frozen=True)
class Adjoint:
    """program: takes the values of the program it is of that it needs, then one cotangent for each output of `given`.

    sources: which values these are, by their number among that program's inputs and outputs, in this order. wanted: the
    inputs whose cotangents it gives, in the order of its outputs; the others of those asked for have none.
    """

    program: Program
    sources: tuple[int, ...]
    wanted: tuple[int, ...]


def closed(inputs: Sequence[Placeholder], outputs: Sequence[Tensor], name: str) -> Program:
    """A program as a user's function made it. Raises `ExpressionError` where it needs more than its inputs."""
    known = set(inputs)
    for t in topological(list(outputs)):
        if isinstance(t, Placeholder) and t not in known:
            kind = "parameter" if isinstance(t, Parameter) else "placeholder"
            raise ExpressionError(
                f"operator {name} reads the {kind} {t.name}, which is none of its arguments: give it as one, or make a "
                "module of the layer that has it",
                t.where or caller(),
            )
    return Program(tuple(inputs), tuple(outputs))


def is_float(t: Tensor) -> bool:
    return dt.is_float(t.dtype)


def adjoint(program: Program, wanted: Sequence[int], given: Sequence[int]) -> Adjoint:
    """The backward pass of a program: for the inputs `wanted`, with cotangents of the outputs `given`.

    A tensor of the forward pass is taken as it is where it is an input or output, and computed again elsewhere.
    """
    reach = program.depends
    given = [k for k in given if is_float(program.outputs[k])]
    wanted = [n for n in wanted if is_float(program.inputs[n]) and any(n in reach[k] for k in given)]
    cotangents = [_like(program.outputs[k], f"d_{program.outputs[k].name}") for k in given]
    found = _pulled(program, wanted, given, cotangents)
    values = (*program.inputs, *program.outputs)
    stand_ins: dict[Tensor, Placeholder] = {}
    for t in reversed(values):  # an output that is an input is taken as the input
        stand_ins[t] = t if isinstance(t, Placeholder) else _like(t, t.name)
    outputs = replaced(found, lambda t: stand_ins.get(t) if isinstance(t, Compute) else None)
    needed = set(topological(outputs))
    sources = {t: n for n, t in reversed(list(enumerate(values))) if stand_ins[t] in needed}
    order = sorted(sources.values())
    taken = tuple(stand_ins[values[n]] for n in order)
    return Adjoint(Program((*taken, *cotangents), tuple(outputs)), tuple(order), tuple(wanted))


def _like(t: Tensor, name: str) -> Placeholder:
    return Placeholder(t.shape, t.dtype, name, t.where)


def _pulled(
    program: Program, wanted: Sequence[int], given: Sequence[int], cotangents: Sequence[Placeholder]
) -> list[Tensor]:
    """Cotangents of inputs: of one output by itself, of several by the sum of all products, so that each is gone
    through once."""
    wrt = [program.inputs[n] for n in wanted]
    outputs = [program.outputs[k] for k in given]
    if not wrt:
        return []
    if len(outputs) == 1:
        return vjp(outputs[0], wrt, cotangents[0], allow_unused=True)
    by_dtype: dict[str, list[Tensor]] = {}
    for y, g in zip(outputs, cotangents, strict=True):
        by_dtype.setdefault(y.dtype, []).append(total(y * g))
    found: list[Tensor | None] = [None] * len(wrt)
    for terms in by_dtype.values():
        loss = terms[0]
        for term in terms[1:]:
            loss = loss + term
        for n, part in enumerate(grad(loss, wrt, allow_unused=True)):
            before = found[n]
            found[n] = part if before is None else before + part
    return [t for t in found if t is not None]


def saving(program: Program, wanted: Sequence[int]) -> Program:
    """The program with those tensors as outputs too that its backward pass reads, and that would be dear to compute
    again."""
    given = range(len(program.outputs))
    forward = topological(list(program.outputs))
    own, known = set(forward), {*program.inputs, *program.outputs}
    backward = _pulled(
        program,
        [n for n in wanted if is_float(program.inputs[n])],
        [k for k in given if is_float(program.outputs[k])],
        [_like(t, "g") for t in program.outputs if is_float(t)],
    )
    after = [t for t in topological(backward) if t not in own]
    read = {i for t in after if isinstance(t, Compute) for i in t.inputs}
    kept: list[Tensor] = []
    for t in forward:
        if isinstance(t, Compute) and t in read and t not in known and _again(t, known) >= DEAR * t.size:
            kept.append(t)
            known.add(t)
    return Program(program.inputs, (*program.outputs, *kept))


def _again(t: Tensor, known: set[Tensor]) -> int:
    """Operations of a tensor and of what it needs that is not known."""
    seen: set[Tensor] = set()
    operations, stack = 0, [t]
    while stack:
        t = stack.pop()
        if isinstance(t, Compute) and t not in known and t not in seen:
            seen.add(t)
            operations += count_definition(t.definition).flops
            stack += t.inputs
    return operations


def batched(program: Program, which: Sequence[int], size: int) -> Program:
    """The program over batches of `size` of the inputs `which`. An output that needs none of them stays as it is."""
    chosen = [program.inputs[n] for n in which]
    new: dict[Tensor, Placeholder] = {t: Placeholder((size, *t.shape), t.dtype, t.name, t.where) for t in chosen}
    outputs = batched_tensors(program.outputs, new, size)
    return Program(tuple(new.get(t, t) for t in program.inputs), tuple(outputs))
