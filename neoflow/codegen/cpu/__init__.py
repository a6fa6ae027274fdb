"""Kernels for a CPU: the templates' loop nests, compilation by LLVM, and the link to a shared library."""

from neoflow.codegen.cpu.commands import (
    ARGUMENTS,
    DATA,
    FILL,
    IGNORED,
    IS_OTHER,
    ITSELF,
    OWN,
    CFunction,
    Command,
    Commands,
    Word,
    build_commands,
)
from neoflow.codegen.cpu.compile import build, features, kernel_key, source
from neoflow.codegen.cpu.kernel import Lowered, lower
from neoflow.codegen.cpu.package import FIRST_FUNCTION, Image, Runs, build_package
from neoflow.codegen.cpu.peak import fma_kernel
from neoflow.codegen.cpu.team import build_team, team_key

__all__ = [
    "ARGUMENTS",
    "DATA",
    "FILL",
    "FIRST_FUNCTION",
    "IGNORED",
    "IS_OTHER",
    "ITSELF",
    "OWN",
    "CFunction",
    "Command",
    "Commands",
    "Image",
    "Lowered",
    "Runs",
    "Word",
    "build",
    "build_commands",
    "build_package",
    "build_team",
    "features",
    "fma_kernel",
    "kernel_key",
    "lower",
    "source",
    "team_key",
]
