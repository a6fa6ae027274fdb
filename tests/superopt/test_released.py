"""What TASO released, read and looked for among generated rules: on two substitutions written here."""

from neoflow.superopt import generated
from tests.superopt.released import ADD, CONCAT, CONV, MATMUL, SPLIT, follows, known_of, read


def varint(value: int) -> bytes:
    value %= 1 << 64
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(*parts: tuple[int, int | bytes]) -> bytes:
    """Fields as protocol buffers have them."""
    found = b""
    for field, value in parts:
        if isinstance(value, bytes):
            found += varint(field << 3 | 2) + varint(len(value)) + value
        else:
            found += varint(field << 3) + varint(value)
    return found


def operator(kind: int, *inputs: tuple[int, int], **parameters: int) -> bytes:
    keys = {"activation": 9, "rank": 10, "axis": 11}
    places = [(2, message((1, a), (2, b))) for a, b in inputs]
    return message((1, kind), *places, *((3, message((1, keys[k]), (2, v))) for k, v in parameters.items()))


def substitution(source: list[bytes], target: list[bytes], *results: tuple[int, int, int, int]) -> bytes:
    mapped = [(3, message(*enumerate(r, 1))) for r in results]
    return message((1, message(*((1, o) for o in source), *((2, o) for o in target), *mapped)))


TWO_PRODUCTS = [operator(MATMUL, (-1, 0), (-4, 0)), operator(MATMUL, (-1, 0), (-5, 0))]
ONE_PRODUCT = [
    operator(CONCAT, (-4, 0), (-5, 0), axis=1, rank=2),
    operator(MATMUL, (-1, 0), (0, 0)),
    operator(SPLIT, (1, 0), axis=1),
]


def test_read_and_found():
    """Two products of one matrix are the parts of one, each in its place; sums of other ones are not equal."""
    right = substitution(TWO_PRODUCTS, ONE_PRODUCT, (0, 2, 0, 0), (1, 2, 0, 1))
    crossed = substitution(TWO_PRODUCTS, ONE_PRODUCT, (0, 2, 0, 1), (1, 2, 0, 0))
    wrong = substitution([operator(ADD, (-1, 0), (-2, 0))], [operator(ADD, (-1, 0), (-3, 0))], (0, 0, 0, 0))
    rules = read(right + crossed + wrong)
    assert [len(r.source) for r in rules] == [2, 2, 1] and rules[0].source[0].inputs == ((-1, 0), (-4, 0))
    known = known_of(generated().rules)
    assert [follows(known, rule) for rule in rules] == [True, False, False]


def test_convolutions_of_groups():
    """Two convolutions beside each other are one of two groups, which is what TASO's own four mean; not one of one."""
    two = [operator(CONV, (-1, 0), (-3, 0), activation=0), operator(CONV, (-2, 0), (-4, 0), activation=0)]
    source = [*two, operator(CONCAT, (0, 0), (1, 0), axis=1, rank=4)]
    joined = [operator(CONCAT, (-1, 0), (-2, 0), axis=1, rank=4), operator(CONCAT, (-3, 0), (-4, 0), axis=0, rank=4)]
    (rule,) = read(substitution(source, [*joined, operator(CONV, (0, 0), (1, 0), activation=0)], (2, 2, 0, 0)))
    known = known_of(generated().rules)
    assert not follows(known, rule) and follows(known, rule, groups=True)
    (crossed,) = read(substitution(source, [*joined, operator(CONV, (1, 0), (0, 0), activation=0)], (2, 2, 0, 0)))
    assert not follows(known, crossed, groups=True)
