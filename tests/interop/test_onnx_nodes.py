"""The `onnx` package's own tests of operators."""

import re
from collections import Counter

import pytest

pytest.importorskip("onnx")

from neoflow.interop.onnx.operators import TABLE
from tests.interop.onnx_nodes import collected, wrong

pytestmark = pytest.mark.onnx

REASONS = {
    "an operator that is not in the table": r"operator \w+( of domain '[\w.]+')? is not known: write it",
    "an element type that the language lacks": r"element type \w+ is none of",
    "a tensor without elements, which the language lacks": r"has no elements|it has no elements",
    "a sequence, an optional value": r"is no tensor$",
    "an operator as it was before version 13": r"versions before 13 are not known",
    "a reduction of a scatter other than add": r"reduction '\w+' is not known",
    "elements dropped at random": r"it drops elements at random",
    "attention in bfloat16, rounded at other places": r"^attention.*Not equal to tolerance",
    "quantization in blocks": r"blocks are not known",
    "remainders by what is not finite": r"^mod_float_edge.*nan location mismatch",
}
"""Why a test of the package does not pass, by a pattern of its name and what was found."""
LEAST = 1348
"""How many pass of onnx 1.23's."""
FEW = (
    "conv_with_strides_padding", "maxpool_2d_ceil", "averagepool_2d_pads", "gemm_all_attributes", "slice_neg_steps",
    "resize_upsample_scales_linear", "layer_normalization_2d_axis1", "softmax_axis_1", "gather_negative_indices",
    "lstm_defaults", "reduce_mean_keepdims_example", "where_example", "scatternd", "convtranspose_pads",
)  # fmt: skip
"""A test of each kind, for kernels."""


def test_the_table_has_the_operators_of_exported_models():
    assert len(TABLE) >= 130
    assert all(row.name == name for name, row in TABLE.items())


@pytest.mark.slow
def test_every_node_test_passes_or_has_a_reason(tmp_path):
    """NumPy meaning, no kernels: a minute."""
    passed, reasons, without = 0, Counter(), []
    for name, case in collected().items():
        found = wrong(case, tmp_path)
        if found is None:
            passed += 1
            continue
        line = f"{name.removeprefix('test_')}: {found}"
        fitting = [why for why, pattern in REASONS.items() if re.search(pattern, line)]
        reasons.update(fitting[:1])
        without += [] if fitting else [line]
    print(f"\n{passed} of {len(collected())} pass; {dict(reasons)}")
    assert not without
    assert passed >= LEAST


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("name", FEW)
def test_kernels_pass_too(name, tmp_path):
    assert wrong(collected()[f"test_{name}"], tmp_path, compiled=True) is None
