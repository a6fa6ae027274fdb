"""Files of ONNX that are damaged or lie: a model, or an error in a sentence, in little time and memory."""

import random
import resource
import time

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto  # noqa: E402

import neoflow as nf  # noqa: E402
from neoflow.errors import NeoflowError  # noqa: E402
from tests.interop.onnx_models import info, model, network, node  # noqa: E402

pytestmark = pytest.mark.onnx

HUGE = (1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), -1, 0, 10**10)
MOST_SECONDS, MOST_MEMORY = 10, 2 << 20
"""Of one file; and what the process may grow by, in KiB."""


def truncated(data, rng):
    return data[: rng.randrange(len(data))]


def flipped(data, rng):
    bad = bytearray(data)
    for _ in range(rng.choice([1, 1, 4, 32])):
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
    return bytes(bad)


def outside(data, rng):
    proto = onnx.ModelProto.FromString(data)
    tensor = rng.choice(proto.graph.initializer)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(
        key="location", value=rng.choice(["../secret", "/etc/passwd", "a/../../b", "", ".", "x\0y"])
    )
    if rng.random() < 0.5:
        tensor.external_data.add(key="length", value=str(rng.choice(HUGE)))
    return proto.SerializeToString()


def huge(data, rng):
    """A number of the file, of a shape or an attribute, replaced by one that is far too large."""
    proto = onnx.ModelProto.FromString(data)
    match rng.randrange(4):
        case 0:
            tensor = rng.choice(proto.graph.initializer)
            tensor.dims[:] = [rng.choice(HUGE) for _ in range(rng.randrange(1, 5))]
        case 1:
            dim = rng.choice(proto.graph.input[0].type.tensor_type.shape.dim)
            dim.dim_value = rng.choice(HUGE)
        case 2:
            chosen = rng.choice([a for n in proto.graph.node for a in n.attribute if a.ints])
            chosen.ints[rng.randrange(len(chosen.ints))] = rng.choice(HUGE)
        case _:
            shape = [rng.choice(HUGE) for _ in range(rng.randrange(1, 4))]
            return model([grown(rng)], [info("x", [2])], ["y"], {"s": np.array(shape)}).SerializeToString()
    return proto.SerializeToString()


def grown(rng):
    return rng.choice(
        [
            node("ConstantOfShape", ["s"], ["y"]), node("Expand", ["x", "s"], ["y"]), node("Tile", ["x", "s"], ["y"]),
            node("Reshape", ["x", "s"], ["y"]), node("Pad", ["x", "s"], ["y"]), node("Range", ["s", "s", "s"], ["y"]),
            node("Resize", ["x", "", "", "s"], ["y"], mode="linear"), node("Slice", ["x", "s", "s"], ["y"]),
            node("Unsqueeze", ["x", "s"], ["y"]), node("Split", ["x", "s"], ["y"]),
            node("TopK", ["x", "s"], ["y", "z"]),
            node("OneHot", ["s", "s", "x"], ["y"]), node("Gather", ["x", "s"], ["y"]),
            node("CumSum", ["x", "s"], ["y"]),
        ]
    )  # fmt: skip


KINDS = (truncated, flipped, outside, huge)


def tried(count, folder):
    """How many files load, and how many are refused. Anything else is raised."""
    data, found = network().SerializeToString(), {"loaded": 0, "refused": 0}
    path = folder / "model.onnx"
    for n in range(count):
        rng = random.Random(n)
        path.write_bytes(KINDS[n % len(KINDS)](data, rng))
        begun = time.process_time()
        try:
            nf.onnx.load(path, {"batch": 2} if rng.random() < 0.5 else {"x": (2, 2, 8, 8)})
            found["loaded"] += 1
        except NeoflowError as error:
            assert len(error.message) > 20, (n, error)
            found["refused"] += 1
        assert time.process_time() - begun < MOST_SECONDS, n
    return found


def check(count, folder):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = tried(count, folder)
    print(f"\n{count} files: {found}")
    assert sum(found.values()) == count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


def test_forty_hostile_files(tmp_path):
    check(40, tmp_path)


@pytest.mark.slow
def test_two_thousand_hostile_files(tmp_path):
    check(2000, tmp_path)
