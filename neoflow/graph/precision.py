"""Mixed precision: which tensors of a float32 program are stored narrow, and why, as a table of rows.

    y[b, o] = sum[i](x[b, i] * w[o, i])    ->    x16 = bfloat16(x);  w16 = bfloat16(w)
    a = relu(y + bias)                           y[b, o] = sum[i](float32(x16[b, i]) * float32(w16[o, i]))
    z = sum(a * v)                               a16 = bfloat16(relu(y + bias));  z = sum(float32(a16) * float32(v16))

Operands of contractions are rounded to the narrow type, their products are summed in float32. `RULES` says of each
other tensor what it is stored as; all arithmetic stays float32, in registers. Parameters stay as they are: they are the
masters, of which contractions read a copy. The values change, so this is no `Rewrite`: the graph that comes out has
its own meaning, to which every later stage keeps. It knows no device.

In "tf32" nothing is stored narrow: the operands are float32, rounded to TF32, 10 bits after the point, where they are
multiplied.

Source: Micikevicius et al., Mixed Precision Training, 2018.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.functions import ROUND_TF32
from neoflow.expr.ir import Apply, Binder, Cast, Const, Expr, Read, Reduce, Select, Slot, postorder, rewrite, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Constant, Definition, Tensor
from neoflow.graph.facts import is_contraction, is_move, own_indices
from neoflow.graph.graph import Graph
from neoflow.graph.padding import factors

NARROW = {"bf16": "bfloat16", "fp16": "float16"}
"""The type that takes the place of float32 where a rule allows it."""
SHORT = {narrow: name for name, narrow in NARROW.items()}
WIDE = "float32"
TF32 = "tf32"
MIXED = (*NARROW, TF32)
"""The names of precisions in which contractions are not as they are written."""

WIDE_FUNCTIONS = {
    "exp": "leaves the range of float16 beyond 11",
    "expm1": "leaves the range of float16 beyond 11",
    "pow": "leaves the range of float16 soon",
    "log": "has few digits left near 1",
    "log1p": "has few digits left near 0",
    "rsqrt": "of what is small is large: a norm",
    "div": "by what is small is large: a softmax, a norm",
    "sin": "needs every digit of a large angle",
    "cos": "needs every digit of a large angle",
}
"""Functions whose result stays float32, with the reason; division by a number is none of them."""


@dataclass(frozen=True)
class Place:
    """A float32 compute where it stands.

    is_operand: a contraction reads it, itself or as a move of it. leads: a contraction follows from it, however far.
    readers: how many read it, moves of it apart. is_move_narrow: it moves what is stored narrow.
    """

    tensor: Compute
    is_root: bool
    is_operand: bool
    leads: bool
    readers: int
    is_move_narrow: bool

    @property
    def body(self) -> Expr:
        return self.tensor.definition.body


@dataclass(frozen=True)
class Rule:
    """A row: the tensors it holds for, whether these are stored narrow, and why."""

    name: str
    holds: Callable[[Place], bool]
    is_narrow: bool
    reason: Callable[[Place], str]


def _reason(text: str) -> Callable[[Place], str]:
    return lambda _: text


def _is_contraction(p: Place) -> bool:
    return is_contraction(p.tensor.definition)


def _listed(p: Place) -> str | None:
    """The first listed function of a body."""
    return _wide_function(p.tensor.definition)


RULES = (
    Rule("result", lambda p: p.is_root, False, _reason("the program gives it back, or sets a parameter to it")),
    Rule("move", lambda p: p.is_move_narrow, True, _reason("it moves what is narrow")),
    Rule("move", lambda p: is_move(p.tensor.definition), False, _reason("it moves what is float32")),
    Rule(
        "operand of contractions",
        lambda p: _is_contraction(p) and p.is_operand,
        True,
        _reason("summed in float32, rounded once for the contractions that read it"),
    ),
    Rule(
        "gradient",
        lambda p: _is_contraction(p) and not p.leads,
        False,
        _reason("summed in float32 on its way to an update or a result: no contraction follows"),
    ),
    Rule(
        "contraction",
        lambda p: _is_contraction(p) and p.readers > 1,
        True,
        _reason("summed in float32, rounded once for the several that read it"),
    ),
    Rule("contraction", _is_contraction, False, _reason("summed in float32, and what alone reads it takes it so")),
    Rule(
        "reduction",
        lambda p: isinstance(p.body, Binder),
        False,
        _reason("it reduces or scatters and is no contraction: a statistic, a loss, a sum of gradients"),
    ),
    Rule(
        "function",
        lambda p: _listed(p) is not None,
        False,
        lambda p: f"`{_listed(p)}` {WIDE_FUNCTIONS[_listed(p) or '']}",
    ),
    Rule(
        "operand of contractions",
        lambda p: p.is_operand,
        True,
        _reason("computed in float32, rounded once for the contractions that read it"),
    ),
    Rule("elementwise", lambda p: True, False, _reason("no contraction reads it")),
)
"""The first that holds decides."""


@dataclass(frozen=True)
class Choice:
    """What became of one float32 tensor. has_copy: it is float32, and contractions read a narrow copy of it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    rule: str
    reason: str
    has_copy: bool

    def __str__(self) -> str:
        copy = ", with a narrow copy for contractions" if self.has_copy else ""
        return f"{self.dtype:8} {self.name}{list(self.shape)}: {self.rule}: {self.reason}{copy}"


