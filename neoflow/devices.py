"""What code runs on here: this machine's CPU with its thread team, its GPU; and the cache of compiled kernels."""

from __future__ import annotations

from functools import lru_cache

from neoflow import codegen, config
from neoflow.architectures import GPU_KINDS, NEWEST, gpu_target, runs_on
from neoflow.code import Code
from neoflow.codegen.keys import request_key
from neoflow.errors import ConfigError, RuntimeFault
from neoflow.runtime.cache import KernelCache
from neoflow.runtime.device import Device
from neoflow.runtime.device.cpu import CPU, Cpu
from neoflow.runtime.device.cuda import Cuda, this_gpu
from neoflow.runtime.device.library import Library
from neoflow.runtime.store import STORE, ParameterStore
from neoflow.target import Target, cpu_target


@lru_cache(maxsize=4)
def kernel_cache(settings: config.Config) -> KernelCache:
    """The cache in the folder of the settings."""
    return KernelCache(settings.cache_dir, settings.cache_bytes)


def device(target: Target | None = None) -> Device:
    """What code for a target runs on, ready: the CPU when None. Raises `RuntimeFault` when it is not there."""
    if target is None or target.device == "cpu":
        return cpu()
    place = gpu()
    here = place.driver.gpu
    if not runs_on(target, here.architecture):
        raise RuntimeFault(
            f"the code is for {target}, the GPU of this machine is a {here.name}, {here.architecture}: compile for "
            f"target='{target.kind}'"
        )
    return place


def cpu() -> Cpu:
    """The CPU, ready to run kernels: its thread team comes from the cache, or is compiled."""

    def team() -> Library:
        cache, request = kernel_cache(config.load()), request_key("the thread team", "", "")
        key = cache.kernel_of(request)
        module = None if key is None else cache.find(key)
        if module is None:
            key = codegen.team_key()
            module = cache.find(key) or cache.publish(codegen.build_team(), {key: Code(())})
            cache.remember(request, key)
        return Library(module.library)

    CPU.install(team)
    return CPU


def gpu() -> Cuda:
    """The GPU of this machine. Raises `RuntimeFault` when there is none that this process may use."""
    return this_gpu()


def parameter_store() -> ParameterStore:
    """Where parameters live, at first on the CPU."""
    cpu()
    return STORE


def resolve_target(target: str) -> Target:
    """The target of a name: "cpu", this machine; "cuda" or "nvptx", its GPU or, where there is none, the newest
    architecture; "cuda:sm_80", that architecture. Raises `ConfigError` for any other."""
    kind, colon, name = target.partition(":")
    if target == "cpu":
        return cpu_target(config.load().threads)
    if kind in GPU_KINDS and bool(name) == bool(colon):
        return gpu_target(kind, name or _architecture_here())
    raise ConfigError(
        f"there is no target {target!r}; there are cpu, {', '.join(GPU_KINDS)} and cuda:sm_80 and the like"
    )


def _architecture_here() -> str:
    """Of this machine's GPU; the newest one where there is none."""
    try:
        return gpu().driver.gpu.architecture
    except RuntimeFault:
        return NEWEST
