"""What the runtime asks of the arrays of a program: of tensors, and of what a package says of them."""

from __future__ import annotations

from typing import Any, Protocol

from neoflow.errors import Location


class Declared(Protocol):
    """An array by its name; where: the user's line that it comes from."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def where(self) -> Location | None: ...


class Lasting(Declared, Protocol):
    """A parameter: it has a value between calls; init: its first one, see `nf.parameter`."""

    @property
    def init(self) -> Any: ...
