"""CUDA C++ source: its kernels, and its shared variables declared as the machine has them."""

import re
from dataclasses import dataclass
from itertools import count

from tests.emulator.faults import SourceError

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_KERNEL = re.compile(
    r'\bextern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\(\s*(\d+)[^()]*\)\s*)?(\w+)\s*\(([^()]*)\)\s*([{;])'
)
_SHARED = re.compile(
    r"\b(extern\s+)?__shared__\s+(?:(?:__align__|alignas)\s*\(\s*\d+\s*\)\s*)?((?:volatile\s+)?[A-Za-z_][\w:]*(?:<[^<>;=]*>)?"
    r"(?:\s+(?:char|short|int|long|double))*)\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?(\w+)\s*((?:\[[^\][;]*\]\s*)*);"
)


@dataclass(frozen=True)
class Signature:
    """Of a kernel: the C types and names of what its parameters point to, and how many threads a block may have."""

    types: tuple[str, ...]
    names: tuple[str, ...]
    threads: int


def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0][0] == "/" else m[0], text)


def _parameter(text: str, kernel: str) -> tuple[str, str]:
    plain = " ".join(re.sub(r"\b(?:const|__restrict__|__restrict|volatile)\b", " ", text).split())
    match = re.fullmatch(r"([\w: ]+?) ?\* ?(\w+)", plain)
    if not match:
        raise SourceError(f"{kernel}: a parameter that is no pointer: {text.strip()!r}")
    return match[1], match[2]


def signatures(text: str) -> dict[str, Signature]:
    """The kernels of a source, by name."""
    plain, found = _without_comments(text), {}
    matches = list(_KERNEL.finditer(plain))
    if len(matches) != len(re.findall(r"\b__global__\b", plain)):
        raise SourceError('a kernel that does not read `extern "C" __global__ void NAME(...)`')
    for match in matches:
        if match[4] == "{":
            pairs = [_parameter(p, match[2]) for p in match[3].split(",") if p.strip()]
            types, names = tuple(t for t, _ in pairs), tuple(n for _, n in pairs)
            found[match[2]] = Signature(types, names, int(match[1] or 1024))
    return found


def rewrite(text: str) -> str:
    """The source as g++ compiles it, line by line: shared variables lie in windows of the machine's memory."""
    numbers = count(2)  # 1: dynamic shared memory
    plain = _without_comments(text)

    def declare(match: re.Match[str]) -> str:
        extern, kind, name, extents = match.groups()
        lines = "\n" * match[0].count("\n")
        if extern:
            return f"EMU_DYNAMIC({kind}, {name});{lines}"
        return f"EMU_SHARED({next(numbers)}, EMU_TYPE({kind}), {name}, {extents.strip()});{lines}"

    found = len(_SHARED.findall(plain))
    if found != len(re.findall(r"\b__shared__\b", plain)):
        raise SourceError("a __shared__ variable that does not read `[extern] __shared__ TYPE NAME[EXTENTS];`")
    if found > 4000:
        raise SourceError("more than 4000 shared variables")
    return _of_warpgroups(plain) + _SHARED.sub(declare, plain) + _VARIABLES


def _of_warpgroups(text: str) -> str:
    """The instructions of warpgroups that a source calls, before its first line: their names say what they do."""
    found = []
    for name in sorted(set(_WARPGROUP.findall(text))):
        _, _, *parts = name.split("_")
        if parts[0] in ("fence", "wait"):
            groups = parts[2] if parts[0] == "wait" else ""
            found.append(f"template <class... D> EMU_INLINE void {name}(D...) {{ emu_wgmma_{parts[0]}({groups}); }}")
            continue
        n, dtype, turned = parts
        call = f"emu_wgmma(sums, {n[1:]}, a, b, ELEMENT_{dtype.upper()}, {turned[0]}, {turned[1]});"
        given = "unsigned long long a, unsigned long long b, D... d"
        body = f"float* sums[] = {{d...}}; {call}"
        found.append(f"template <class... D> EMU_INLINE void {name}({given}) {{ {body} }}")
    return "\n".join(['#line 1 "warpgroups.h"', *found, '#line 1 "kernel.cpp"\n']) if found else ""


_WARPGROUP = re.compile(r"nf_wgmma_(?:fence_n\d+|wait_n\d+_\d|n\d+_\w+_\d\d)")


_VARIABLES = """
extern SharedVariable __start_emu_shared_variables[] __attribute__((weak, visibility("hidden")));
extern SharedVariable __stop_emu_shared_variables[] __attribute__((weak, visibility("hidden")));
extern "C" __attribute__((no_sanitize("thread", "undefined"))) SharedVariable* emu_variables(unsigned long* count) {
    *count = __stop_emu_shared_variables - __start_emu_shared_variables;
    return __start_emu_shared_variables;
}
"""
