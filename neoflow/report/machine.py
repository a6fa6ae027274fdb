"""What this machine has, what it reaches, and what is missing for what."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

import neoflow as nf
from neoflow import codegen, config
from neoflow.architectures import NEWEST, gpu_target
from neoflow.devices import resolve_target
from neoflow.errors import NeoflowError
from neoflow.machine import available_cores, processor
from neoflow.measure.near import are_apart, farthest
from neoflow.measure.roofs import bandwidth_gb_s, fma_gflops
from neoflow.report.gpu import GpuReport, examine_gpu
from neoflow.target import Target
from neoflow.tuning import keep_roofs, machine_roofs


@dataclass(frozen=True)
class Machine:
    """Measured: fma_gflops, of a kernel of nothing but float32 multiply-adds in registers, on all threads;
    cache_gb_s and memory_gb_s, bytes read and written by b = a + 1 on arrays that fit the second-level caches, and on
    arrays of 256 MiB. busy: share of the cores that other work took just before. round_trip_ns: of a line of memory,
    from one core to the farthest and back.
    roofs: what plans and kernels are compared by. missing: what is not there, and what it would be needed for.
    """

    neoflow: str
    python: str
    processor: str
    cores: int
    threads: int
    vector_bits: int
    memory_bytes: int
    busy: float
    tvm: str | None
    tvm_ffi: str | None
    llvm_mcpu: str | None
    fma_gflops: float | None
    cache_gb_s: float | None
    memory_gb_s: float | None
    round_trip_ns: float | None
    gpu: GpuReport
    torch: str | None
    jax: str | None
    roofs: str
    cache_dir: str
    cache_bytes: int
    missing: dict[str, str]

    def __str__(self) -> str:
        def said(value: float | None, unit: str) -> str:
            return "not measured" if value is None else f"{value:.0f} {unit}"

        rows = {
            "neoflow": f"{self.neoflow}, Python {self.python}",
            "processor": f"{self.processor}, {self.cores} cores ({self.busy:.0%} busy with other work)",
            "code": f"{self.llvm_mcpu}, {self.threads} threads, {self.vector_bits}-bit vectors",
            "arithmetic": f"{said(self.fma_gflops, 'GFLOP/s')} of float32 multiply-adds in registers",
            "bandwidth": f"{said(self.cache_gb_s, 'GB/s')} in cache, {said(self.memory_gb_s, 'GB/s')} from memory",
            "cores": _distance(self.round_trip_ns),
            "kernels": f"compared by {self.roofs}",
            "memory": f"{self.memory_bytes / 2**30:.1f} GiB",
            "TVM": f"{self.tvm or 'missing'}, tvm_ffi {self.tvm_ffi or 'missing'}",
            **self.gpu.lines(),
            "peers": f"PyTorch {self.torch or 'not installed'}, JAX {self.jax or 'not installed'}",
            "cache": f"{self.cache_dir}, {self.cache_bytes / 2**20:.1f} MiB",
        }
        lines = [f"{name:11} {value}" for name, value in rows.items()]
        lines += [f"{'missing' if n == 0 else '':11} {w}: {why}" for n, (w, why) in enumerate(self.missing.items())]
        return "\n".join(lines)


def _distance(nanoseconds: float | None) -> str:
    """In words."""
    if not nanoseconds:
        return "not measured"
    text = f"{nanoseconds:.0f} ns from one to another and back"
    if are_apart(nanoseconds * 1e-9):
        return (
            f"{text}: apart, with which steps of short kernels take up to twice as long; of a virtual machine, for now"
        )
    return text


def version_of(package: str) -> str | None:
    """The version of an installed package, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(*command: str) -> str | None:
    """What a program says of itself, or None where there is no such program."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return next((line for line in lines if "release" in line), lines[0] if lines else None)


def _roofs(target: Target, folder: Path) -> str:
    """What plans and kernels are compared by; measured now, unless that is kept."""
    refused = keep_roofs(target, folder)
    found = machine_roofs(target, folder)
    speeds = ", ".join(f"{v.name} {v.gb_s:.0f}" for v in found.levels)
    text = f"{found.gflops:.0f} GFLOP/s, {speeds} GB/s, {found.start * 1e9:.0f} ns a kernel ({found.origin})"
    return text if refused is None else f"{text}; {refused}"


def _cache_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def examine() -> Machine:
    """Look at this machine and measure it: a few seconds."""
    settings = config.load()
    missing: dict[str, str] = {}
    tvm, ffi, torch, jax = (version_of(p) for p in ("apache-tvm", "apache-tvm-ffi", "torch", "jax"))
    busy = psutil.cpu_percent(interval=0.5) / 100
    target = peak = cache = memory = trip = None
    try:
        target = resolve_target("cpu")
        peak = fma_gflops(target)
        cache, memory = bandwidth_gb_s(target, target.l2_bytes * target.threads // 2), bandwidth_gb_s(target, 1 << 29)
        trip = farthest(tries=8) * 1e9
    except (NeoflowError, ImportError) as error:
        missing["a working compiler"] = f"nothing can be compiled: {error}"
    gpu, without_ptx = examine_gpu(), codegen.missing(gpu_target("nvptx", NEWEST))
    wanted = (
        (tvm, "apache-tvm", "compiling anything: pip install apache-tvm"),
        (
            gpu.compilers or None,
            "a CUDA compiler",
            "code for NVIDIA GPUs: pip install 'neoflow[cuda]', or a CUDA toolkit",
        ),
        (None if without_ptx else "here", "libdevice", f"the target nvptx: {without_ptx}"),
        (gpu.gpu, "an NVIDIA GPU", f"neoflow train --target cuda; {gpu.missing}"),
        (torch, "PyTorch", "`neoflow bench --against torch` and the tests marked torch: pip install 'neoflow[torch]'"),
        (jax, "JAX", "`neoflow bench --against jax` and the tests marked jax: pip install 'neoflow[jax]'"),
        (version_of("scikit-learn"), "scikit-learn", "training on its digits: pip install 'neoflow[models]'"),
    )
    missing.update({what: why for found, what, why in wanted if found is None})
    return Machine(
        neoflow=nf.__version__,
        python=platform.python_version(),
        processor=processor(),
        cores=available_cores(),
        threads=settings.threads,
        vector_bits=8 * target.vector_bytes if target else 0,
        memory_bytes=psutil.virtual_memory().total,
        busy=busy,
        tvm=tvm,
        tvm_ffi=ffi,
        llvm_mcpu=target.mcpu if target else None,
        fma_gflops=peak,
        cache_gb_s=cache,
        memory_gb_s=memory,
        round_trip_ns=trip if trip != float("inf") else None,
        gpu=gpu,
        torch=torch,
        jax=jax,
        roofs="nothing: none can be compiled" if target is None else _roofs(target, settings.cache_dir),
        cache_dir=str(settings.cache_dir),
        cache_bytes=_cache_bytes(settings.cache_dir),
        missing=missing,
    )
