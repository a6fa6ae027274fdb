"""Faults planted in kernels that have none: each is found, and said where it is."""

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from tests.emulator import KINDS, Fault, emulate
from tests.emulator.kernels import CASES, launches, source, text


@dataclass(frozen=True)
class Planted:
    """`old` of a kernel becomes `new`, which is a fault of this kind; `says`: what its message has."""

    kernel: str
    old: str
    new: str
    kind: str
    says: str


BARRIER = "    __syncthreads();\n"
PLANTED = [
    # barriers
    Planted(
        "sum",
        "t + s];\n    }\n" + BARRIER,
        "t + s];\n __syncthreads();\n    }\n",
        "barrier",
        r"thread \(128, 0, 0\) ended",
    ),
    Planted(
        "sum", "t + s];\n    }", "t + s];\n __syncthreads();\n    }", "barrier", r"waits at another barrier, at line"
    ),
    Planted(
        "sum",
        "s >= 32; s >>= 1",
        "s >= (t < 8 ? 64 : 32); s >>= 1",
        "warp",
        r"lane 8, .* does not come to this operation \(it waits at a barrier\)",
    ),
    Planted(
        "compact",
        "  __syncthreads();\n",
        "  if (t < 32) __syncthreads(); else __syncwarp();\n",
        "race",
        r"reads shared memory that thread \(0, 0, 0\) writes",
    ),
    Planted(
        "compact",
        "  __syncthreads();\n",
        "  if (t == 5) return;\n  __syncthreads();\n",
        "barrier",
        r"thread \(5, 0, 0\) ended",
    ),
    Planted(
        "matmul",
        "    C[(row",
        "    if (i == 7 && t < 64) __syncthreads();\n    C[(row",
        "barrier",
        r"thread \(64, 0, 0\) ended",
    ),
    # races in shared memory
    Planted(
        "sum",
        "v.w;\n  __syncthreads();\n",
        "v.w;\n",
        "uninitialised",
        r"reads shared memory that nothing was written to \(S\[128\] of 256",
    ),
    Planted("sum", "    }\n" + BARRIER, "    }\n", "race", r"shared memory .* since the last barrier"),
    Planted(
        "sum",
        BARRIER + "  }\n  if (t < 32)",
        "    if (s > 64) __syncthreads();\n  }\n  if (t < 32)",
        "race",
        r"S\[32\] of 256",
    ),
    Planted("transpose", "  __syncthreads();\n", "", "uninitialised", r"tile\[\d+\] of 1056"),
    Planted("transpose", "[32][33]", "[32][31]", "race", r"tile\[31\] of 992"),
    Planted(
        "transpose", "[32][33]", "[31][33]", "bounds", r"index 31 of an array that ends before|tile\[1023\] of 1023"
    ),
    Planted("compact", "  __syncthreads();\n", "  __syncwarp();\n", "race", r"warps\[0\] of 2"),
    Planted("exchange", "  __syncwarp();\n", "", "uninitialised", r"dynamic shared memory"),
    Planted(
        "exchange", "  __syncwarp(0xffffffff);\n", "", "race", r"reads shared memory that thread \(31, 0, 0\) writes"
    ),
    Planted(
        "exchange",
        "lane < 16 ? 0x0000ffff : 0xffff0000",
        "3u << (lane & ~1)",
        "race",
        r"writes shared memory that thread \(\d+, 0, 0\) reads",
    ),
    Planted(
        "exchange",
        "buffer[first + (lane ^ 15)]",
        "buffer[(first + 32) % 96 + lane]",
        "race|uninitialised",
        r"shared memory that",
    ),
    Planted("matmul", "    __syncthreads();\n", "", "race|copy|uninitialised", r"shared memory"),
    Planted("tiles", "  __syncthreads();\n", "  __syncwarp();\n", "uninitialised", r"As\[\d+\] of 2304"),
    Planted("fragments", "  __syncthreads();\n", "", "uninitialised|race", r"[AB]s\[\d+\] of 1024"),
    # races in global memory
    Planted(
        "sum",
        "B[blockIdx.x] =",
        "B[blockIdx.x / 2] =",
        "race",
        r"writes global memory that thread \(0, 0, 0\) of block \(\d, 0, 0\) writes",
    ),
    Planted("sum", "B[blockIdx.x] = part", "B[blockIdx.x] = part + B[(blockIdx.x + 4) % 5]", "race", r"B\[\d\] of 5"),
    Planted("sum", "atomicAdd(blocks, 1)", "blocks[0] = blocks[0] + 1", "race", r"blocks\[0\] of 1"),
    Planted(
        "scatter",
        "atomicAdd(table + (id * 64 + (int)threadIdx.x), ",
        "*(table + (id * 64 + (int)threadIdx.x)) += (",
        "race",
        r"table\[\d+\]",
    ),
    Planted(
        "scatter",
        "atomicMax(greatest, id)",
        "if (*greatest < id) atomicMax(greatest, id)",
        "race",
        r"greatest\[0\] of 1",
    ),
    Planted("scatter", "atomicCAS(status, 0, (int)blockIdx.x + 1)", "*status = 1", "race", r"status\[0\] of 1"),
    Planted("softmax", "(int)blockIdx.x * 4", "(int)blockIdx.x * 3", "race", r"writes global memory that .* of block"),
    Planted("softmax", "lane + i * 32 < 100) {", "lane + i * 32 < 101) {", "race|bounds", r"writes"),
    Planted(
        "partial",
        "atomicAdd(sums + (int)blockIdx.x / 2, part)",
        "sums[(int)blockIdx.x / 2] += part",
        "race",
        r"sums\[\d\] of 4",
    ),
    # outside a buffer
    Planted(
        "sum",
        "A + ((int)blockIdx.x * 1024",
        "A + ((int)blockIdx.x * 1280",
        "bounds",
        r"outside every buffer \(A\[51\d\d\] of 5120\)",
    ),
    Planted(
        "sum",
        "B[blockIdx.x]",
        "B[(int)blockIdx.x - 1]",
        "bounds",
        r"writes 4 bytes outside every buffer \(B\[-1\] of 5\)",
    ),
    Planted("sum", "B[blockIdx.x]", "B[blockIdx.x + 1]", "bounds", r"\(B\[5\] of 5\)"),
    Planted("sum", "S[t + s]", "S[t + s * 2]", "bounds", r"index 256 of an array"),
    Planted("transpose", "column + x < 70", "column + x < 71", "bounds", r"\(A\[6720\] of 6720\)"),
    Planted("transpose", "column + i < 70", "column + i < 71", "uninitialised|bounds", r"tile|B\["),
    Planted(
        "scatter",
        "id >= 10",
        "id >= 11",
        "bounds",
        r"changes atomically 4 bytes outside every buffer \(table\[640\] of 640\)",
    ),
    Planted("scatter", "id < 0 ||", "", "bounds", r"\(table\[-64\] of 640\)"),
    Planted("softmax", "lane + i * 32 < 100 ?", "row < 16 ?", "bounds", r"\(A\[1600\] of 1600\)"),
    Planted("exchange", "first + 31 - lane", "first + 127 - lane", "bounds", r"outside its shared memory"),
    Planted("exchange", "buffer[t] = A", "buffer[t - 1] = A", "bounds", r"writes 8 bytes outside its shared memory"),
    Planted("matmul", "bool ok = k + 2 < 4", "bool ok = true", "bounds", r"A\[\d+\] of 8192|B\[\d+\] of 8192"),
    Planted(
        "matmul",
        "int y = t / 8 + i * 16, x = t % 8 * 4;\n",
        "int y = t / 8 + i * 48, x = t % 8 * 4;\n",
        "bounds|copy|uninitialised",
        r"",
    ),
    Planted("tiles", "(k + lane % 16) * 40", "(k + 1 + lane % 16) * 40", "bounds|uninitialised", r"Bs\[\d+\] of 2560"),
    Planted("fragments", "C + (warp * 512 + 16)", "C + (warp * 512 + 32)", "bounds|race", r"C\["),
    Planted("compact", "warps[t / 32]", "warps[t / 16]", "bounds", r"index 2 of an array"),
    Planted("softmax", "local[i] = lane", "local[i + 1] = lane", "bounds", r"index 4 of an array"),
    # never written
    Planted("sum", "  S[t] = ", "  if (t != 77) S[t] = ", "uninitialised", r"\(S\[77\] of 256\)"),
    Planted("tiles", "*(uint4*)(Bs +", "if (i != 9) *(uint4*)(Bs +", "uninitialised", r"Bs\["),
    Planted("fragments", "i < 512", "i < 511", "uninitialised", r"[AB]s\[102[23]\] of 1024"),
    # addresses
    Planted("sum", "1024 + t * 4)", "1024 + t * 4 - t / 255)", "alignment", r"no multiple of 16"),
    Planted(
        "tiles", "*(uint4*)(As + (i / 8 * 72", "*(uint4*)(As + (i / 8 * 76", "alignment", r"no multiple of 16 \(As\["
    ),
    Planted(
        "tiles",
        "lane / 16 * 8));\n    nf_ldmatrix_x4_trans",
        "lane / 16 * 9));\n    nf_ldmatrix_x4_trans",
        "alignment",
        r"multiple of 16",
    ),
    Planted("matmul", "k * 32 + x)", "k * 32 + x + 2)", "alignment", r"multiple of 16"),
    Planted("fragments", "Bs + (k * 512 + j * 16)", "Bs + (k * 512 + j * 8)", "alignment", r"multiple of 32"),
    # asynchronous copies
    Planted("matmul", "    nf_cp_async_wait_1();\n", "", "copy", r"asynchronous copy .* was not waited for"),
    Planted("matmul", "nf_cp_async_wait_1", "nf_cp_async_wait_2", "copy", r"not waited for"),
    Planted(
        "matmul",
        "    nf_cp_async_commit();\n  }\n  for (int k = 0; k < 4",
        "  }\n  for (int k = 0; k < 4",
        "copy",
        r"not waited for",
    ),
    Planted("matmul", "next = (k + 2) % 3", "next = (k + 1) % 3", "copy|race", r""),
    Planted("matmul", "next = (k + 2) % 3", "next = k % 3", "copy|race", r""),
    Planted(
        "matmul",
        "bool ok = k + 2 < 4",
        "bool ok = k + 2 < 4; if (t == 3) As[next * 1024 + y * 32 + x + 4] = 0",
        "copy|race",
        r"writes|touches",
    ),
    # warps
    Planted("sum", "if (t < 32)", "if (t < 31)", "warp", r"lane 31, named by mask 0xffffffff, has ended"),
    Planted("sum", "part, i, 32)", "part, i, 64)", "warp", r"width 64"),
    Planted(
        "softmax",
        "sum = sum + __shfl",
        "if (lane < 30) sum = sum + __shfl",
        "warp",
        r"lane 30, named by mask|has ended",
    ),
    Planted(
        "softmax",
        "__shfl_xor_sync(0xffffffff, sum",
        "__shfl_xor_sync(0xffff, sum",
        "warp",
        r"whose mask 0x0000ffff does not name it",
    ),
    Planted(
        "softmax",
        "__shfl_xor_sync(0xffffffff, sum",
        "__shfl_xor_sync(lane < 16 ? 0xffffu : 0xffff0000u, sum",
        "warp",
        r"reads lane \d+, which takes no part",
    ),
    Planted(
        "softmax",
        "__shfl_xor_sync(0xffffffff, most, i, 32)",
        "__shfl_xor_sync(0xffffffff, most, i, lane < 9 ? 32 : 16)",
        "warp",
        r"other arguments",
    ),
    Planted(
        "softmax",
        "__shfl_xor_sync(0xffffffff, most, i, 32)",
        "__shfl_sync(0xffffffff, most, lane, 24)",
        "warp",
        r"width 24",
    ),
    Planted(
        "compact",
        "unsigned votes =",
        "if (t == 40) return;\n  unsigned votes =",
        "warp|barrier",
        r"lane 8, named by mask|ended",
    ),
    Planted(
        "compact",
        "int any = __any_sync",
        "int any = lane == 3 ? 1 : __any_sync",
        "warp",
        r"lane 31 comes to another operation than lane 3, or with other arguments",
    ),
    Planted(
        "exchange",
        "  __syncwarp(lane < 16",
        "  if (lane != 9) __syncwarp(lane < 16",
        "race",
        r"reads shared memory that thread \(6, 0, 0\) writes",
    ),
    Planted(
        "tiles",
        "nf_mma_m16n8k16_f16(d, a, b);",
        "if (t != 70) nf_mma_m16n8k16_f16(d, a, b);",
        "warp",
        r"does not come|other arguments",
    ),
    Planted(
        "fragments",
        "nvcuda::wmma::mma_sync(c[j], a, b, c[j]);",
        "if (t % 32 < 16) nvcuda::wmma::mma_sync(c[j], a, b, c[j]);",
        "warp",
        r"does not come",
    ),
    Planted(
        "fragments",
        "As + (warp * 512 + k * 16)",
        "As + (t / 16 * 256 + k * 16)",
        "warp",
        r"different addresses or strides",
    ),
    # arithmetic
    Planted("compact", "t / 32]", "t / (counts[blockIdx.x] / 2)]", "arithmetic", r"division by zero"),
]


