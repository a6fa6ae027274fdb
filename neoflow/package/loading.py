"""`nf.load`: a package runs again, with no compiler and nothing of the language it was written in.

What takes long in a new process are imports, making the table of open files larger, and reading and hashing the
parameters: two threads do all but the first, while that goes on.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from neoflow.errors import PackageError
from neoflow.machine import cpu_features
from neoflow.package.manifest import Made, Manifest, read_manifest
from neoflow.package.values import Values, read_values
from neoflow.runtime.device.library import make_room

if TYPE_CHECKING:
    from neoflow.package.function import Package


class _Ahead:
    """The parameters of a package, read and checked by a thread."""

    def __init__(self, folder: str, manifest: Manifest):
        self._found: Values | PackageError = PackageError(f"{folder} was not read")
        self._thread = threading.Thread(target=self._read, args=(folder, manifest), daemon=True)
        self._thread.start()

    def _read(self, folder: str, manifest: Manifest) -> None:
        try:
            self._found = read_values(folder, manifest)
        except PackageError as error:
            self._found = error

    def wait(self) -> Values:
        """The parameters. Raises what reading them has raised."""
        self._thread.join()
        if isinstance(self._found, PackageError):
            raise self._found
        return self._found


def load(path: str | os.PathLike) -> Package:
    """The package in the folder `path`, ready to run: `package.step(x, labels)`.

    A package holds machine code: load those alone whose makers you trust. Checksums tell damage, not malice.
    Raises `PackageError` for what is no package, is damaged, has a newer format or is not for this machine.
    """
    folder = os.fsdecode(path)
    manifest = read_manifest(folder)
    threading.Thread(target=_make_room, daemon=True).start()
    parameters = _Ahead(folder, manifest)
    if manifest.target.kind == "cpu":
        _check_cpu(folder, manifest.target)
    from neoflow.package.assembling import assemble  # imported here: the thread reads meanwhile

    return assemble(folder, manifest, parameters.wait)


def _make_room() -> None:
    with suppress(OSError):  # where it fails loading a library fails alike, and says so
        make_room()


def _check_cpu(folder: str, made: Made) -> None:
    there = cpu_features()
    missing = [f for f in made.features if f not in there]
    if missing:
        raise PackageError(
            f"{folder} is for a CPU like {made.mcpu}, and this machine's lacks {', '.join(missing)}: build it here"
        )
