"""What the runtime asks of the arrays of a program: of tensors, and of what a package says of them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

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


class Lying(Protocol):
    """The order in which a program has a parameter in memory, other than as users know it: hashable, a bijection."""

    def shape(self, plain: tuple[int, ...]) -> tuple[int, ...]: ...

    def pack(self, plain: np.ndarray) -> np.ndarray: ...

    def unpack(self, packed: np.ndarray) -> np.ndarray: ...