@dataclass(frozen=True)
class Mixed:
    """The graph in mixed precision, and what became of each float32 tensor of it, in order."""

    graph: Graph
    precision: str
    choices: tuple[Choice, ...]

    @property
    def summary(self) -> str:
        """How many tensors are narrow: a line."""
        if self.precision == TF32:
            count = sum(c.rule == "contraction" for c in self.choices)
            return f"{count} of {len(self.choices)} float32 tensors are contractions of tf32"
        narrow = sum(c.dtype != WIDE for c in self.choices)
        copies = sum(c.has_copy for c in self.choices)
        return f"{narrow} of {len(self.choices)} float32 tensors are {NARROW[self.precision]}, {copies} have a copy"

    @property
    def table(self) -> str:
        """What became of each tensor and why, those of one line together."""
        lines = Counter(map(str, self.choices))
        return "\n".join(line if count == 1 else f"{line} ({count} times)" for line, count in lines.items())

    def __str__(self) -> str:
        return f"{self.table}\n\n{self.graph}"


def mix(graph: Graph, precision: str) -> Mixed:
    """A graph in normal form, with its contractions in `precision`: a name of `MIXED`."""
    return _rounding(graph) if precision == TF32 else _Mixing(graph, precision).run()


def _rounding(graph: Graph) -> Mixed:
    """Operands of contractions rounded to TF32 where these read them, and nothing else."""
    new: dict[Tensor, Tensor] = {}
    choices = []
    for t in graph.order:
        new[t] = t
        rule, reason = "given", GIVEN
        if isinstance(t, Compute):
            taken, inputs = operands(t.definition), tuple(new[i] for i in t.inputs)
            inside: dict[Expr, Expr] = {e: Apply(ROUND_TF32, (e,)) for e in taken}
            new[t] = _made(t, substitute(t.definition.body, inside), inputs)
            rule, reason = "other", "only what contractions multiply is rounded"
            if taken:
                rule, reason = "contraction", f"{len(taken)} operands {TF32}, multiplied and summed in float32"
        if t.dtype == WIDE:
            choices.append(Choice(t.name, t.shape, WIDE, rule, reason, False))
    return Mixed(graph.with_roots([new[t] for t in graph.roots]), TF32, tuple(choices))


GIVEN = "values of parameters, inputs and constants stay what they are"


@remembered
def _wide_function(definition: Definition) -> str | None:
    for e in postorder(definition.body):
        is_listed = isinstance(e, Apply) and e.fn in WIDE_FUNCTIONS and e.dtype == WIDE
        if isinstance(e, Apply) and is_listed and not (e.fn == "div" and isinstance(e.args[1], Const)):
            return e.fn
    return None


@remembered
def operands(definition: Definition) -> tuple[Expr, ...]:
    """The factors of a float32 contraction that are to be narrow: those that vary along what is summed.

    A scale of the whole sum is none of them, nor is what was narrow or rounded before.
    """
    body = definition.body
    if not (is_contraction(definition) and isinstance(body, Reduce) and body.dtype == WIDE):
        return ()
    product = body.body.then if isinstance(body.body, Select) else body.body
    varying = (e for e in factors(product) if not e.free.isdisjoint(body.axes))
    return tuple(e for e in varying if not _is_rounded(e))


def _is_rounded(e: Expr) -> bool:
    return (isinstance(e, Cast) and e.arg.dtype in SHORT) or (isinstance(e, Apply) and e.fn == ROUND_TF32)


