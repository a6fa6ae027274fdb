"""g++: the machine itself once, each kernel's source once; kept in a folder for temporary files, by content."""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.emulator.faults import NoCompiler, SourceError

HERE = Path(__file__).parent
_COMMON = [
    "-std=gnu++17",
    "-fPIC",
    "-w",
    *("-mavx2", "-mfma", "-mf16c"),
    *("-ffp-contract=off", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing"),
]
_CHECKED = [
    *("-O1", "-g1"),
    *(
        "-fsanitize=thread,alignment,bounds-strict,integer-divide-by-zero",
        "--param",
        "tsan-instrument-func-entry-exit=0",
    ),
    *("-fno-if-conversion", "-fno-if-conversion2", "-fno-tree-loop-im", "-fno-tree-vectorize"),
]
"""With a call before each access; nothing of g++ that reads what the source does not read there."""
_PLAIN = ["-O2", "-g1"]
_RUNTIME = ["-O2", "-g1"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        raise SourceError(f"{' '.join(command)}\n{done.stderr[:4000]}")


@cache
def _folder() -> Path:
    path = Path(tempfile.gettempdir()) / f"neoflow-emulator-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise SourceError(f"{path} is not this user's alone")
    return path


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@cache
def _machine_key() -> str:
    """Raises `NoCompiler`."""
    if shutil.which("g++") is None:
        raise NoCompiler("the emulator, which runs kernels for GPUs, needs g++: apt install g++")
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    files = [p for p in sorted(HERE.rglob("*")) if p.suffix in {".h", ".cpp"} or p.parent.name == "std"]
    return _hash(
        version, *_COMMON, *_CHECKED, *_PLAIN, *_RUNTIME, *(f"{p.name}\0{p.read_text()}" for p in files if p.is_file())
    )


def _once(target: Path, make) -> Path:
    """`target`, made under another name first: no process meets half of it."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            make(made)
            os.replace(made, target)
    return target


@cache
def machine() -> Path:
    """The library of the machine: `runtime/`."""
    sources = [str(p) for p in sorted((HERE / "runtime").glob("*.cpp"))]
    target = _folder() / _machine_key() / "libemulator.so"
    return _once(target, lambda made: _run(["g++", *_COMMON, *_RUNTIME, "-shared", *sources, "-o", str(made), "-ldl"]))


@cache
def _header(checked: bool) -> Path:
    """The folder of the compiled `device.h`."""
    folder = _folder() / _machine_key() / ("checked" if checked else "plain")
    flags = [*_COMMON, *(_CHECKED if checked else _PLAIN), "-x", "c++-header"]
    _once(
        folder / "device.h.gch", lambda made: _run(["g++", *flags, str(HERE / "include" / "device.h"), "-o", str(made)])
    )
    return folder


def library(text: str, checked: bool) -> Path:
    """Of a rewritten source."""
    target = _folder() / _machine_key() / ("checked" if checked else "plain") / f"{_hash(text)}.so"

    def make(made: Path) -> None:
        source, compiled = made.with_suffix(".cpp"), made.with_suffix(".o")
        source.write_text(text)
        includes = ["-I", str(_header(checked)), "-I", str(HERE / "include"), "-include", "device.h"]
        _run(["g++", *_COMMON, *(_CHECKED if checked else _PLAIN), *includes, "-c", str(source), "-o", str(compiled)])
        _run(["ld", "-shared", str(compiled), str(machine()), "-o", str(made)])

    return _once(target, make)


def line_of(path: Path, pc: int) -> int:
    """The line of the kernel's source that called from there; 0 where none did."""
    command = ["addr2line", "-i", "-e", str(path), hex(pc - 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        file, _, number = line.partition(" ")[0].rpartition(":")
        if file.endswith(".cpp") and number.isdigit():
            return int(number)
    return 0
