"""What the speed of a template's kernels follows from: its own files, in `loops` and in the code generator of a device.

A trial is of a template and its version. An edit of any other file keeps what was measured; one of a file here marks
the trials of the templates that own it as to be measured again. Every byte of it counts, as in the keys of kernels:
telling programs from their comments takes longer than asking for a schedule.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).parents[1]

_TILED = ("loops/sides.py", "loops/joined.py", "loops/tile.py", "loops/riding.py")
_CONTRACTION = tuple(
    f"codegen/cpu/{n}.py"
    for n in (
        "addresses",
        "beside",
        "blocks",
        "contraction",
        "operands",
        "packing",
        "parts",
        "passes",
        "results",
        "riding",
        "tiling",
        "transpose",
        "turned",
    )
)
_MAP = (*(f"loops/{n}.py" for n in ("map", "residues", "cuts")), *(f"codegen/cpu/{n}.py" for n in ("map", "transpose")))
_REDUCTION = (
    *(f"loops/{n}.py" for n in ("reduction", "windows", "sides", "joined")),
    *(f"codegen/cpu/{n}.py" for n in ("reduction", "tiling", "parts")),
)
_GPU_TILED = (
    *_TILED,
    *(f"loops/gpu/{n}.py" for n in ("blocks", "boxes", "choose", "family", "moves", "operands", "tile")),
    *(f"codegen/gpu/{n}.py" for n in ("blocks", "bulk", "layouts", "operands", "pipeline", "results", "tiled")),
)
_GPU_TEAM = tuple(f"codegen/gpu/{n}.py" for n in ("teams", "terms"))
_GPU_REDUCTION = (
    *("loops/reduction.py", "loops/windows.py", "loops/sides.py", "loops/gpu/reduction.py", "loops/gpu/blocks.py"),
    "codegen/gpu/reduction.py",
)

OWN: dict[str, tuple[str, ...]] = {
    "contraction": (
        *(f"loops/{n}.py" for n in ("contraction", "operands", "point_blocks", "tasks")),
        *_TILED,
        *_CONTRACTION,
    ),
    "reduction": _REDUCTION,
    "map": _MAP,
    "scatter": ("loops/scatter.py", "codegen/cpu/scatter.py"),
    "rows": ("loops/rows.py", "loops/row_nests.py", "codegen/cpu/rows.py", *_MAP, *_REDUCTION),
    "gpu_contraction": (*_GPU_TILED, "loops/gpu/contraction.py", "codegen/gpu/contraction.py"),
    "gpu_tensor_core": (
        *_GPU_TILED,
        *(f"loops/gpu/{n}.py" for n in ("fragments", "narrow", "tensor_core")),
        *("codegen/gpu/matrices.py", "codegen/gpu/tensor_core.py"),
    ),
    "gpu_wgmma": (
        *_GPU_TILED,
        *(f"loops/gpu/{n}.py" for n in ("fragments", "narrow", "tensor_core", "wgmma")),
        "codegen/gpu/wgmma.py",
    ),
    "gpu_reduction": (*_GPU_REDUCTION, *_GPU_TEAM),
    "gpu_map": (
        *("loops/map.py", "loops/residues.py", "loops/cuts.py"),
        *("loops/gpu/map.py", "loops/gpu/turn.py", "loops/gpu/blocks.py"),
        *("codegen/gpu/map.py", "codegen/gpu/turn.py", *_GPU_TEAM),
    ),
    "gpu_scatter": (
        *("loops/scatter.py", "loops/gpu/scatter.py", "loops/gpu/blocks.py"),
        *("codegen/gpu/scatter.py", "codegen/gpu/atomics.py"),
    ),
    "gpu_rows": (
        *(f"loops/{n}.py" for n in ("rows", "row_nests", "map", "reduction", "windows", "sides")),
        *("loops/gpu/rows.py", "loops/gpu/blocks.py"),
        *("codegen/gpu/rows.py", *_GPU_TEAM),
    ),
}
"""The files of each template: knobs, ranges, defaults, and how it is lowered. `rows` lowers its nests by two others."""

SHARED = (
    *(f"loops/{n}.py" for n in ("__init__", "costs", "knob", "nest", "problem", "schedule", "template")),
    *("loops/features.py", "loops/space.py", "loops/gpu/__init__.py", "loops/gpu/limits.py", "loops/gpu/occupancy.py"),
    *("codegen/__init__.py", "codegen/keys.py", "codegen/sizes.py", "codegen/cpu/__init__.py", "codegen/cpu/entry.py"),
    *("codegen/gpu/__init__.py", "codegen/gpu/grid.py", "codegen/gpu/words.py"),
)
"""What they use beside, and no template owns: an edit here keeps what was measured."""


@lru_cache(maxsize=64)
def template_version(template: str) -> str:
    """Changes when the template's own files do, or TVM, which makes code of what they say.

    Raises `KeyError` for a name that is no template's.
    """
    found = hashlib.sha256(f"{template} {version('apache-tvm')}".encode())
    for name in sorted(set(OWN[template])):
        found.update((_ROOT / name).read_bytes())
    return found.hexdigest()[:16]
