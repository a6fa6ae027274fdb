"""What is an array, what is converted in silence and what is refused: the table of `neoflow.runtime.arrays`."""

import array
import ctypes
import decimal

import ml_dtypes
import numpy as np
import pytest

import neoflow as nf
from neoflow import RuntimeFault
from neoflow.runtime.arrays import array_of, converted, is_bare
from neoflow.runtime.parameters import get_value, set_value

WHAT = "input x"


class Giver:
    """What gives an array by `__array__`, or raises."""

    def __init__(self, given):
        self.given = given

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


class Mine(np.ndarray):
    """A subclass."""


RAMP = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (RAMP, "float32"),
        (RAMP[::-1, ::-2], "float32"),
        (RAMP.view(Mine), "float32"),
        (memoryview(RAMP), "float32"),
        (array.array("d", [1.0, 2.0]), "float64"),
        ((ctypes.c_int16 * 3)(1, 2, 3), "int16"),
        (b"ab", "|S2"),
        (Giver(RAMP), "float32"),
        (np.float16(1.5), "float16"),
        (np.ma.array(RAMP), "float32"),
        (np.ma.array(RAMP, mask=False), "float32"),
        ([[1, 2], (3, True)], "int64"),
        ([1, 2.5], "float64"),
        (3, "int64"),
        (True, "bool"),
    ],
)
def test_what_is_an_array(value, dtype):
    found = array_of(value, WHAT)
    assert type(found) is np.ndarray and found.dtype == np.dtype(dtype)
    if not isinstance(value, Giver):
        np.testing.assert_array_equal(found, np.asarray(value))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ma.array([1.0, 2.0], mask=[False, True]), r"input x has masked elements, .*: fill them, array.filled\(0\)"),
        ([1.0, np.ma.masked], "input x has masked elements"),
        ([[np.ma.array([1.0, 2.0], mask=[0, 1])]], "input x has masked elements"),
        ([[1, 2], [3]], "input x: the list gives no array: ValueError"),
        (Giver(OSError("gone")), "input x: the Giver gives no array: OSError: gone"),
        (Giver("text"), "input x: the Giver gives no array: "),
        ([None], "input x: the list holds Python objects, not numbers of one type"),
        (object(), "input x: the object holds Python objects"),
        (decimal.Decimal(1), "input x: the Decimal holds Python objects"),
        ({"x": 1}, "input x: the dict holds Python objects"),
        ([10**30], "input x: the list holds Python objects"),
    ],
)
def test_what_is_none(value, message):
    with pytest.raises(RuntimeFault, match=message):
        array_of(value, WHAT)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, -2], "int8"),
        ([True, False], "int64"),
        ([1.1, np.pi, np.nan, np.inf, 1e-300], "float32"),
        ([65504.0, np.nan], "float16"),
        ([1.5, np.inf], "bfloat16"),
        ([0, 1], "bool"),
        ([2**24 + 1], "float32"),
        ([3.0, -0.0], "int16"),
        ([1.0, 0.0], "bool"),
        (np.array([-2], ml_dtypes.bfloat16), "int8"),
        ([True], "float64"),
        (np.array([1, 2], ">i4"), "int32"),
        (np.array([1.5], ">f8"), "float32"),
        (np.array([1, 2], np.uint64), "int64"),
        (np.array([1.5, np.inf], ml_dtypes.bfloat16), "float16"),
    ],
)
def test_what_is_converted(value, dtype):
    array = np.asarray(value)
    found = converted(array, dtype, WHAT)
    assert found.dtype == np.dtype(dtype if dtype != "bfloat16" else ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        expected = [float(np.dtype(found.dtype).type(v)) for v in array.tolist()]
    np.testing.assert_array_equal(found.astype(np.float64), expected)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        ([2, 1.7], "int64", r"input x is int64, which has no 1.7, the value at \[1\]"),
        ([np.nan], "int32", "input x is int32, which has no nan"),
        ([np.inf], "int64", "input x is int64, which has no inf"),
        ([-(2.0**63), 2.0**63], "int64", r"which has no 9.22\S*e\+18, the value at \[1\]"),
        ([0.5], "bool", "input x is bool, which has no 0.5"),
        (np.array([1.5], ml_dtypes.bfloat16), "int8", "input x is int8, which has no 1.5"),
        ([3, 300], "int8", r"input x is int8, which has no 300, the value at \[1\]"),
        ([[1], [2**40]], "int32", r"input x is int32, which has no 1099511627776, the value at \[1, 0\]"),
        (np.array([2**63], np.uint64), "int64", "which has no 9223372036854775808"),
        ([2], "bool", "input x is bool, which has no 2"),
        ([1e39], "float32", r"input x is float32, which has no 1e\+39"),
        ([70000], "float16", "input x is float16, which has no 70000"),
        (np.array([1e300]), "bfloat16", r"which has no 1e\+300"),
        ([1j], "float32", "input x is float32, the value complex128: there is no number for it"),
        (["1"], "float32", "there is no number for it"),
        (np.array(["2020-01-01"], "M8[D]"), "int64", "there is no number for it"),
    ],
)
def test_what_is_not_converted(value, dtype, message):
    with pytest.raises(RuntimeFault, match=message):
        converted(np.asarray(value), dtype, WHAT)


