"""Pages that mkdocs gets from elsewhere: the reference from docstrings, the start page and others from the root.

A hook of mkdocs (`make docs`). Nothing public is left out: a name that no page takes is an error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import neoflow as nf
from neoflow import data, nn
from neoflow.expr.notation import expr
from neoflow.nn import functional, init, optim

ROOT = Path(__file__).parents[1]
COPIES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results.md",
}
TRAINING = ("Trainer", "compile", "get_value", "set_value", "load", "load_parameters", "save_parameters")
PAGES = {"nn", "optim", "tune", "__version__"}
"""Public names that are modules, with pages of their own or not there yet."""


def names_of(module: ModuleType) -> list[str]:
    """Public names of a module, without other modules."""
    return [
        n for n in module.__all__ if n not in PAGES and (callable(v := getattr(module, n)) or not inspect.ismodule(v))
    ]


def signature(name: str, value: Any) -> str:
    """How it is called, or its value."""
    if not callable(value):
        return f"{name} = {value!r}"
    try:
        shown = str(inspect.signature(value))
    except (TypeError, ValueError):
        return name
    return f"{name}{re.sub(r' at 0x[0-9a-f]+', '', shown)}"


def entry(name: str, value: Any, level: int = 2) -> Iterator[str]:
    """A heading, the signature and the docstring; of a class its public methods too."""
    yield f"{'#' * level} `{name}`\n\n```python\n{signature(name, value)}\n```\n"
    own = inspect.getdoc(value) if not isinstance(value, (int, float, str)) else None
    yield f"{own or ''}\n"
    if inspect.isclass(value) and not issubclass(value, BaseException):
        for method, function in sorted(vars(value).items()):
            if not method.startswith("_") and callable(function) and inspect.getdoc(function):
                yield from entry(f"{name}.{method}", function, level + 1)


def section(title: str, prefix: str, module: ModuleType, names: list[str]) -> str:
    """A page of entries."""
    lines = [f"# {title}\n", f"{inspect.getdoc(module) or ''}\n"]
    for name in sorted(names, key=str.lower):
        value = getattr(module, name)
        lines += entry(f"{prefix}{name}", expr if name == "expr" else value)  # nf.expr is a package that is called
    return "\n".join(lines)


def references() -> dict[str, str]:
    """Every page of the reference by its place."""
    public = names_of(nf)
    errors = [n for n in public if inspect.isclass(getattr(nf, n)) and issubclass(getattr(nf, n), BaseException)]
    language = [n for n in public if n not in errors and n not in TRAINING]
    layers = section("Layers", "nf.nn.", nn, names_of(nn))
    values = section("Initial values", "nf.nn.init.", init, names_of(init)).replace("# ", "## ", 1)
    compiling = section("Compiling and training", "nf.", nf, list(TRAINING))
    batches = section("Data", "nf.data.", data, names_of(data)).replace("# ", "## ", 1)
    return {
        "reference/language.md": section("Language", "nf.", nf, language),
        "reference/functional.md": section("Functions of networks", "F.", functional, names_of(functional)),
        "reference/layers.md": f"{layers}\n{values}",
        "reference/optimizers.md": section("Optimizers", "nf.optim.", optim, names_of(optim)),
        "reference/training.md": f"{compiling}\n{batches}",
        "reference/errors.md": section("Errors", "nf.", nf, errors),
    }


def copied(path: str) -> str:
    """A file of the project with its links turned to the site's pages."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for source, page in COPIES.items():
        text = text.replace(f"]({source})", f"]({page})")
    return text.replace("](docs/", "](")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs: the files of `docs/`, with those made here."""
    for path, text in {**references(), **{page: copied(path) for path, page in COPIES.items()}}.items():
        files.append(File.generated(config, path, content=text))
    return files
