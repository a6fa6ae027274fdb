"""Parameters are read straight into the memory that they stay in: as safetensors wrote them, aligned, checked there."""

import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import neoflow as nf
from neoflow.package import assembling, values
from neoflow.package.manifest import PARAMETERS, Made, Manifest, Written, digest
from neoflow.package.values import ALIGNMENT, read_values


def written(folder: Path, data: bytes, claimed: bytes | None = None) -> Manifest:
    """A package's manifest whose only file has this in it, or should have what is claimed."""
    (folder / PARAMETERS).write_bytes(data)
    of = data if claimed is None else claimed
    return Manifest("0.1.0", "net", Made("cpu", "x", 1, ()), {PARAMETERS: Written(len(of), digest(of))})


def read(folder: Path, data: bytes, claimed: bytes | None = None) -> values.Values:
    return read_values(str(folder), written(folder, data, claimed))


def safetensors(header: object, data: bytes) -> bytes:
    said = json.dumps(header).encode()
    return len(said).to_bytes(8, "little") + said + data


def drawn(count: int, seed: int) -> dict[str, np.ndarray]:
    """Arrays of all types and odd sizes, some of no element."""
    rng = np.random.default_rng(seed)
    kinds = ("float32", "float64", "float16", "int8", "int64", "bool")
    sizes = rng.integers(0, 90, count)
    return {f"a{n}": rng.integers(0, 2, int(s)).astype(kinds[n % len(kinds)]) for n, s in enumerate(sizes)}


@pytest.mark.parametrize("count", [0, 1, 7, 3000])
@pytest.mark.parametrize("most", [1 << 30, 333])
def test_values_are_those_that_were_written(count, most, tmp_path, monkeypatch):
    """Also where the system reads less at a time than was asked for; 3000 arrays are more pieces than it takes."""
    whole = os.preadv

    def some(descriptor, pieces, place):
        assert len(pieces) <= 1024
        cut, left = [], most
        for piece in pieces:
            cut.append(piece[:left])
            left -= len(cut[-1])
            if not left:
                break
        return whole(descriptor, cut, place)

    monkeypatch.setattr(os, "preadv", some)
    arrays = drawn(count, count)
    found = read(tmp_path, save(arrays, metadata={"format": "neoflow"}))
    assert set(found.arrays) == set(arrays)
    for name, array in arrays.items():
        value = found.arrays[name]
        assert value.shape == list(array.shape) and value.nbytes == array.nbytes and value.offset % ALIGNMENT == 0
        assert bytes(found.memory[value.offset : value.offset + value.nbytes]) == array.tobytes()
    spans = sorted((v.offset, v.offset + v.nbytes) for v in found.arrays.values())
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_memory_is_this_process_alone(tmp_path):
    found = read(tmp_path, save({"w": np.zeros(4, np.float32)}))
    if (child := os.fork()) == 0:
        found.memory[0] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert found.memory[0] == 0


W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"w": {**W, "data_offsets": [4, 12]}}, "there is a gap before 'w', or it overlaps another"),
        ({"w": W, "v": {**W, "data_offsets": [4, 12]}}, "there is a gap before 'v', or it overlaps another"),
        ({"w": {**W, "data_offsets": [0, 16]}}, "its arrays have 16 bytes, and 12 are there"),
        ({"w": W}, "its arrays have 8 bytes, and 12 are there"),
        ({"w": {**W, "data_offsets": [0, 12.0]}}, "it does not say where an array lies"),
        ({"w": {**W, "data_offsets": [0]}}, "it does not say where an array lies"),
        ({"w": {"dtype": "F32"}}, "data_offsets"),
        ([W], "its header is no object"),
        (3, "its header is no object"),
    ],
)
def test_what_is_no_safetensors_file(header, message, tmp_path):
    with pytest.raises(nf.PackageError, match=f"is no readable safetensors file: .*{message}"):
        read(tmp_path, safetensors(header, bytes(12)))


def test_damage_is_told_before_what_follows_from_it(tmp_path):
    data = save({"w": np.ones(100, np.float32)})
    for bad in (data[:-1], data + b" ", data[:-1] + b"~", b"~" + data[1:], data[:20] + b"~" + data[21:], b""):
        with pytest.raises(nf.PackageError, match=r"is damaged: parameters\.safetensors is not as it was written"):
            read(tmp_path, bad, claimed=data)


def test_a_file_that_becomes_shorter_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "preadv", lambda descriptor, pieces, place: 0)
    with pytest.raises(nf.PackageError, match=r"is damaged: parameters\.safetensors is not as it was written"):
        read(tmp_path, save({"w": np.zeros(100, np.float32)}))


@pytest.mark.tvm
def test_parameters_stay_where_they_were_read_and_a_function_is_laid_out_when_it_is_asked_for(tmp_path, monkeypatch):
    x = nf.placeholder((2, 3), name="x")
    w = nf.parameter((3, 5), name="w", init=lambda shape, rng: rng.standard_normal(shape))
    step = nf.compile([nf.mean(x @ w)], [x], updates={w: w * 0.5})
    infer = nf.compile([x @ w], [x])
    step.save(tmp_path / "net.nflib", "step", infer=infer)
    laid, read_here = [], []
    make, read_in = assembling.PackagedFunction, values.read_values
    monkeypatch.setattr(assembling, "PackagedFunction", lambda *given: laid.append(given[0].name) or make(*given))
    monkeypatch.setattr(
        "neoflow.package.loading.read_values", lambda *given: read_here.append(read_in(*given)) or read_here[-1]
    )
    package = nf.load(tmp_path / "net.nflib")
    assert set(package.functions) == {"step", "infer"} and "step" in package.functions and "x" not in package.functions
    assert laid == [] and repr(package) and len(package.functions) == 2
    ones, (value,) = np.ones((2, 3), np.float32), read_here[0].arrays.values()
    (found,) = package.infer(ones)
    assert laid == ["infer"] and package.infer is package["infer"] is package.functions["infer"]
    np.testing.assert_allclose(found, ones @ nf.get_value(w), rtol=1e-6)
    package.step(ones)
    assert laid == ["infer", "step"]
    there = np.frombuffer(read_here[0].memory, np.float32, 15, value.offset).reshape(3, 5)
    np.testing.assert_array_equal(there, 0.5 * nf.get_value(w))  # the step has written to what was read
