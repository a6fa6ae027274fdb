"""Packages that were changed: every one is refused with a sentence, or runs as it was written."""

import random
import shutil
from pathlib import Path

import pytest

import neoflow as nf
from tests.package.network import functions, ten_steps

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A package, and what it gives."""
    path = tmp_path_factory.mktemp("attack") / "net.nflib"
    step, infer = functions()
    step.save(path, "step", infer=infer)
    return path, ten_steps(step, infer)[0]


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_flipped_bits_and_cuts(good, tmp_path, count):
    path, losses = good
    random_ = random.Random(1)
    names = ["manifest.json", "program.json", "parameters.safetensors", "libnf_net.so"]
    broken = []
    for n in range(count):
        copy = Path(shutil.copytree(path, tmp_path / f"{n}.nflib"))
        file = copy / random_.choice(names)
        data = bytearray(file.read_bytes())
        at = random_.randrange(len(data))
        if random_.random() < 0.2:
            del data[at:]
        else:
            data[at] ^= 1 << random_.randrange(8)
        file.write_bytes(data)
        try:
            package = nf.load(copy)
            if ten_steps(package.step, package.infer)[0] != losses:
                broken.append((file.name, at, "other results"))
        except nf.PackageError:
            pass
        except Exception as error:
            broken.append((file.name, at, repr(error)))
        shutil.rmtree(copy)
    assert broken == []
