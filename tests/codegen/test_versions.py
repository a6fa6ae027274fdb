"""What trials are measured with: the files that are a template's own, and no others."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import grimp
import pytest

from neoflow.codegen.cpu.templates import LOWERINGS
from neoflow.codegen.gpu.templates import LOWERINGS as GPU_LOWERINGS
from neoflow.codegen.versions import OWN, SHARED, template_version
from neoflow.loops import TEMPLATES

ROOT = Path(__file__).parents[2]


def test_every_template_has_a_version_of_its_own():
    assert set(OWN) == set(TEMPLATES) == {*LOWERINGS, *GPU_LOWERINGS}
    assert len({template_version(name) for name in OWN}) == len(OWN)
    with pytest.raises(KeyError):
        template_version("poem")


def test_the_files_of_the_table_are_there():
    named = {file for files in OWN.values() for file in files}
    assert not named & set(SHARED)
    assert [file for file in (*named, *SHARED) if not (ROOT / "neoflow" / file).is_file()] == []


@pytest.mark.parametrize("name", OWN)
def test_what_a_template_and_its_lowering_import_is_its_own_or_shared(name):
    graph = grimp.build_graph("neoflow")
    device, file = ("gpu", name.removeprefix("gpu_")) if name.startswith("gpu_") else ("cpu", name)
    heads = {f"neoflow.codegen.{device}.{file}", TEMPLATES[name].knobs[0].range.__module__}
    heads |= {f"neoflow.loops.{'gpu.' if device == 'gpu' else ''}{file}"}
    found, left = set(), list(heads)
    while left:
        module = left.pop()
        file = path(module)
        if file not in found | set(SHARED) and file.startswith(("loops/", "codegen/cpu/", "codegen/gpu/")):
            found.add(file)
            left += graph.find_modules_directly_imported_by(module)
    assert found - set(OWN[name]) == set(), f"{name}: add to OWN, or to SHARED, in codegen/versions.py"


def path(module):
    name = module.removeprefix("neoflow.").replace(".", "/")
    return f"{name}.py" if (ROOT / "neoflow" / f"{name}.py").is_file() else f"{name}/__init__.py"


EDITS = (
    ("expr/affine.py", "\nEDITED = 1\n", set()),
    ("loops/nest.py", "\nEDITED = 1\n", set()),
    ("codegen/cpu/map.py", "\nEDITED = 1\n", {"map", "rows"}),
    ("loops/contraction.py", "\nEDITED = 1\n", {"contraction"}),
    ("codegen/gpu/tiled.py", "\nEDITED = 1\n", {"gpu_contraction", "gpu_tensor_core", "gpu_wgmma"}),
    ("codegen/versions.py", "\nEDITED = 1\n", set()),
)
PROGRAM = """
    import json, sys
    from pathlib import Path
    from neoflow.codegen import versions
    root, edits = Path(versions.__file__).parents[1], json.loads(sys.argv[1])
    def all_versions():
        versions.template_version.cache_clear()
        return {name: versions.template_version(name) for name in versions.OWN}
    before = all_versions()
    for file, text in edits:
        kept = (root / file).read_text()
        (root / file).write_text(kept + text)
        after = all_versions()
        print(json.dumps(sorted(name for name in before if after[name] != before[name])))
        (root / file).write_text(kept)
    assert all_versions() == before
"""


def test_an_edit_marks_the_templates_whose_file_it_is_in_and_no_others(tmp_path):
    """In a copy of the compiler."""
    shutil.copytree(ROOT / "neoflow", tmp_path / "neoflow", ignore=shutil.ignore_patterns("__pycache__"))
    edits = json.dumps([edit[:2] for edit in EDITS])
    command = [sys.executable, "-B", "-c", textwrap.dedent(PROGRAM), edits]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = [set(json.loads(line)) for line in done.stdout.splitlines()]
    assert found == [changed for _, _, changed in EDITS]
