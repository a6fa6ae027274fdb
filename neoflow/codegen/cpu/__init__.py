"""Kernels for a CPU: the templates' loop nests, compilation by LLVM, and the link to a shared library."""

from neoflow.codegen.cpu.compile import build, kernel_key, source
from neoflow.codegen.cpu.kernel import Lowered, lower
from neoflow.codegen.cpu.peak import fma_kernel
from neoflow.codegen.cpu.team import build_team, team_key

__all__ = ["Lowered", "build", "build_team", "fma_kernel", "kernel_key", "lower", "source", "team_key"]
