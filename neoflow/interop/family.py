"""`Family`: the programs of one operator, for each shape and dtype that it meets, and what follows from them.

A *case* is one of these programs. It is known by a text, from which any process that has the operator makes it again:
what its arguments are, and the steps from there.

    [["float32", [8, 16]], ["float32", [32, 16]], 2]    the steps [["adjoint", [0, 1], [0]], ["batched", [0], 5]]
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neoflow.errors import ArgumentError, NeoflowError, RuntimeFault
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.interop.program import Adjoint, Program, adjoint, batched, closed, is_float, saving
from neoflow.interop.signature import Signature

LIMIT = 64
"""Shapes of one operator; what changes its shape at every call would compile for ever."""
_PROBES = (64, 128)
"""What stands for an extent of 0 while a program is written: sizes that windows and blocks fit into."""
Spec = tuple[str, tuple[int, ...]]
"""dtype and shape of a tensor."""
log = logging.getLogger("neoflow")


def told(spec: Spec) -> str:
    return f"{spec[0]}{list(spec[1])}"


@dataclass(frozen=True)
class Backward:
    """How a backward pass is run: the text of its case; which values of the forward pass it takes, as in `Adjoint`,
    then the cotangents of the outputs `given`; whose gradients it gives."""

    text: str
    sources: tuple[int, ...]
    given: tuple[int, ...]
    wanted: tuple[int, ...]


class Case:
    """A program of an operator. `adjoint`: of the step that it was made by, where that is one."""

    def __init__(self, family: Family, specs: tuple[Any, ...], steps: tuple[Any, ...], programs: Sequence[Program]):
        self.family, self.specs, self.steps = family, specs, steps
        self.text = json.dumps([specs, steps])
        self.adjoint: Adjoint | None = None
        self._programs = tuple(programs)
        """one; or, where a tensor is empty, one for each of `_PROBES`"""
        self._next: dict[Any, Case] = {}
        self._backward: dict[Any, Backward] = {}

    @property
    def program(self) -> Program:
        return self._programs[0]

    @property
    def is_empty(self) -> bool:
        """Whether a tensor that it takes has no elements: there is nothing to compile."""
        return len(self._programs) > 1

    @cached_property
    def outputs(self) -> tuple[Spec, ...]:
        """Of what it gives."""
        found = [[(t.dtype, t.shape) for t in p.outputs] for p in self._programs]
        if not self.is_empty:
            return tuple(found[0])
        low, high = found
        return tuple(
            (d, tuple(max(0, 2 * m - n) for m, n in zip(a, b, strict=True)))
            for (d, a), (_, b) in zip(low, high, strict=True)
        )

    @cached_property
    def floats(self) -> tuple[int, ...]:
        """The outputs that have gradients."""
        return tuple(n for n, t in enumerate(self.program.outputs) if is_float(t))

    def pulled(self, wanted: tuple[int, ...], given: tuple[int, ...] | None = None) -> tuple[Case, Adjoint]:
        """Its backward pass for the inputs `wanted`, with cotangents of the outputs `given`; None: of all."""
        case = self._after(("adjoint", wanted, self.floats if given is None else given))
        assert case.adjoint is not None
        return case, case.adjoint

    def backward(self, needed: tuple[bool, ...], has_cotangent: tuple[bool, ...] | None = None) -> Backward:
        """Its backward pass for these inputs, with cotangents of these outputs; None: of all."""
        found = self._backward.get((needed, has_cotangent))
        if found is None:
            wanted = tuple(n for n, is_needed in enumerate(needed) if is_needed)
            given = self.floats if has_cotangent is None else tuple(n for n in self.floats if has_cotangent[n])
            case, made = self.pulled(wanted, given)
            found = Backward(case.text, made.sources, given, made.wanted)
            self._backward[needed, has_cotangent] = found
        return found

    def saving(self, wanted: tuple[int, ...]) -> Case:
        """With what its backward pass for these inputs would be slow to compute again as further outputs."""
        return self if self.is_empty else self._after(("saving", wanted))

    def batched(self, which: tuple[int, ...], size: int) -> Case:
        """Over a batch of the inputs `which`."""
        return self._after(("batched", which, size))

    def _after(self, step: tuple[Any, ...]) -> Case:
        found = self._next.get(step)
        if found is None:
            with self.family.lock:
                found = self._next.get(step)
                if found is None:
                    found = self._next[step] = self.family.keep(self._stepped(step))
        return found

    def _stepped(self, step: tuple[Any, ...]) -> Case:
        programs, steps = self._programs, (*self.steps, step)
        if step[0] == "adjoint":
            adjoints = [adjoint(p, *step[1:]) for p in programs]
            case = Case(self.family, self.specs, steps, [a.program for a in adjoints])
            case.adjoint = adjoints[0]
            return case
        if step[0] == "saving":
            return Case(self.family, self.specs, steps, [saving(p, step[1]) for p in programs])
        which, size = step[1:]
        if not size:
            programs = programs if self.is_empty else programs * len(_PROBES)
            made = [batched(p, which, n) for p, n in zip(programs, _PROBES, strict=True)]
        else:
            made = [batched(p, which, size) for p in programs]
        return Case(self.family, self.specs, steps, made)

    def check_empty(self) -> None:
        """Raise `RuntimeFault` unless what it gives follows from a tensor having no elements: it has none itself, or is
        a gradient, a sum over nothing."""
        if any(step[0] == "adjoint" for step in self.steps):
            return
        for t, spec in zip(self.program.outputs, self.outputs, strict=True):
            if 0 not in spec[1]:
                names = [
                    f"{a.name} is {told(s)}"
                    for a, s in zip(self.family.signature.arguments, self.specs, strict=True)
                    if a.is_tensor and s is not None and 0 in s[1]
                ]
                raise RuntimeFault(
                    f"operator {self.family.signature.name}: {names[0]}, and its result {t.name} is {told(spec)}: "
                    "nothing says what that is without elements",
                    t.where,
                )

    @property
    def what(self) -> str:
        """In words, for the log."""
        words = {"adjoint": "its gradients", "saving": "with what they need", "batched": "over a batch"}
        return ", ".join(["itself" if not self.steps else "", *(words[s[0]] for s in self.steps)]).strip(", ")


class Family:
    """function: takes a tensor for each tensor of the signature, or None, and the static arguments as they are; gives
    one tensor, or several. limit: how many shapes there may be."""

    def __init__(self, function: Callable[..., Any], signature: Signature, limit: int):
        self.function, self.signature, self.limit = function, signature, limit
        self.lock = threading.RLock()
        self._cases: dict[str, Case] = {}
        self._first: dict[tuple[Any, ...], Case] = {}

    def keep(self, case: Case) -> Case:
        return self._cases.setdefault(case.text, case)

    def of(self, text: str) -> Case:
        """The case that a text is about."""
        found = self._cases.get(text)
        if found is None:
            specs, steps = json.loads(text)
            found = self.case(tuple((s[0], tuple(s[1])) if isinstance(s, list) else s for s in specs))
            for kind, *rest in steps:
                found = found._after((kind, *(tuple(r) if isinstance(r, list) else r for r in rest)))
        return found

    def case(self, specs: tuple[Any, ...]) -> Case:
        """The operator itself. specs: of each argument dtype and shape, or None; a static one's value.

        Raises `RuntimeFault` for more shapes than `limit`, what the function raises, and `ArgumentError` for what it
        returns.
        """
        found = self._first.get(specs)
        if found is not None:
            return found
        with self.lock:
            if specs not in self._first:
                if len(self._first) >= self.limit:
                    raise RuntimeFault(
                        f"operator {self.signature.name} was compiled for {self.limit} shapes, and now "
                        f"{self._reason(specs)}: pad its tensors to a few sizes, or give it a larger limit="
                    )
                log.info("operator %s: another program, since %s", self.signature.name, self._reason(specs))
                is_empty = any(0 in s[1] for s in specs if isinstance(s, tuple))
                programs = [self._written(specs, n) for n in (_PROBES if is_empty else (0,))]
                self._first[specs] = self.keep(Case(self, specs, (), programs))
        return self._first[specs]

    def _reason(self, specs: tuple[Any, ...]) -> str:
        """Why there is no program yet: what is different from the most similar one."""
        if not self._first:
            return "it is called for the first time"

        def differing(other: tuple[Any, ...]) -> list[int]:
            return [n for n, (a, b) in enumerate(zip(specs, other, strict=True)) if a != b or type(a) is not type(b)]

        near = min(self._first, key=lambda other: len(differing(other)))
        names = [a.name for a in self.signature.arguments]
        return " and ".join(f"{names[n]} is {_shown(specs[n])}, not {_shown(near[n])}" for n in differing(near))

    def _written(self, specs: tuple[Any, ...], probe: int) -> Program:
        """The function's program. probe: what stands for an extent of 0."""
        inputs: list[Placeholder] = []
        given: list[Any] = []
        named: dict[str, Any] = {}
        for a, spec in zip(self.signature.arguments, specs, strict=True):
            if a.is_tensor and spec is not None:
                inputs.append(Placeholder(tuple(n or probe for n in spec[1]), spec[0], a.name, None))
            value = inputs[-1] if a.is_tensor and spec is not None else spec
            if a.is_named:
                named[a.name] = value
            else:
                given.append(value)
        try:
            found = self.function(*given, **named)
        except NeoflowError as error:
            if not probe:
                raise
            raise RuntimeFault(
                f"operator {self.signature.name}: a tensor has no elements, and of {probe} in place of each 0 there is "
                f"no program either: {error}"
            ) from None
        outputs = list(found) if isinstance(found, (tuple, list)) else [found]
        name = self.signature.name
        if len(outputs) != self.signature.count:
            raise ArgumentError(
                f"operator {name} returned {len(outputs)} tensors, not {self.signature.count}: annotate what it "
                "returns, `-> tuple[nf.Tensor, nf.Tensor]`, or give outputs="
            )
        for t in outputs:
            if not isinstance(t, Tensor):
                raise ArgumentError(f"operator {name} returned {type(t).__name__}, which is no tensor of neoflow")
        return closed(inputs, outputs, name)


def _shown(spec: Any) -> str:
    return told(spec) if isinstance(spec, tuple) else repr(spec)