def test_numbers_of_numpy_have_a_dtype():
    assert is_bare(1.5) and is_bare([np.float32(1)]) and not is_bare(np.float64(1.5)) and not is_bare(np.ones(1))


@pytest.mark.parametrize("value", [[1.7, 2.0], np.ma.array([1, 2], mask=[1, 0]), [2**70, 1], 1.5])
def test_a_parameter_keeps_its_value_when_it_refuses_one(value):
    p = nf.parameter((2,), "int64", name="p", init=np.array([3, 4]))
    with pytest.raises(RuntimeFault, match="parameter p"):
        set_value(p, value)
    assert get_value(p).tolist() == [3, 4]
    with pytest.raises((RuntimeFault, nf.ExpressionError), match="the initial value of parameter q"):
        get_value(nf.parameter((2,), "int64", name="q", init=value))


@pytest.mark.tvm
def test_inputs():
    ids, x = nf.placeholder((2,), "int64", name="ids"), nf.placeholder((2,), name="x")
    f = nf.compile([ids * 2, x * 2.0], [ids, x])
    for given in ([1, 2], (1, 2), np.array([1, 2]), memoryview(np.array([1, 2])), np.array([1, 9, 2])[::2]):
        assert f(given, [0.1, 2])[0].tolist() == [2, 4]
    assert f([1, 2], [0.1, 2])[1].tolist() == [np.float32(0.1) * 2, 4]
    for given, message in (
        ([1.7, 2], "input ids is int64, which has no 1.7"),
        (np.array([1.0, 2.0]), r"input ids is int64, the array float64; convert it: array.astype\('int64'\)"),
        (np.array([1, 2], ">i8"), "input ids is int64, the array >i8; convert it"),
        (np.ma.array([1, 2], mask=[0, 1]), "input ids has masked elements"),
        (memoryview(np.array([1, 2], np.int32)), "input ids is int64, the array int32"),
    ):
        with pytest.raises(RuntimeFault, match=message):
            f(given, [0.1, 2])


@pytest.mark.torch
@pytest.mark.tvm
def test_tensors_of_pytorch_that_cannot_be_taken():
    torch = pytest.importorskip("torch")
    x = nf.placeholder((2, 3), name="x")
    f = nf.compile([x * 2.0], [x])
    for tensor, message in (
        (torch.ones(2, 3, requires_grad=True), "input x: the Tensor gives no array: BufferError: .*requires? grad"),
        (torch.ones(2, 3, device="meta"), "input x: the Tensor"),
        (torch.ones(2, 3).to_sparse(), "input x: the Tensor gives no array: "),
        (torch.ones(2, 3, dtype=torch.float64), "input x is float32, the array float64"),
    ):
        with pytest.raises(RuntimeFault, match=message):
            f(tensor)


@pytest.mark.tvm
def test_a_function_is_not_called_while_it_runs():
    x = nf.placeholder((3,), name="x")
    f = nf.compile([x * 2.0], [x])

    class Caller:
        def __array__(self, dtype=None, copy=None):
            return f(np.zeros(3, np.float32))[0]

    with pytest.raises(RuntimeFault, match="a function was called while it runs, on the same thread: by a signal's"):
        f(Caller())
    assert f(np.ones(3, np.float32))[0].tolist() == [2, 2, 2]
