"""Runs kernels whose arrays end, or begin, at memory that must not be touched: `python -m tests.codegen.guarded A B`.

Every kernel of the random programs A to B - 1 and of some operators with tails in every dimension. A read or write
outside kills the process; the kernel is printed before it runs.
"""

import ctypes
import mmap
import sys

import numpy as np

import neoflow as nf
from neoflow import codegen
from neoflow.devices import resolve_target
from neoflow.nn import functional as F
from neoflow.pipeline import compile_program
from tests.codegen.kernels import loaded
from tests.strategies import random_program

_LIBC = ctypes.CDLL(None, use_errno=True)
_KEPT = []  # the mappings live as long as the process


def fenced(array, at_end):
    """A copy of `array` that ends (else begins) where a page begins (ends) that can be neither read nor written."""
    page = mmap.PAGESIZE
    pages = -(-max(array.nbytes, 1) // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    _KEPT.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (start, start + (pages + 1) * page):
        assert _LIBC.mprotect(ctypes.c_void_p(fence), page, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0) == 0
    offset = (pages + 1) * page - array.nbytes if at_end else page
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def programs(first, last):
    for seed in range(first, last):
        program = random_program(seed, jumps=False)
        yield f"program {seed}", program.with_gradients(), program.feeds
    rng = np.random.default_rng(0)
    for name, shapes, function in OPERATORS:
        inputs = [nf.placeholder(s, name=f"x{n}") for n, s in enumerate(shapes)]
        y = function(*inputs)
        feeds = {x: rng.standard_normal(x.shape).astype(np.float32) for x in inputs}
        yield name, [y, *nf.vjp(nf.sum(y * y), inputs)], feeds


def _product(a, b):
    k = nf.axis(a.shape[1], "k")
    return nf.compute((a.shape[0], b.shape[1]), lambda i, j: nf.sum(a[i, k] * b[k, j], axis=[k]))


OPERATORS = [
    ("matmul", ((37, 53), (41, 53)), F.linear),
    ("matmul in place", ((21, 53), (53, 75)), lambda a, b: _product(a, b)),
    ("long matmul", ((3, 700), (5, 700)), F.linear),
    ("convolution", ((2, 5, 11, 13), (7, 5, 3, 3)), lambda x, w: F.conv2d(x, w, stride=2, padding=1)),
    ("depthwise", ((2, 6, 9, 11), (6, 1, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1, groups=6)),
    ("softmax", ((7, 45),), F.softmax),
    ("layer norm", ((7, 45), (45,), (45,)), F.layer_norm),
    ("transpose", ((33, 47),), lambda x: nf.transpose(x, (1, 0)) + 1.0),
    ("columns", ((45, 7),), lambda x: nf.sum(x, axis=0)),
    ("diagonal", ((5,),), lambda x: nf.compute((6, 5), lambda i, j: nf.select(j - i == 0, x[i] * 0.1, 0.0))),
]


def main(first, last):
    target, count = resolve_target("cpu"), 0
    for name, roots, feeds in programs(first, last):
        compiled = compile_program(roots, list(feeds))
        lowered = [codegen.lower(k.subgraph, k.schedule, target, f"k{n}") for n, k in enumerate(compiled.kernels)]
        number = {k.subgraph.digest: n for n, k in enumerate(compiled.kernels)}
        calls = [loaded([k], target)[0] for k in lowered]
        values = dict(feeds)
        for call in compiled.calls:
            inputs, outputs = call.subgraph.tensors()
            arrays = [np.asarray(nf.evaluate([t], values)[0]) for t in call.inputs]
            n = number[call.subgraph.digest]
            print(name, n, compiled.kernels[n].schedule, call.subgraph, sep="\n", flush=True)
            for at_end in (True, False):
                results = [
                    np.zeros(t.shape, nf.evaluate([t], dict(zip(inputs, arrays, strict=True)))[0].dtype)
                    for t in outputs
                ]
                places = [fenced(a, at_end) for a in (*arrays, *results)]
                calls[n](*places)
            count += 1
    print(f"{count} kernels stayed inside")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
