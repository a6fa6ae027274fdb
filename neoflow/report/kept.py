"""What is kept on this machine, kernels with what they compute and the records of tuning; whether it is what it was."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neoflow.building import check_again, kernel_about
from neoflow.config import Config
from neoflow.errors import CodegenError, NeoflowError, RuntimeFault
from neoflow.runtime.cache import KernelCache
from neoflow.runtime.records import Module
from neoflow.tuning.kept import records_in

MIB = 1 << 20
DAY = 24 * 3600.0
RIGHT, UNKNOWN, ELSEWHERE = "right", "unknown", "elsewhere"
"""What becomes of a kernel that is compared again; else the sentence that says how it is wrong."""


@dataclass(frozen=True)
class Kept:
    """A kernel cache: its folder, its modules, their bytes and the limit, the kernels in them, those judged; trials of
    tuning, and rows of them that were damaged."""

    folder: str
    modules: int
    nbytes: int
    limit_bytes: int
    kernels: int
    certificates: int
    trials: int
    damaged: int

    def __str__(self) -> str:
        damaged = f" ({self.damaged} damaged rows set aside)" if self.damaged else ""
        return (
            f"{self.folder}: {self.kernels} kernels in {self.modules} modules, {self.nbytes / MIB:.1f} of at most "
            f"{self.limit_bytes / MIB:.0f} MiB; {self.certificates} compared with NumPy; records of {self.trials} "
            f"trials{damaged}"
        )


@dataclass(frozen=True)
class KernelRow:
    """A kernel that is kept: its key, its module, that one's bytes and how many kernels are in it, seconds since it was
    used. What it is of, as text, where that is known. is_judged: compared with NumPy."""

    key: str
    module: str
    module_bytes: int
    module_kernels: int
    unused_seconds: float
    is_judged: bool
    subgraph: str | None
    schedule: str | None
    target: str | None

    def __str__(self) -> str:
        age = f"{self.unused_seconds / DAY:.0f} days" if self.unused_seconds > DAY else "today"
        judged = "compared with NumPy" if self.is_judged else "not compared"
        head = f"{self.key[:16]}  {age:>9}  {self.module_bytes} bytes of {self.module_kernels} kernels  {judged}"
        if self.subgraph is None:
            return f"{head}\n    of what, is not known"
        lines = self.subgraph.strip().splitlines()[1:]
        return "\n".join([head, *(f"    {line}" for line in lines), f"    {self.schedule}"])


@dataclass(frozen=True)
class Verified:
    """What was read again. damaged: files and why, dropped. judged: kernels compared with NumPy again; wrong: those
    that disagreed, dropped. unknown: of a subgraph that is not known. elsewhere: for another machine. trials,
    damaged_rows: of the records of tuning."""

    files: int
    damaged: Mapping[str, str]
    judged: int
    wrong: Mapping[str, str]
    unknown: int
    elsewhere: int
    trials: int
    damaged_rows: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found."""
        return not (self.damaged or self.wrong or self.damaged_rows)

    def __str__(self) -> str:
        lines = [
            f"{self.files} files read, {len(self.damaged)} damaged; {self.judged} kernels compared with NumPy, "
            f"{len(self.wrong)} wrong, {self.unknown} of subgraphs that are not known, {self.elsewhere} for another "
            f"machine; records of {self.trials} trials, {self.damaged_rows} damaged rows set aside"
        ]
        lines += [f"{name} {why}; dropped" for name, why in self.damaged.items()]
        return "\n".join([*lines, *(f"{why}\ndropped" for why in self.wrong.values())])


def summary(cache: KernelCache, settings: Config) -> Kept:
    """What there is, in numbers."""
    files, records = cache.files(), records_in(settings.cache_dir).count()
    nbytes, counts = sum(file.nbytes for file in files["module"]), {kind: len(files[kind]) for kind in files}
    numbers = (counts["module"], nbytes, cache.limit_bytes, counts["kernel"], counts["certificate"])
    return Kept(str(cache.root), *numbers, records["trials"], records["damaged"])


def kernels(cache: KernelCache) -> Iterator[KernelRow]:
    """The kernels that are kept, the least recently used first."""
    files, about, now = cache.files(), _about(cache), time.time()
    sizes = {file.name.partition(".")[0]: file.nbytes for file in files["module"]}
    judged = {file.name.partition("-")[0] for file in files["certificate"]}
    modules = [(file, str(said.get("module"))) for file, said in cache.said("kernel")]
    counts: dict[str, int] = {}
    for _, module in modules:
        counts[module] = counts.get(module, 0) + 1
    for file, module in modules:
        key = file.name.partition(".")[0]
        of = next(iter(about.get(key, ())), {})
        texts = [_text(of.get(name)) for name in ("subgraph", "schedule", "target")]
        unused = max(0.0, now - file.used)
        yield KernelRow(key, module, sizes.get(module, 0), counts[module], unused, key in judged, *texts)


def verify(cache: KernelCache, settings: Config, judge: bool = True) -> Verified:
    """Read every file again; compare every kernel with NumPy whose subgraph is known, unless `judge` is false."""
    files = sum(map(len, cache.files().values()))
    damaged = cache.verify()
    wrong: dict[str, str] = {}
    judged = unknown = elsewhere = 0
    about = _about(cache)
    for file, _ in cache.said("kernel") if judge else ():
        key = file.name.partition(".")[0]
        module = cache.find(key)
        if module is None:
            damaged.setdefault(file.name, "leads to no module")
            continue
        verdicts = [_judged(key, said, module, settings) for said in about.get(key, ())] or [UNKNOWN]
        why = next((v for v in verdicts if v not in (RIGHT, UNKNOWN, ELSEWHERE)), None)
        unknown, elsewhere = unknown + (UNKNOWN in verdicts), elsewhere + (ELSEWHERE in verdicts)
        judged += why is not None or RIGHT in verdicts
        if why is not None:
            wrong[key] = why
    records = records_in(settings.cache_dir)
    for _ in records.entries():  # every row is read, and set aside where it is damaged
        pass
    rows = records.count()
    return Verified(files, damaged, judged, wrong, unknown, elsewhere, rows["trials"], rows["damaged"])


def _judged(key: str, said: Mapping[str, Any], module: Module, settings: Config) -> str:
    """What became of a kernel that was compared with the subgraph it was said to be of."""
    try:
        kernel = kernel_about(key, said)
    except (LookupError, TypeError, NeoflowError):
        return UNKNOWN
    try:
        check_again(kernel, module, settings)
    except RuntimeFault:
        return ELSEWHERE
    except CodegenError as error:
        return error.message
    return RIGHT


def _about(cache: KernelCache) -> dict[str, list[dict[str, Any]]]:
    """By the key of a kernel, what it was said to be of: several subgraphs may come to the same code."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for _, said in cache.said("request"):
        if "subgraph" in said:
            found.setdefault(str(said.get("kernel")), {})[str(said["subgraph"])] = said
    return {key: list(each.values()) for key, each in found.items()}


def _text(said: object) -> str | None:
    return said if isinstance(said, str) else None
