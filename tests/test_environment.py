"""What the tests need is installed where they run: nothing is skipped there without anybody noticing."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN = {"neoflow", "tests", "models", "benchmarks"}
NOT_IN_CI = {"jax"}
"""Peers of benchmarks alone."""


def extras():
    """Names of distributions by extra; the dependencies under ""."""
    text = (ROOT / "pyproject.toml").read_text()
    found = {"": re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)[1]}
    optional = re.search(r"^\[project.optional-dependencies\]\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)[1]
    found |= dict(re.findall(r"^(\w+) = \[(.*)\]", optional, re.MULTILINE))
    return {name: {plain(d) for d in re.findall(r'"([\w-]+)', value)} for name, value in found.items()}


def plain(distribution):
    return distribution.lower().replace("_", "-")


def installed():
    """Distributions that the continuous integration and the README install."""
    commands = [(ROOT / ".ci" / "run").read_text(), (ROOT / "README.md").read_text()]
    given = [re.search(r"-e '\.\[([\w,]*dev[\w,]*)\]'", text)[1].split(",") for text in commands]
    assert given[0] == given[1]
    return set().union(*(extras()[name] for name in ("", *given[0])))


def imported(tree):
    """Top-level names of the modules a file imports, wherever it does; and those it may do without."""
    needed, skipped = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            needed |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            needed.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            skipped.add(node.args[0].value.partition(".")[0])
    return needed, skipped


def test_every_module_that_tests_import_is_installed_for_them():
    distributions, there = packages_distributions(), installed()
    missing, skippable = {}, set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        needed, skipped = imported(ast.parse(path.read_text()))
        skippable |= skipped
        for module in (needed | skipped) - OWN - set(sys.stdlib_module_names) - NOT_IN_CI:
            if not {plain(d) for d in distributions.get(module, [module])} & there:
                missing[module] = path.name
    assert missing == {}
    assert skippable - NOT_IN_CI <= {"onnx", "onnxruntime", "torch"}  # all else is imported without ado


def test_no_test_is_switched_off():
    """But where a program of the system is missing, which pip does not install."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path == Path(__file__):
            continue
        off = re.findall(r".*(?:mark\.(?:skip|skipif|xfail)\b|pytest\.skip\(|unittest\.skip).*", path.read_text())
        assert [line for line in off if "skipif(shutil.which(" not in line] == [], path