def _variants(kernel: str) -> dict[int, str]:
    """The kernel with each of its faults, under names with their numbers."""
    found = {}
    for number, planted in enumerate(PLANTED):
        if planted.kernel == kernel:
            assert planted.old in text(kernel), (kernel, planted.old)
            body = text(kernel).replace(planted.old, planted.new)
            found[number] = re.sub(rf"\b{kernel}\(", f"{kernel}_{number}(", body)
    return found


@cache
def _source(kernel: str) -> str:
    return source(*_variants(kernel).values())


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("number", range(len(PLANTED)), ids=[f"{p.kernel}-{p.new.strip()[:40]!r}" for p in PLANTED])
def test_a_planted_fault_is_found(number, seed):
    planted = PLANTED[number]
    arrays = CASES[planted.kernel].arrays(np.random.default_rng(0))
    with pytest.raises(Fault) as caught:
        emulate(_source(planted.kernel), launches(planted.kernel, arrays, f"{planted.kernel}_{number}"), seed=seed)
    fault = caught.value
    assert fault.kind in planted.kind.split("|"), fault
    assert re.search(planted.says, str(fault)), fault
    assert fault.code.strip(), fault  # the line is known


def test_every_kind_is_planted():
    assert {kind for p in PLANTED for kind in p.kind.split("|")} == set(KINDS) - {"none"}
