"""What graphs are generated of: operators, and the tensors that they begin with.

The standard one is TASO's (Jia et al., 2019, table 2) without strides: products, convolutions of two kernel sizes, in
two groups and in as many as channels, element-wise operators, pooling, concatenation, splits, transposition, enlarged
kernels, scaling and constants. Extents are what they are where fingerprints are taken: distinct primes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from neoflow.superopt.body import Family, Over, inner, shaped
from neoflow.superopt.forms import Form, form, name
from neoflow.superopt.read import read_rules
from neoflow.superopt.term import Application, Shape, Term, Variable

STANDARD = Path(__file__).with_name("alphabet.txt")
EXTENTS = {"A": 2, "B": 3, "D": 7, "C": 5, "O": 7, "N": 2, "H": 3, "W": 11, "R": 1, "S": 1}
"""No two that meet in a tensor are equal; kernels reach three far, and no further than an image."""
MATRICES = ("A, B", "A, B", "A, B", "B, C", "B, C", "C, D", "C, B", "A + D, B", "A, B + D")
"""Of the variables: three of one shape, what products and concatenations need beside it, and what can be split."""
IMAGES = ("N, C, H, W", "N, C, H, W", "N, C, H, W", "N, C + O, H, W")
KERNELS = (
    "O, C, 2*R + 1, 2*S + 1",
    "O, C, 2*R + 1, 2*S + 1",
    "O, C, 1, 1",
    "C, C, 2*R + 1, 2*S + 1",
    "C, 1, 2*R + 1, 2*S + 1",
)
NUMBERS = ("", "")


@dataclass(frozen=True)
class Alphabet:
    """given: of operators by name, the sizes that do not follow from shapes. constants: operators of no argument with
    their sizes; they are leaves as variables are."""

    operators: tuple[Family, ...]
    leaves: tuple[Variable, ...]
    given: tuple[tuple[str, tuple[tuple[str, Form], ...]], ...] = ()
    constants: tuple[Application, ...] = ()

    def __str__(self) -> str:
        given = [f"{label}[{', '.join(f'{s}={n}' for s, n in sizes)}]" for label, sizes in self.given]
        parts = [*self.operators, *(shaped(v.name, v.shape) for v in self.leaves), *given, *self.constants]
        return "\n".join(map(str, parts))

    @property
    def names(self) -> tuple[str, ...]:
        """Of its operators, constants at the end."""
        return tuple(dict.fromkeys([f.name for f in self.operators] + [c.family.name for c in self.constants]))

    def only(self, names: Sequence[str]) -> Alphabet:
        """The alphabet of some of its operators, and of the variables of ranks that these have."""
        operators = tuple(f for f in self.operators if f.name in names)
        ranks = {len(s) for f in operators for s in (*f.slots, f.shape)}
        kept = tuple(v for v in self.leaves if len(v.shape) in ranks)
        return replace(
            self, operators=operators, leaves=kept, constants=tuple(c for c in self.constants if c.family.name in names)
        )

    def sizes(self, f: Family, shapes: Sequence[Shape]) -> Iterator[dict[str, Form]]:
        """What the symbols of a family can be where its arguments have these shapes."""
        found = agreed(f, shapes)
        if found is not None and any(n.constant for s, n in found.items() if s not in f.offsets) and _reduces(f):
            return  # a kernel is no image: its extents are those of windows
        left = [] if found is None else [s for s in f.symbols if s not in found]
        if found is not None and not left:
            yield found
        for label, sizes in self.given if left else ():
            if label == f.name and left == [s for s, _ in sizes]:
                assert found is not None
                yield found | dict(sizes)
        if found is not None and left:
            for more in _split(f, left, shapes):
                yield found | more


def standard_alphabet() -> Alphabet:
    """The alphabet of `alphabet.txt`."""
    families = {f.name: f for f in read_rules(STANDARD.read_text(encoding="utf-8")).operators}
    window = (("R", name("R")), ("S", name("S")))
    given = [(n, window) for n in ("pool_max", "pool_avg")]
    given.append(("enlarge", (("D", name("R")), ("E", name("S")))))
    constants = [Application(families["identity"], (("N", name(n)),), ()) for n in "BC"]
    constants.append(Application(families["ones"], (("M", name("A")), ("N", name("B"))), ()))
    for label in ("pool_kernel", "identity_kernel"):
        sizes = dict(window) | {"C": name("C")}
        constants.append(Application(families[label], tuple((s, sizes[s]) for s in families[label].symbols), ()))
    return Alphabet(
        tuple(f for f in families.values() if f.slots),
        leaves((*MATRICES, *IMAGES, *KERNELS, *NUMBERS)),
        tuple(given),
        tuple(constants),
    )


def alphabet_of(families: Sequence[Family]) -> Alphabet:
    """An alphabet of any families, with the variables that arguments of their ranks need."""
    ranks = {len(s) for f in families for s in f.slots}
    every = ((2, MATRICES[:7]), (4, (*IMAGES, *KERNELS)), (0, NUMBERS))
    shapes = [s for rank, some in every if rank in ranks for s in some]
    return Alphabet(tuple(f for f in families if f.slots), leaves(shapes))


def leaves(shapes: Sequence[str]) -> tuple[Variable, ...]:
    """Variables x0, x1 ... of shapes as text."""
    return tuple(Variable(f"x{n}", shape_of(text)) for n, text in enumerate(shapes))


def shape_of(text: str) -> Shape:
    """A shape of sums of symbols, numbers, and symbols times numbers."""
    return tuple(_sum_of(part) for part in text.split(",")) if text else ()


def _sum_of(text: str) -> Form:
    total = form(0)
    for part in text.split("+"):
        number, _, symbol = part.strip().rpartition("*")
        total = total + (form(int(symbol)) if symbol.isdigit() else name(symbol).times(int(number or 1)))
    return total


def agreed(f: Family, shapes: Sequence[Shape]) -> dict[str, Form] | None:
    """The symbols of a family that shapes of arguments determine, one after the other; None where these disagree."""
    if [len(s) for s in f.slots] != [len(s) for s in shapes]:
        return None
    left = [pair for slot, shape in zip(f.slots, shapes, strict=True) for pair in zip(slot, shape, strict=True)]
    found: dict[str, Form] = {}
    while left:
        rest = []
        for own, there in left:
            unknown = [(a, k) for a, k in own.terms if a not in found]
            gap = there - Form(tuple((a, k) for a, k in own.terms if a in found), own.constant).put(found)
            if not unknown and gap != form(0):
                return None
            if len(unknown) == 1 and isinstance(unknown[0][0], str):
                symbol, k = str(unknown[0][0]), unknown[0][1]
                if any(c % k for _, c in gap.terms) or gap.constant % k:
                    return None
                found[symbol] = Form(tuple((a, c // k) for a, c in gap.terms), gap.constant // k)
            elif unknown:
                rest.append((own, there))
        if len(rest) == len(left):
            return None
        left = rest
    return found


def _reduces(f: Family) -> bool:
    return any(isinstance(b, Over) for b in inner(f.body))


def _split(f: Family, left: Sequence[str], shapes: Sequence[Shape]) -> Iterator[dict[str, Form]]:
    """The two parts of an extent that is a sum, for one symbol of the result, and where it begins."""
    begin = [s for s in left if s in f.offsets]
    lone = [d for d, n in enumerate(f.shape) if n.alone in left]
    if len(lone) != 1 or len(left) - len(begin) != 1 or len(begin) > 1 or len(shapes) != 1:
        return
    whole = shapes[0][lone[0]]
    if whole.constant or sum(k for _, k in whole.terms) < 2 or any(k < 0 for _, k in whole.terms):
        return
    for counts in product(*(range(k + 1) for _, k in whole.terms)):
        part = Form(tuple((a, n) for (a, _), n in zip(whole.terms, counts, strict=True) if n))
        if part.terms and part != whole:
            yield {s: whole - part if s in begin else part for s in left}


def applied_at(f: Family, sizes: Mapping[str, Form], args: Sequence[Term]) -> Application:
    """A family at sizes by symbol, of arguments."""
    return Application(f, tuple((s, sizes[s]) for s in f.symbols), tuple(args))
