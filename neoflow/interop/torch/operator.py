"""`nf.torch.operator`: an expression as an operator of PyTorch.

Three operators of PyTorch stand for one of neoflow, made when it is defined, so that graphs that PyTorch keeps on disk
find them in the next process:

    NAME            the operator as it was written
    NAME_saving     the same, for a backward pass: gives also what that would be slow to compute again
    NAME_derived    whatever follows from it, by the text of a case: gradients, theirs, and batches of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from neoflow.caller import caller
from neoflow.errors import ArgumentError, shown
from neoflow.interop.compiled import check_search
from neoflow.interop.family import LIMIT, Case, Family
from neoflow.interop.named import Named, decorator
from neoflow.interop.signature import Names, Signature
from neoflow.interop.torch.derivatives import Transformed, keep, over, pulled
from neoflow.interop.torch.direct import Direct, is_plain, key_of
from neoflow.interop.torch.tensors import Run, empty_results, runner, spec_of
from neoflow.tune import Limits

_NAMESPACE = "neoflow"
_AUTOCAST = ("cpu", "cuda")
NAMES = Names()


class Operator(Named):
    """What `nf.torch.operator` makes: called with tensors, gives tensors.

    Gradients of any order, `torch.func`, `torch.compile`, autocast and `no_grad` work as with PyTorch's own operators.
    `op`, `saving` and `derived` are what this module says there is in `torch.ops.neoflow`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        target: str | None,
        tune: float | Limits | None,
        limit: int,
        autocast: torch.dtype | None,
    ):
        super().__init__(function, signature)
        self._family = Family(function, signature, limit)
        self._target, self._tune = target, tune
        self._count = len(signature.arguments)
        self._tensors = tuple(n for n, a in enumerate(signature.arguments) if a.is_tensor)
        self._has_optional = any(a.is_optional for a in signature.arguments)
        self._has_static = len(self._tensors) < self._count
        self._has_inner = True
        """False once a program was written that computes nothing but its results"""
        self._runs: dict[Any, Run] = {}
        self._plain: dict[Any, Run] = {}
        self._tracked: dict[Any, tuple[Case, Run, tuple[bool, ...]]] = {}
        self._saves: dict[Any, bool] = {}
        self._known: dict[Any, Case] = {}
        self.op, self.saving, self.derived = self._registered(autocast)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) != self._count:
            args = self.signature.filled(args, named)
        if not torch.compiler.is_compiling() and is_plain():
            found = self._direct(args)
            if found is not None:
                return self._given(found)
        if torch.is_grad_enabled():
            wanted = []
            for n in self._tensors:
                t = args[n]
                if t is not None and t.requires_grad:
                    wanted.append(n)
            is_compiling = torch.compiler.is_compiling()
            if not is_compiling and torch._C._are_functorch_transforms_active():
                case = self._saving_case((*args, wanted)) if wanted else self.case(args)
                found = Transformed.apply(self, case.text, *self._values(args))
                return self._given(found[: self.signature.count])
            if wanted and (is_compiling or self._is_saving(args, wanted)):
                found = self.saving(*args, wanted)
                return tuple(found[: self.signature.outputs]) if self.signature.outputs else found[0]
        return self.op(*args)

    def _direct(self, args: Sequence[Any]) -> Sequence[torch.Tensor] | None:
        """The results of a call that PyTorch's dispatcher would add nothing to but its time; None of another, and of
        one with tensors like which there were none."""
        try:
            key = key_of(args)
            run = self._plain.get(key)
        except TypeError:  # symbolic extents
            return None
        if run is None:
            if key is not None and (known := self._runs.get(_key(args))) is not None:
                self._plain[key] = known
            return None
        wanted = torch.is_grad_enabled() and [n for n in self._there(args) if args[n].requires_grad]
        if not wanted:
            return run(self._values(args))
        made = self._tracked.get((*wanted, key))
        if made is None:
            case = self.case(args)
            if self._is_saving(args, wanted):
                case = self._saving_case((*args, wanted))
                place = (*wanted, *_key(args))
                run = self._runs.get(place) or self._run(place, case, self._values(args))
            needed = tuple([n in wanted for n in self._there(args)])
            made = self._tracked[(*wanted, key)] = (case, run, needed)
        return Direct.apply(self, *made, *self._values(args))[: self.signature.count]

    # ----------------------------------------------------------------------------------------------------- its cases

    def case(self, args: Sequence[Any]) -> Case:
        """The case of these arguments, real or fake ones."""
        key = _key(args)
        try:
            return self._known[key]
        except KeyError:
            pass
        except TypeError:  # symbolic extents
            key = ()
        devices = {args[n].device for n in self._there(args)}
        if len(devices) > 1:
            both = " and ".join(sorted(map(str, devices)))
            raise ArgumentError(f"operator {self.signature.name}: tensors on {both}", caller())
        specs = []
        for a, value in zip(self.signature.arguments, args, strict=True):
            specs.append(spec_of(value, a.name) if a.is_tensor and value is not None else value)
        case = self._family.case(tuple(specs))
        self._has_inner = case.program.has_inner
        if key:
            self._known[key] = case
        return case

    def _saving_case(self, args: Sequence[Any]) -> Case:
        """The last argument is the numbers of those with gradients."""
        *own, wanted = args
        return self.case(own).saving(self._positions(own, wanted))

    def _positions(self, args: Sequence[Any], numbers: Sequence[int]) -> tuple[int, ...]:
        """The numbers of arguments as positions among the tensors that are there."""
        there = self._there(args)
        return tuple(there.index(n) for n in numbers)

    def _there(self, args: Sequence[Any]) -> Sequence[int]:
        """The numbers of the tensors that are not None."""
        if not self._has_optional:
            return self._tensors
        return [n for n in self._tensors if args[n] is not None]

    def _values(self, args: Sequence[Any]) -> Sequence[torch.Tensor]:
        if not self._has_static and not self._has_optional and len(args) == self._count:
            return args
        return [args[n] for n in self._there(args)]

    def _is_saving(self, args: Sequence[Any], wanted: list[int]) -> bool:
        """Whether anything would be slow to compute again in the backward pass."""
        if not self._has_inner:
            return False
        key = (*wanted, *_key(args))
        try:
            return self._saves[key]
        except KeyError:
            pass
        except TypeError:  # symbolic extents
            key = ()
        floats = {args[n].dtype for n in self._there(args) if args[n].is_floating_point()}
        if len(floats) > 1:  # autocast makes one of them
            return False
        case = self._saving_case((*args, wanted))
        found = len(case.outputs) > self.signature.count
        if key:
            self._saves[key] = found
        return found

    def _run(self, key: Any, case: Case, values: Sequence[torch.Tensor]) -> Run:
        found = self._runs[key] = runner(case, values[0].device.type, self._target, self._tune)
        return found

    # ------------------------------------------------------------------------------------------------ registration

    def _registered(self, autocast: torch.dtype | None) -> tuple[Any, Any, Any]:
        """The three operators of PyTorch."""
        name = f"{_NAMESPACE}::{self.signature.name}"
        takes = ", ".join(a.schema for a in self.signature.arguments)
        gives = f"({', '.join(['Tensor'] * self.signature.outputs)})" if self.signature.outputs else "Tensor"
        own = _define(name, f"({takes}) -> {gives}", self._compute)
        saving = _define(f"{name}_saving", f"({takes}, int[] wanted) -> Tensor[]", self._compute_saving)
        derived = _define(f"{name}_derived", "(Tensor[] values, str of) -> Tensor[]", self.derived_run)
        own.register_fake(lambda *args: self._given(empty_results(self.case(args), self._values(args)[0])))
        saving.register_fake(lambda *args: empty_results(self._saving_case(args), self._values(args[:-1])[0]))
        derived.register_fake(lambda values, of: empty_results(self._family.of(of), values[0]))
        own.register_autograd(self._backward, setup_context=self._setup)
        saving.register_autograd(self._backward, setup_context=self._setup_saving)
        derived.register_autograd(self._backward_derived, setup_context=self._setup_derived)
        own.register_vmap(self._batch)
        saving.register_vmap(self._batch_saving)
        derived.register_vmap(self._batch_derived)
        for device in _AUTOCAST if autocast is not None else ():
            for op in (own, saving):
                op.register_autocast(device, autocast)
        return own._opoverload, saving._opoverload, derived._opoverload

    def of(self, text: str) -> Case:
        """The case that a text is about."""
        return self._family.of(text)

    def _given(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Results as the operator gives them."""
        return tuple(tensors) if self.signature.outputs else tensors[0]

    # -------------------------------------------------------------------------------------------------------- values

    def _compute(self, *args: Any) -> Any:
        key = _key(args)
        values = self._values(args)
        run = self._runs.get(key) or self._run(key, self.case(args), values)
        return self._given(run(values))

    def _compute_saving(self, *args: Any) -> list[torch.Tensor]:
        key = (*args[-1], *_key(args[:-1]))
        values = self._values(args[:-1])
        run = self._runs.get(key) or self._run(key, self._saving_case(args), values)
        return run(values)

    def derived_run(self, values: Sequence[torch.Tensor], of: str) -> list[torch.Tensor]:
        key = (of, values[0].is_cpu)
        run = self._runs.get(key) or self._run(key, self._family.of(of), values)
        return run(values)

    # ----------------------------------------------------------------------------------------------------- gradients

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        numbers, needs = self._there(inputs), ctx.needs_input_grad
        outputs = output if self.signature.outputs else (output,)
        keep(ctx, self.case(inputs), tuple([needs[n] for n in numbers]), self._values(inputs), outputs)
        if self._has_optional:
            ctx.numbers = numbers

    def _setup_saving(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        numbers, wanted = self._there(inputs), inputs[-1]
        values = [inputs[n] for n in numbers]
        keep(ctx, self._saving_case(inputs), tuple([n in wanted for n in numbers]), values, output)
        if self._has_optional:
            ctx.numbers = numbers

    def _setup_derived(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, of = inputs
        keep(ctx, self._family.of(of), tuple(ctx.needs_input_grad[: len(values)]), values, output)

    def _backward(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad
        found: list[Any] = [None] * len(needs)
        cotangents = grads[0] if len(grads) == 1 and isinstance(grads[0], (list, tuple)) else grads
        numbers = ctx.numbers if self._has_optional else self._tensors
        needed = [needs[n] for n in numbers]
        for n, g in zip(numbers, pulled(ctx, needed, cotangents, self.derived), strict=True):
            found[n] = g
        return tuple(found)

    def _backward_derived(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return pulled(ctx, ctx.needs_input_grad[0], grads[0], self.derived), None

    # ------------------------------------------------------------------------------------------------------- batches

    def _batch(self, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        found, dims = self._batched(info, in_dims, args, self.case)
        return self._given(found), (tuple(dims) if self.signature.outputs else dims[0])

    def _batch_saving(self, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        return self._batched(info, in_dims, args, self._saving_case)

    def _batched(
        self, info: Any, in_dims: tuple[Any, ...], args: tuple[Any, ...], case_of: Callable[[Sequence[Any]], Case]
    ) -> tuple[list[Any], list[Any]]:
        one = [a if d is None else a.select(d, 0) for a, d in zip(args, in_dims, strict=True)]
        dims = [in_dims[n] for n in self._there(args)]
        return over(info.batch_size, case_of(one), self._values(args), dims, self.derived)

    def _batch_derived(self, info: Any, in_dims: tuple[Any, ...], values: list[Any], of: str) -> Any:
        return over(info.batch_size, self._family.of(of), values, in_dims[0], self.derived)


def _key(args: Sequence[Any]) -> tuple[Any, ...]:
    """What a run is found by; it cannot be hashed where an extent is symbolic."""
    return tuple([(a.dtype, a.shape, a.is_cpu) if isinstance(a, torch.Tensor) else a for a in args])


def _define(name: str, schema: str, compute: Callable[..., Any]) -> Any:
    return torch.library.custom_op(name, compute, mutates_args=(), schema=schema)


def operator(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    outputs: int | None = None,
    target: str | None = None,
    tune: float | Limits | None = None,
    limit: int = LIMIT,
    autocast: torch.dtype | None = torch.float32,
) -> Any:
    """An expression as an operator of PyTorch: `@nf.torch.operator` before a function of tensors.

    The function is called with tensors of neoflow, once for each shape and dtype of the tensors that the operator is
    called with, and gives one tensor or a tuple of them (annotated `-> tuple[nf.Tensor, nf.Tensor]`, or outputs=2). An
    argument annotated `int`, `float`, `bool` or `str`, or with such a default, is what it is; all others are tensors,
    and may be None where None is their default. name: that in `torch.ops.neoflow`, its own when None. target: "cuda"
    and the like, that of the tensors when None. tune: search for better schedules, for so many seconds or within
    `nf.tune.Limits`, of each program that is compiled; what was found is found again by every later process. limit: how
    many shapes there may be. autocast: what floats become under `torch.autocast`; None: they stay.
    """

    if autocast is not None and not isinstance(autocast, torch.dtype):
        raise ArgumentError(f"autocast is {shown(autocast)}; it is a dtype of PyTorch, or None", caller())
    check_search(target, tune)
    make = partial(_made, target=target, tune=tune, limit=limit, autocast=autocast)
    return decorator(function, make, NAMES, name, outputs, limit)


def _made(function: Callable[..., Any], signature: Signature, **options: Any) -> Operator:
    return Operator(function, signature, **options)
