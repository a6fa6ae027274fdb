"""What is kept of tuning between processes, beside the kernels it is of."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from neoflow.codegen.versions import template_version
from neoflow.runtime.folder import Folder
from neoflow.tune.records import FILE, Records


@lru_cache(maxsize=4)
def records_in(folder: Path) -> Records:
    """The records of tuning in the folder of a kernel cache, which they share: nobody else may write to it.

    Raises `ConfigError`, when they are first asked, where others can.
    """
    return Records(folder / FILE, template_version, Folder)
