"""What tensor cores do, as a device's language says it: functions of `device.cuh` in CUDA C++, intrinsics of LLVM.

TVM 0.27 takes an intrinsic's four results for a vector of them, which they are once they are stored. It has no word for
the addresses that `ldmatrix` takes: in PTX the registers of fragments are loaded one by one.
"""

from __future__ import annotations

from typing import Protocol

from tvm import tirx

from neoflow.codegen.gpu.grid import Value, called
from neoflow.codegen.tir import emit
from neoflow.graph import TF32


class Matrices(Protocol):
    """has_lines: whether squares of fragments come by the addresses of their lines."""

    has_lines: bool

    def element(self, dtype: str) -> str:
        """What the registers of a fragment are declared as."""
        ...

    def word(self, dtype: str, value: Value) -> Value:
        """A register of a fragment: of one element of 4 bytes, or two of 2."""
        ...

    def loaded(self, dtype: str, to: emit.Registers, n: int) -> list:
        """What is done to a fragment after it was loaded."""
        ...

    def multiply(self, dtype: str, sums: Sums, left: Part, right: Part) -> list:
        """A square of 16 x 8 with 32 bytes of terms."""
        ...

    def multiply_short(self, sums: Sums, left: Part, right: Part) -> list:
        """The same of float16 with half of the terms."""
        ...


Part = tuple[emit.Registers, int, int]
"""A fragment: its registers, its number, the first of its registers that is meant."""
Sums = tuple[emit.Registers, int]


class CudaMatrices:
    """Of CUDA C++."""

    has_lines = True

    def element(self, dtype: str) -> str:
        return "float32" if dtype == TF32 else "uint32"

    def word(self, dtype: str, value: Value) -> Value:
        return value

    def loaded(self, dtype: str, to: emit.Registers, n: int) -> list:
        return [called("nf_tf32_x4", to.address(n))] if dtype == TF32 else []

    def multiply(self, dtype: str, sums: Sums, left: Part, right: Part) -> list:
        return _called(_FUNCTIONS[dtype], sums, left, right)

    def multiply_short(self, sums: Sums, left: Part, right: Part) -> list:
        return _called("nf_mma_m16n8k8_f16", sums, left, right)


_FUNCTIONS = {"float16": "nf_mma_m16n8k16_f16", "bfloat16": "nf_mma_m16n8k16_bf16", TF32: "nf_mma_m16n8k8_tf32"}


def _called(name: str, sums: Sums, left: Part, right: Part) -> list:
    return [called(name, *(registers.address(*at) for registers, *at in (sums, left, right)))]


class PtxMatrices:
    """Of LLVM's NVPTX."""

    has_lines = False

    def element(self, dtype: str) -> str:
        return "int32"

    def word(self, dtype: str, value: Value) -> Value:
        if dtype == TF32:
            return tirx.call_llvm_pure_intrin("int32", "llvm.nvvm.f2tf32.rna", value)
        return tirx.reinterpret("int32", value)

    def loaded(self, dtype: str, to: emit.Registers, n: int) -> list:
        return []

    def multiply(self, dtype: str, sums: Sums, left: Part, right: Part) -> list:
        return _intrinsic(_INTRINSICS[dtype], dtype, sums, _lanes(left, 4), _lanes(right, 2))

    def multiply_short(self, sums: Sums, left: Part, right: Part) -> list:
        return _intrinsic("m16n8k8.row.col.f32.f32", "float16", sums, _lanes(left, 2), _lanes(right, 1))


_INTRINSICS = {"float16": "m16n8k16.row.col.f32.f32", "bfloat16": "m16n8k16.row.col.bf16", TF32: "m16n8k8.row.col.tf32"}


def _lanes(part: Part, count: int) -> list[Value]:
    registers, n, first = part
    return [registers.lane(n, first + i) for i in range(count)]


def _intrinsic(name: str, dtype: str, sums: Sums, left: list[Value], right: list[Value]) -> list:
    """Of float16 it takes pairs of numbers."""
    acc, n = sums
    given = [tirx.reinterpret("float16x2", x) if dtype == "float16" else x for x in (*left, *right)]
    before = [acc.lane(n, i) for i in range(4)]
    return [acc.put(n, tirx.call_llvm_intrin("float32x4", f"llvm.nvvm.mma.{name}", *given, *before))]


MATRICES: dict[str, Matrices] = {"cuda": CudaMatrices(), "nvptx": PtxMatrices()}
"""By kind of target."""
