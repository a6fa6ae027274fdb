"""Who runs a step: neoflow and four peers, what each needs to be here, and in its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neoflow.errors import ConfigError
from neoflow.models import check_framework

MKL = "int mkl_serv_intel_cpu_true(void) { return 1; }"
"""MKL asks it before it uses AVX-512; its own answer on AMD is 0."""
LARGE = 1 << 32
TUNABLES = {"mmap_threshold": LARGE, "trim_threshold": LARGE, "top_pad": 1 << 28, "hugetlb": 1}
"""Of glibc's malloc: large buffers stay mapped between steps, with huge pages."""


@dataclass(frozen=True)
class Contender:
    """name: in tables. kind: what its process runs. key: what commands call it. framework: what has to be installed.

    expert: in PyTorch's expert setting. is_cached: it keeps what it compiled on disk.
    """

    name: str
    kind: str
    expert: bool = False
    is_cached: bool = False
    key: str = ""
    framework: str = ""

    @property
    def is_peer(self) -> bool:
        return self.kind != "neoflow"


OURS = Contender("neoflow", "neoflow", is_cached=True, key="neoflow", framework="neoflow")
PEERS = (
    Contender("PyTorch", "torch", key="torch", framework="torch"),
    Contender("PyTorch expert", "torch", expert=True, key="torch-expert", framework="torch"),
    Contender("torch.compile expert", "torch.compile", True, is_cached=True, key="inductor", framework="torch"),
    Contender("JAX", "jax", key="jax", framework="jax"),
)
ON_A_GPU = (
    Contender("PyTorch", "torch on a GPU", key="torch", framework="torch"),
    Contender("PyTorch expert", "torch expert on a GPU", key="torch-expert", framework="torch"),
    Contender("torch.compile expert", "torch.compile on a GPU", is_cached=True, key="inductor", framework="torch"),
    Contender("JAX", "jax on a GPU", key="jax", framework="jax"),
)
"""The same where steps run on a GPU: what an expert sets there is no matter of the environment."""


def chosen(keys: Sequence[str], on_gpu: bool = False) -> list[Contender]:
    """The peers of these keys. Raises `ConfigError` for one that there is not, or that is not installed."""
    known = {c.key: c for c in (ON_A_GPU if on_gpu else PEERS)}
    for key in keys:
        if key not in known:
            raise ConfigError(f"there is no peer {key!r}; there are {', '.join(known)}")
        check_framework(known[key].framework)
    return [known[key] for key in dict.fromkeys(keys)]


def build_expert(folder: Path, compilers: Sequence[str] = ("gcc", "g++")) -> Path | str:
    """The library to preload, or a sentence why there is none."""
    found = next((c for c in compilers if shutil.which(c)), None)
    if found is None:
        return f"no {' or '.join(compilers)} here to build the library that enables MKL's AVX-512 on AMD"
    source, library = folder / "mkl.c", folder / "libmkl_as_on_intel.so"
    code = MKL if found.endswith("gcc") else f'extern "C" {MKL}'
    source.write_text(code + "\n")
    language = "c" if found.endswith("gcc") else "c++"
    command = [found, "-x", language, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"{found} did not build the library that enables MKL's AVX-512 on AMD: {done.stderr.strip()[:200]}"
    return library


def environment(contender: Contender, cache: Path | None, expert: Path | None) -> dict[str, str]:
    """Of a contender's process. cache: a folder for what it compiles. expert: the library to preload."""
    found = {n: v for n, v in os.environ.items() if not n.startswith(("NEOFLOW_CACHE", "PYTHONPATH"))}
    if cache is not None:
        kernels = cache / contender.name.replace(" ", "_")
        kernels.mkdir(mode=0o700, parents=True, exist_ok=True)
        found |= {"NEOFLOW_CACHE_DIR": str(kernels), "TORCHINDUCTOR_CACHE_DIR": str(kernels)}
    if contender in ON_A_GPU:
        found |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # others need memory there too
    if contender.expert:
        assert expert is not None
        found["LD_PRELOAD"] = str(expert)
        found["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{n}={v}" for n, v in TUNABLES.items())
    return found
