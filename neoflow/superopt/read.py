"""Reads families, terms and rules from their text; what it does not know is a `TextError` with line and column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from neoflow.errors import GraphError
from neoflow.expr.functions import FUNCTIONS, REDUCERS
from neoflow.superopt import places
from neoflow.superopt.body import (
    BY_VALUE,
    MOST,
    SIGNS,
    Body,
    Both,
    Call,
    Choose,
    Condition,
    Count,
    Either,
    Family,
    Holds,
    Number,
    Over,
    Place,
    Slot,
    inner,
    opposite,
)
from neoflow.superopt.forms import Form, form, name
from neoflow.superopt.places import LibraryError
from neoflow.superopt.prove import Proof, Statement
from neoflow.superopt.rule import KIND, Rule, Rules
from neoflow.superopt.term import Term, Variable, apply
from neoflow.text import Scanner, is_real

T = TypeVar("T")
LARGEST = 1 << 40
"""The largest number in a form."""
_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_BY_SIGN = {sign: fn for fn, sign in SIGNS.items()}
TIERS = ("same", "bijection", "axioms")


def read_rules(text: str) -> Rules:
    """The rules of a text, not proved again. Raises `TextError`."""
    return _Reader(text).rules()


class _Reader:
    def __init__(self, text: str):
        self.scan = Scanner(text, KIND)
        self.operators: dict[str, Family] = {}

    def rules(self) -> Rules:
        found: dict[str, Rule] = {}
        while self.scan.token.kind != "end":
            at = self.scan.token
            if self.scan.accept("operator"):
                family = self.family()
                if family.name in self.operators:
                    self.scan.refuse(f"operator {family.name} is there twice", at)
                self.operators[family.name] = family
            else:
                rule = self.rule()
                if rule.name in found:
                    self.scan.refuse(f"rule {rule.name} is there twice", at)
                found[rule.name] = rule
        return Rules(tuple(self.operators.values()), tuple(found.values()))

    def listed(self, item: Callable[[], T], close: str) -> list[T]:
        """Items between commas, and the sign that ends them."""
        found: list[T] = []
        while not self.scan.accept(close):
            if found:
                self.scan.expect(",")
            found.append(item())
        return found

    # ---------------------------------------------------------------------------------------------------- operators

    def family(self) -> Family:
        start = self.scan.token
        label = self.scan.name("the name of an operator")
        self.scan.expect("(")
        slots = self.listed(self.shaped, ")")
        names = {text: n for n, (text, _) in enumerate(slots)}
        offsets = []
        if self.scan.accept("from"):
            offsets = [self.scan.name("an offset")]
            while self.scan.accept(","):
                offsets.append(self.scan.name("an offset"))
        axes = self.listed(self.bound, "]") if self.scan.accept("[") else []
        self.scan.expect("=")
        body = _Body(self.scan, names, [len(s) for _, s in slots]).read()
        self.scan.end_of_line()
        met = list(dict.fromkeys(b.position for b in inner(body) if isinstance(b, Slot)))
        if met != list(range(len(slots))):
            self.scan.refuse(f"the arguments of {label} stand in the order in which its body reads them", start)
        shapes = tuple(s for _, s in slots)
        family = Family(shapes, tuple(n for _, n in axes), tuple(a for a, _ in axes), body, frozenset(offsets), label)
        if len({*family.axes}) != len(axes) or family.fits.is_empty():
            self.scan.refuse(f"operator {label} reads outside its arguments at all sizes", start)
        return family

    def shaped(self) -> tuple[str, tuple[Form, ...]]:
        label = self.scan.name("a name")
        return label, tuple(self.listed(self.form, "]")) if self.scan.accept("[") else ()

    def bound(self) -> tuple[str, Form]:
        label = self.scan.name("an axis")
        self.scan.expect("<")
        return label, self.form()

    def form(self) -> Form:
        return read_form(self.scan)

    # -------------------------------------------------------------------------------------------------------- rules

    def rule(self) -> Rule:
        self.scan.expect("rule")
        label = self.scan.name("the name of a rule")
        self.scan.end_of_line()
        self.scan.expect("variables")
        known = {text: Variable(text, shape) for text, shape in self.variables()}
        self.scan.end_of_line()
        self.scan.expect("source")
        source = self.term(known)
        self.scan.end_of_line()
        self.scan.expect("target")
        target = self.term(known)
        self.scan.end_of_line()
        statement = Statement(source, target, self.guards(Statement(source, target)))
        return Rule(label, statement, self.proof())

    def variables(self) -> list[tuple[str, tuple[Form, ...]]]:
        found = []
        while self.scan.token.kind == "name":
            found.append(self.shaped())
            if not self.scan.accept(","):
                break
        return found

    def term(self, known: dict[str, Variable]) -> Term:
        at = self.scan.token
        label = self.scan.name("a variable or an operator")
        sizes: dict[str, Form] = {}
        if self.scan.accept("["):
            sizes = dict(self.listed(self.size, "]"))
        if not self.scan.at("("):
            if label not in known:
                self.scan.refuse(f"{label} is no variable of the rule", at)
            return known[label]
        if label not in self.operators:
            self.scan.refuse(f"{label} is no operator of the text", at)
        self.scan.open()
        args: list[Term] = []
        while not self.scan.at(")"):
            if args:
                self.scan.expect(",")
            args.append(self.term(known))
        self.scan.close()
        try:
            return apply(self.operators[label], *args, **sizes)
        except GraphError as error:
            self.scan.refuse(str(error), at)

    def size(self) -> tuple[str, Form]:
        label = self.scan.name("a symbol")
        self.scan.expect("=")
        return label, self.form()

    def guards(self, statement: Statement) -> str:
        if not self.scan.accept("guards"):
            return ""
        at = self.scan.token
        text = self.scan.string("guards")
        self.scan.end_of_line()
        try:
            found = places.where(text, statement.symbols)
        except LibraryError:
            self.scan.refuse("guards are a condition on the symbols of the rule", at)
        if {*places.names_of(found)} - {*statement.symbols}:
            self.scan.refuse("guards are a condition on the symbols of the rule", at)
        return text

    def proof(self) -> Proof | None:
        if not self.scan.accept("proof"):
            return None
        at = self.scan.token
        tier = self.scan.name("the tier of a proof")
        if tier not in TIERS:
            self.scan.refuse(f"a proof is one of {', '.join(TIERS)}", at)
        is_exact = self.scan.accept(",") and bool(self.scan.expect("exact"))
        self.scan.end_of_line()
        return Proof(tier, is_exact)


def read_form(scan: Scanner) -> Form:
    """`2*p + r - 1`."""
    total = form(0)
    sign = -1 if scan.accept("-") else 1
    while True:
        total = total + _times(scan).times(sign)
        if scan.at("+") or scan.at("-"):
            sign = 1 if scan.next().text == "+" else -1
        else:
            return total


def _times(scan: Scanner) -> Form:
    if scan.token.kind != "integer":
        return _atom(scan)
    k = scan.number("a number", LARGEST)
    return _atom(scan).times(k) if scan.accept("*") else form(k)


def _atom(scan: Scanner) -> Form:
    at = scan.token
    label = scan.name("a symbol or an axis")
    if label in places.WORDS:
        scan.refuse(f"`{label}` cannot be the name of a symbol or an axis", at)
    if label != "div" or not scan.at("("):
        return name(label)
    scan.open()
    inside = read_form(scan)
    scan.expect(",")
    at = scan.token
    divisor = scan.number("a divisor", LARGEST)
    if divisor == 0:
        scan.refuse("a divisor is at least 1", at)
    scan.close()
    return inside.over(divisor)


class _Body:
    """The body of an operator: `sum[k<K](a[i, k] * b[k, j])`."""

    def __init__(self, scan: Scanner, slots: dict[str, int], ranks: Sequence[int]):
        self.scan, self.slots, self.ranks = scan, slots, ranks
        self.parts = 0

    def read(self) -> Body:
        left = self.product()
        while self.scan.at("+") or self.scan.at("-"):
            left = Call(_BY_SIGN[self.scan.next().text], (left, self.product()))
        return left

    def counted(self) -> None:
        """One more part, and the sign beside it."""
        self.parts += 2
        if self.parts > MOST:
            self.scan.refuse(f"a body has at most {MOST} parts")

    def product(self) -> Body:
        left = self.single()
        while self.scan.at("*") or self.scan.at("/"):
            left = Call(_BY_SIGN[self.scan.next().text], (left, self.single()))
        return left

    def single(self) -> Body:
        scan, at = self.scan, self.scan.token
        self.counted()
        if scan.at("("):
            scan.open()
            inside = self.read()
            scan.close()
            return inside
        if scan.accept("-"):
            return Number(-scan.real("a number"))
        if is_real(scan.token):
            return Number(scan.real("a number"))
        label = scan.name("a number, an argument or a function")
        if label in self.slots:
            return self.slot(label)
        if label in REDUCERS:
            return self.over(label)
        if label == "select":
            return self.choose()
        if label in ("count", "share", "place"):
            scan.open()
            forms = [read_form(scan)]
            while scan.accept(","):
                forms.append(read_form(scan))
            scan.close()
            return Place(forms[0]) if label == "place" else Count(tuple(forms), 1 if label == "count" else -1)
        fn, arity = ("select", 3) if label == BY_VALUE else (label, FUNCTIONS[label].arity if label in FUNCTIONS else 0)
        if not arity:
            scan.refuse(f"{label} is no argument and no function", at)
        return Call(fn, tuple(self.args(arity)))

    def args(self, count: int) -> list[Body]:
        self.scan.open()
        found = [self.read()]
        for _ in range(count - 1):
            self.scan.expect(",")
            found.append(self.read())
        self.scan.close()
        return found

    def slot(self, label: str) -> Slot:
        at, indices = self.scan.token, list[Form]()
        if self.scan.accept("["):
            indices = [read_form(self.scan)]
            while self.scan.accept(","):
                indices.append(read_form(self.scan))
            self.scan.expect("]")
        position = self.slots[label]
        if len(indices) != self.ranks[position]:
            self.scan.refuse(f"{label} has {self.ranks[position]} dimensions", at)
        return Slot(position, tuple(indices))

    def over(self, op: str) -> Over:
        self.scan.expect("[")
        axes = []
        while True:
            label = self.scan.name("an axis")
            self.scan.expect("<")
            axes.append((label, read_form(self.scan)))
            if not self.scan.accept(","):
                break
        self.scan.expect("]")
        return Over(op, tuple(axes), self.args(1)[0])

    def choose(self) -> Choose:
        self.scan.open()
        condition = self.condition()
        self.scan.expect(",")
        then = self.read()
        self.scan.expect(",")
        other = self.read()
        self.scan.close()
        return Choose(condition, then, other)

    def condition(self) -> Condition:
        left = self.compared()
        while self.scan.at("&") or self.scan.at("|"):
            kind = Both if self.scan.next().text == "&" else Either
            left = kind(left, self.compared())
        return left

    def compared(self) -> Condition:
        self.counted()
        if self.scan.at("("):
            self.scan.open()
            found = self.condition()
            self.scan.close()
            return found
        left = read_form(self.scan)
        if self.scan.token.text not in _COMPARED:
            self.scan.fail("a comparison")
        sign = self.scan.next().text
        gap = left - read_form(self.scan)
        match sign:
            case "<":
                return Holds(gap.times(-1) - 1)
            case "<=":
                return Holds(gap.times(-1))
            case ">":
                return Holds(gap - 1)
            case ">=":
                return Holds(gap)
        return Holds(gap, True) if sign == "==" else opposite(Holds(gap, True))
