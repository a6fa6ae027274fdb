"""Kernels from the cache or compiled now, loaded onto a device, and compared with NumPy where that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any
from weakref import WeakValueDictionary

from neoflow import codegen, config
from neoflow.code import Code, kernel_symbol
from neoflow.codegen.keys import request_key, usual_key
from neoflow.devices import device, kernel_cache
from neoflow.errors import CodegenError, RuntimeFault
from neoflow.kernel import Kernel
from neoflow.loops import Schedule, default_schedule, schedule_from_json
from neoflow.machine import available_cores
from neoflow.partition import Subgraph
from neoflow.runtime.cache import KernelCache
from neoflow.runtime.device import Device, Library, Memory
from neoflow.runtime.executor import Loaded, load_kernel, run_on
from neoflow.runtime.records import Module
from neoflow.target import Target, cpu_target
from neoflow.trace import tell


def find_kernels(
    subgraphs: Sequence[Subgraph], schedules: Sequence[Schedule], target: Target, settings: config.Config
) -> tuple[tuple[Kernel, ...], tuple[Module, ...], int]:
    """The kernels, the modules they are in, and how many of them were compiled now.

    What the cache knows by its request is not even lowered; what is lowered to code that is there is not compiled.
    Without a compiler for the target the modules are empty: the kernels can be looked at.
    """
    cache = kernel_cache(settings)
    cache.refresh()
    asked = list(zip(subgraphs, schedules, strict=True))
    requests = [request_key(s.digest, schedule.to_json(), str(target)) for s, schedule in asked]
    keys = [cache.kernel_of(r) for r in requests]
    modules = {key: cache.find(key) for key in keys if key is not None}
    unknown = [n for n, key in enumerate(keys) if key is None or modules[key] is None]
    lowered, built = _build([asked[n] for n in unknown], target, cache) if unknown else ([], 0)
    for n, (key, module) in zip(unknown, lowered, strict=True):
        cache.remember(requests[n], key, about(*asked[n], target))
        keys[n], modules[key] = key, module
    kernels = tuple(Kernel(s, schedule, target, key or "") for (s, schedule), key in zip(asked, keys, strict=True))
    return kernels, tuple(m for m in (modules[k.key] for k in kernels) if m is not None), built


def usual_schedule(subgraph: Subgraph, target: Target, settings: config.Config) -> Schedule:
    """The default schedule of a subgraph, which is found once and remembered beside the kernels."""
    cache, key = kernel_cache(settings), usual_key(subgraph.digest, str(target))
    known = cache.schedule_of(key, schedule_from_json)
    if known is None:
        known = default_schedule(subgraph, target)
        cache.keep_schedule(key, known.to_json())
    return known


def _build(
    asked: Sequence[tuple[Subgraph, Schedule]], target: Target, cache: KernelCache
) -> tuple[list[tuple[str, Module]], int]:
    """Lower kernels, and compile those whose code the cache lacks into a few modules.

    The key of each and the module it is in, and how many were compiled. Modules are built by threads, as LLVM runs
    without the interpreter's lock, while this one lowers the next.
    """
    workers = available_cores()
    sizes = module_sizes(len(asked), workers)
    size = next(sizes, 0)
    keys: list[str] = []
    modules: dict[str, Module | None] = {}
    groups: dict[bool, list[tuple[str, Any]]] = {False: [], True: []}
    builds: list[tuple[dict[str, Code], Future[bytes]]] = []
    known, missing = 0, codegen.missing(target)
    with ThreadPoolExecutor(workers, "neoflow-build") as pool:

        def submit(group: list[tuple[str, Any]]) -> None:
            codes = {key: kernel.code for key, kernel in group}
            if missing is not None:
                modules.update((key, Module("", {key: code}, b"")) for key, code in codes.items())
            elif group:
                builds.append((codes, pool.submit(codegen.build, [kernel for _, kernel in group], target)))

        for subgraph, schedule in asked:
            lowered = codegen.lower(subgraph, schedule, target, "kernel")
            key = codegen.kernel_key(lowered, target)
            keys.append(key)
            tell("code", known + sum(len(codes) for codes, build in builds if build.done()), len(asked))
            if key in modules:
                continue
            modules[key] = cache.find(key)
            known += modules[key] is not None
            if modules[key] is None:
                group = groups[lowered.is_shared]  # those alone may be in one module
                group.append((key, lowered.named(kernel_symbol(key))))
                if len(group) >= size:
                    groups[lowered.is_shared] = []
                    submit(group)
                    size = next(sizes, size)
        for group in groups.values():
            submit(group)
        for codes, build in builds:
            modules.update(dict.fromkeys(codes, cache.publish(build.result(), codes)))
            known += len(codes)
            tell("code", known, len(asked))
    found = [(key, module) for key in keys if (module := modules[key]) is not None]
    return found, sum(len(codes) for codes, _ in builds)


def module_sizes(count: int, workers: int) -> Iterator[int]:
    """How many kernels the modules of a program have: few in the first, so that no worker waits long for one, and few
    in the last, so that all end together."""
    size, left = 1, count
    while left:
        size = min(left, max(2, min(2 * size, -(-left // (2 * workers)))))
        left -= size
        yield size


_libraries: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()
"""Loaded modules by device and by the hash of their content, as long as something uses them."""


def library_of(place: Device, module: Module) -> Library:
    """A module on a device, loaded once."""
    library = _libraries.get((id(place), module.name))
    if library is None:
        library = _libraries[id(place), module.name] = place.load(module.library)
    return library


def load(kernels: Sequence[Kernel], modules: Sequence[Module], place: Device, settings: config.Config) -> list[Loaded]:
    """Kernels, each in its module, on a device. Raises `CodegenError` for one that is to be checked and is wrong."""
    placed = list(zip(kernels, modules, strict=True))
    loaded = [load_kernel(module.codes[k.key], library_of(place, module)) for k, module in placed]
    if settings.check:
        for found in zip(kernels, modules, loaded, strict=True):
            _check(*found, place, settings)
    return loaded


def about(subgraph: Subgraph, schedule: Schedule, target: Target) -> dict[str, str]:
    """What a kernel is of, for who looks at the cache; `kernel_about` reads it."""
    return {"subgraph": subgraph.to_text(), "schedule": schedule.to_json(), "target": target.to_text()}


def kernel_about(key: str, said: Mapping[str, str]) -> Kernel:
    """The kernel of a key that was said to be of this. Raises `LookupError`, `NeoflowError`."""
    subgraph, target = Subgraph.from_text(said["subgraph"]), Target.from_text(said["target"])
    return Kernel(subgraph, schedule_from_json(said["schedule"]), target, key)


def check_again(kernel: Kernel, module: Module, settings: config.Config) -> None:
    """Compare a kernel with NumPy, whatever was said of it before; a wrong one leaves the cache.

    Raises `CodegenError` when it is wrong, `RuntimeFault` when this machine is none to run it on.
    """
    target, here = kernel.target, cpu_target()
    if target.device == "cpu" and (target.mcpu, target.vector_bytes) != (here.mcpu, here.vector_bytes):
        raise RuntimeFault(f"the code is for {target}, this machine is {here}")
    place = device(target)
    _check(
        kernel, module, load_kernel(module.codes[kernel.key], library_of(place, module)), place, settings, again=True
    )


def _check(
    kernel: Kernel, module: Module, loaded: Loaded, place: Device, settings: config.Config, again: bool = False
) -> None:
    """Compare a kernel with NumPy, unless that was done for this very code; a wrong one leaves the cache.

    Raises `CodegenError` with the kernel, the draw and the worst element.
    """
    from neoflow.codegen.verify import verifier_version, verify  # imported here: who does not ask for it need not wait

    cache, digest = kernel_cache(settings), kernel.subgraph.digest
    found = cache.certificate(kernel.key, digest, module)
    if not again and found is not None and found.get("verifier") == verifier_version():
        return

    def run(arrays: Sequence[Memory]) -> None:
        run_on(place, loaded, arrays, kernel.target.threads)

    try:
        certificate = verify(kernel.subgraph, run, f"kernel {kernel.symbol}")
    except CodegenError:
        cache.drop(kernel.key)
        raise
    cache.certify(kernel.key, digest, module, asdict(certificate))
