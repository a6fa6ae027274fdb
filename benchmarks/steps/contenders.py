"""Who runs: neoflow, maybe as it was before, and four peers; what each needs in its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MKL = "int mkl_serv_intel_cpu_true(void) { return 1; }"
"""MKL asks it before it uses AVX-512; its own answer on AMD is 0."""
LARGE = 1 << 32
TUNABLES = {"mmap_threshold": LARGE, "trim_threshold": LARGE, "top_pad": 1 << 28, "hugetlb": 1}
"""Of glibc's malloc: large buffers stay mapped between steps, with huge pages."""


@dataclass(frozen=True)
class Contender:
    """kind: of `worker.KINDS`. expert: in PyTorch's expert setting. is_cached: it keeps what it compiled on disk."""

    name: str
    kind: str
    expert: bool = False
    is_cached: bool = False
    root: Path = ROOT

    @property
    def is_peer(self) -> bool:
        return self.kind != "neoflow"


OURS = Contender("neoflow", "neoflow", is_cached=True)
PEERS = (
    Contender("PyTorch", "torch"),
    Contender("PyTorch expert", "torch", expert=True),
    Contender("torch.compile expert", "torch.compile", expert=True, is_cached=True),
    Contender("JAX", "jax"),
)


def contenders(before: Path | None) -> list[Contender]:
    """All, neoflow of another checkout beside this one's where it is given."""
    old = [] if before is None else [Contender("before", "neoflow", is_cached=True, root=before.resolve())]
    return [OURS, *old, *PEERS]


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


def environment(contender: Contender, cache: Path, expert: Path | None) -> dict[str, str]:
    """Of a contender's process. cache: a folder for what it compiles. expert: the library to preload."""
    found = {n: v for n, v in os.environ.items() if not n.startswith(("NEOFLOW_CACHE", "PYTHONPATH"))}
    kernels = cache / contender.name.replace(" ", "_")
    kernels.mkdir(mode=0o700, parents=True, exist_ok=True)
    found |= {"NEOFLOW_CACHE_DIR": str(kernels), "TORCHINDUCTOR_CACHE_DIR": str(kernels)}
    if contender.expert:
        assert expert is not None
        found["LD_PRELOAD"] = str(expert)
        found["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{n}={v}" for n, v in TUNABLES.items())
    return found
