"""A package on the GPU of this machine: its modules as the driver takes them."""

from __future__ import annotations

from functools import partial

import numpy as np

from neoflow import dtype as dt
from neoflow.architectures import GPU_KINDS, gpu_target, runs_on
from neoflow.errors import ConfigError, PackageError
from neoflow.package.contents import CONSTANTS, Contents
from neoflow.package.function import Place
from neoflow.package.manifest import Made, Manifest, read_checked
from neoflow.runtime.device.cuda import this_gpu
from neoflow.runtime.transfer import OnDevice, needs


def place_on_gpu(folder: str, manifest: Manifest, contents: Contents) -> Place:
    """Raises `PackageError` where the package is for another GPU, `RuntimeFault` where there is none."""
    device = this_gpu()
    here = device.driver.gpu
    if not _fits(folder, manifest.target, here.architecture):
        raise PackageError(
            f"{folder} is for {manifest.target.mcpu}, and the GPU here, {here.name}, is {here.architecture}"
        )
    data = read_checked(folder, manifest, CONSTANTS)
    plans = [p.plan for p in contents.programs]
    largest = max(plans, key=lambda plan: plan.arena_bytes)
    device.require(needs(largest, sum(p.nbytes for p in contents.parameters), len(data)))
    constants = []
    for c in contents.constants:
        kind = dt.NUMPY[c.dtype]
        if c.offset + int(np.prod(c.shape)) * kind.itemsize > len(data):
            raise PackageError(f"{folder} is damaged: a constant lies outside of {CONSTANTS}")
        constants.append(device.allocate(c.shape, c.dtype))
        device.copy(constants[-1], np.frombuffer(data, kind, int(np.prod(c.shape)), c.offset).reshape(c.shape))
    libraries = [device.load(read_checked(folder, manifest, name)) for name in contents.libraries]
    return Place(device, libraries, constants, partial(OnDevice, device=device))


def _fits(folder: str, made: Made, architecture: str) -> bool:
    try:
        if made.kind not in GPU_KINDS:
            raise ConfigError(f"there is no target {made.kind!r}")
        return runs_on(gpu_target(made.kind, made.mcpu), architecture)
    except ConfigError as error:
        raise PackageError(f"{folder} is for a target that is not known: {error.message}") from None