class _Mixing:
    """One graph being written anew. new: what stands for each tensor; copies: the narrow copies of float32 ones."""

    def __init__(self, graph: Graph, precision: str):
        self.graph, self.precision, self.narrow = graph, precision, NARROW[precision]
        self.roots = set(graph.roots)
        self.operands, self.leading, self.readers = _demand(graph)
        self.new: dict[Tensor, Tensor] = {}
        self.copies: dict[Tensor, Tensor] = {}
        self.choices: list[Choice] = []

    def run(self) -> Mixed:
        for t in self.graph.order:
            self.new[t] = self.visit(t) if isinstance(t, Compute) else t
            has_copy = t in self.operands and self.new[t].dtype == WIDE
            if has_copy:
                self.copies[t] = self.copy(t)
            if t.dtype == WIDE:
                self.note(t, has_copy)
        graph = self.graph.with_roots([self.new[t] for t in self.graph.roots])
        return Mixed(graph, self.precision, tuple(self.choices))

    def place(self, t: Compute) -> Place:
        moves = is_move(t.definition) and any(self.new[i].dtype == self.narrow != i.dtype for i in t.inputs)
        return Place(t, t in self.roots, t in self.operands, t in self.leading, self.readers.get(t, 0), moves)

    def rule(self, t: Compute) -> Rule:
        place = self.place(t)
        return next(r for r in RULES if r.holds(place))

    def visit(self, t: Compute) -> Tensor:
        """What stands for a compute: over what stands for its inputs, stored as its rule says."""
        is_narrow = t.dtype == WIDE and self.rule(t).is_narrow
        if is_narrow and is_move(t.definition):
            return self.moved(t, self.new)
        body, inputs = self.widened(t)
        if is_narrow and not isinstance(body, Reduce):
            return _made(t, Cast(self.narrow, body), inputs)
        made = _made(t, body, inputs)
        return self.rounded(made, t.name) if is_narrow else made

    def widened(self, t: Compute) -> tuple[Expr, tuple[Tensor, ...]]:
        """The body over what stands for the inputs, narrow ones cast to float32; operands of a contraction rounded."""
        rounding = operands(t.definition)
        direct = {e.slot for e in rounding if isinstance(e, Read)}
        inputs = tuple(self.copies.get(i, self.new[i]) if n in direct else self.new[i] for n, i in enumerate(t.inputs))
        inside: Mapping[Expr, Expr] = {e: Cast(WIDE, Cast(self.narrow, e)) for e in rounding if not isinstance(e, Read)}
        return rewrite(substitute(t.definition.body, inside), _over(t.inputs, inputs, WIDE)), inputs

    def moved(self, t: Compute, instead: Mapping[Tensor, Tensor]) -> Compute:
        """A move of what is narrow: the same elements, no value changed."""
        inputs = tuple(instead.get(i, i) for i in t.inputs)

        def rule(e: Expr) -> Expr | None:
            if isinstance(e, Const) and e.dtype == WIDE:
                return Const(e.value, self.narrow)
            return over(e)

        over = _over(t.inputs, inputs, None)
        return _made(t, rewrite(t.definition.body, rule), inputs)

    def copy(self, t: Tensor) -> Tensor:
        """The narrow copy of a tensor that stays float32; of a move the move of the copy, of a constant a constant."""
        name = f"{t.name}_{self.precision}"
        if isinstance(t, Constant):
            return Constant(t.value.astype(dt.NUMPY[self.narrow]), name, t.where)
        if isinstance(t, Compute) and is_move(t.definition) and t.inputs[0] in self.copies:
            return self.moved(t, self.copies)
        return self.rounded(self.new[t], name)

    def rounded(self, t: Tensor, name: str) -> Compute:
        body = Cast(self.narrow, Read(Slot(0, t.shape, t.dtype), own_indices(t.shape)))
        made = build(t.shape, body, (t,), name)
        return Compute(made.definition, made.inputs, name, made.axis_names, t.where)

    def note(self, t: Tensor, has_copy: bool) -> None:
        if isinstance(t, Compute):
            rule = self.rule(t)
            name, reason = rule.name, rule.reason(self.place(t))
            if taken := len(operands(t.definition)):
                reason = f"{taken} operands {self.narrow}, {reason}"
        else:
            name, reason = "given", GIVEN
        self.choices.append(Choice(t.name, t.shape, self.new[t].dtype, name, reason, has_copy))


def _made(t: Compute, body: Expr, inputs: tuple[Tensor, ...]) -> Compute:
    """The compute with another body over other inputs."""
    if body is t.definition.body:
        return Compute(t.definition, inputs, t.name, t.axis_names, t.where) if _differ(inputs, t.inputs) else t
    made = build(t.shape, body, inputs, t.name)
    return Compute(made.definition, made.inputs, t.name, made.axis_names, t.where)


def _differ(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return any(x is not y for x, y in zip(a, b, strict=True))


def _over(old: tuple[Tensor, ...], new: tuple[Tensor, ...], wide: str | None) -> Callable[[Expr], Expr | None]:
    """The rule that lets reads of the slots of `old` read `new`; what is then narrower is cast to `wide`, if given."""

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or new[e.slot].dtype == old[e.slot].dtype:
            return None
        t = new[e.slot]
        read = Read(Slot(e.slot, t.shape, t.dtype), e.indices)
        return read if wide is None else Cast(wide, read)

    return rule


def _demand(graph: Graph) -> tuple[set[Tensor], set[Tensor], dict[Tensor, int]]:
    """What contractions read as operands, itself or as a move of it; what they follow from; and how many read each
    tensor, moves of it apart."""
    wanted: set[Tensor] = set()
    leading: set[Tensor] = set()
    readers: dict[Tensor, int] = {}
    for t in reversed(graph.nodes):
        own, taken = is_move(t.definition), operands(t.definition)
        if taken or t in leading:
            leading.update(t.inputs)
        for n, source in enumerate(t.inputs):
            if source.dtype != WIDE:
                continue
            reads = any(isinstance(e, Read) and e.slot == n for e in taken)
            if reads or (own and t in wanted):
                wanted.add(source)
            readers[source] = readers.get(source, 0) + (readers.get(t, 0) if own else 1)
    return wanted, leading, readers
