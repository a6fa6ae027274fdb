"""Where neoflow ends and the user's code begins: an error crosses it with the user's frames alone, in a few lines.

Between the line that the user wrote and the sentence that says what is wrong lie thirty frames of this package; they
help whoever works on it (NEOFLOW_TRACEBACK=full shows them) and nobody else. What fails inside because of an argument
that is not what the function takes becomes an `ArgumentError` that names it; what fails for no such reason is a fault
of neoflow, and keeps every frame.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, cast

from neoflow import config
from neoflow.arguments import doubtful, misfit
from neoflow.caller import caller
from neoflow.errors import ArgumentError, NeoflowError

F = TypeVar("F", bound=Callable[..., Any])
_ROOT = os.path.dirname(os.path.abspath(__file__)) + os.sep
_COMPILED = ".pyx"
"""The end of the file, of no place, that a frame of NumPy's compiled parts is said to be of."""
_SPECIAL = ("__init__", "__call__")
"""Methods with underscores that are public."""
_EAGER = ("__init__",)
"""Those whose arguments are looked at before: what an object is made of is used later, elsewhere."""
_INFIX = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
OPERATORS = tuple(
    f"__{name}__"
    for name in (
        *_INFIX,
        *(f"r{name}" for name in _INFIX),
        *("neg", "invert", "abs", "lt", "le", "gt", "ge", "eq", "ne"),
        *("bool", "getitem", "iter", "contains", "index", "array", "array_ufunc", "array_function"),
    )
)
"""Methods of what an expression is made of."""


def public(function: F) -> F:
    """`function` as a user calls it: what it raises is raised again with the user's frames only.

    An `OSError` is about a file of the user's, and says which.
    """

    is_eager = function.__name__ in _EAGER

    @wraps(function)
    def at_boundary(*args: Any, **named: Any) -> Any:
        try:
            if is_eager and (found := misfit(function, args, named)) is not None:
                raise _refusal(function, found)
            return function(*args, **named)
        except Exception as error:
            if config.shows_full_tracebacks():
                raise
            known = _explained(error, function, args, named)
            if not isinstance(known, (NeoflowError, OSError)) and not _is_users(error):
                raise
            try:
                raise known
            except Exception:
                if not _is_users(error):
                    known.__cause__, known.__suppress_context__ = None, True
                known.__traceback__ = users_frames(error.__traceback__)
                raise  # which, from Python 3.11 on, adds no frame of this function

    return cast(F, at_boundary)


def publish(names: dict[str, Any], public_names: Iterable[str]) -> None:
    """Put the functions among the public names of a module, and the methods of the classes, behind the boundary."""
    for name in public_names:
        found = names.get(name)
        if inspect.isfunction(found) and not hasattr(found, "__wrapped__"):
            names[name] = public(found)
        elif inspect.isclass(found) and not issubclass(found, BaseException):
            for cls in found.__mro__:
                if cls.__module__.partition(".")[0] == "neoflow":
                    publish_methods(cls)


def publish_methods(cls: type, names: Iterable[str] | None = None) -> None:
    """Put methods that a class defines itself behind the boundary: its public ones, or those of these names."""
    for name, method in list(vars(cls).items()):
        is_wanted = name in names if names is not None else name in _SPECIAL or not name.startswith("_")
        function = getattr(method, "__func__", method)
        if is_wanted and inspect.isfunction(function) and not hasattr(function, "__wrapped__"):
            kind = type(method) if isinstance(method, (classmethod, staticmethod)) else lambda f: f
            setattr(cls, name, kind(public(function)))


def _explained(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> Exception:
    """The error that the user sees: a wrong argument by its name, where that is what went wrong."""
    if isinstance(error, NeoflowError) or _is_users(error):
        return error
    frames = error.__traceback__
    if isinstance(error, TypeError) and frames is not None and frames.tb_next is None:  # the call itself
        return ArgumentError(str(error).replace(".__init__()", "()"), caller())
    found = misfit(function, args, named)
    if found is None and isinstance(error, (AttributeError, TypeError)):
        found = doubtful(function, args, named)
    return error if found is None else _refusal(function, found)


def _refusal(function: Callable[..., Any], found: str) -> ArgumentError:
    name = function.__qualname__.removesuffix(".__init__").removesuffix(".__call__")
    return ArgumentError(f"{name}: {found}", caller())


# ------------------------------------------------------------------------------------------------------------- frames


def users_frames(frames: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of neoflow, and without those of libraries that neoflow calls."""
    kept: TracebackType | None = None
    for one in reversed(list(_users(frames))):
        kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def _is_users(error: Exception) -> bool:
    """Whether an error comes from a function that the user has given to neoflow."""
    last = None
    for one in _each(error.__traceback__):
        last = one
    users = list(_users(error.__traceback__))
    return bool(users) and users[-1] is last


def _users(frames: TracebackType | None) -> Iterator[TracebackType]:
    is_inside, libraries = True, tuple(_libraries())
    for one in _each(frames):
        file = one.tb_frame.f_code.co_filename
        is_library = file.startswith((*libraries, "<frozen")) or file.endswith(_COMPILED)
        is_inside = file.startswith(_ROOT) or (is_inside and is_library)
        if not is_inside:
            yield one


def _libraries() -> Iterator[str]:
    """Where libraries lie."""
    import sysconfig  # imported here: most programs have no error

    return (sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _each(frames: TracebackType | None) -> Iterator[TracebackType]:
    while frames is not None:
        yield frames
        frames = frames.tb_next
