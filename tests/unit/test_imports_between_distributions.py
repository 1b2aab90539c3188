"""Tests of which modules of another distribution a distribution imports.

`[tool.trainjob.imports]` in pyproject.toml lists them. A new import of a module that is not public needs an entry
there, so that the list grows by decision only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).resolve().parents[2]
RULES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["trainjob"]["imports"]
SOURCES = {
    folder.name: folder
    for folder in (*ROOT.glob("*/src/trainjob*"), *ROOT.glob("*/*/src/trainjob*"))
    if (folder / "__init__.py").exists() and "examples" not in folder.parts
}


def imports(text: str) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import; the name is empty for `import module`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def foreign_imports(package: str) -> Iterator[tuple[Path, str, str]]:
    """Yield file, module and name of the imports from the other distributions."""
    for path in sorted(SOURCES[package].rglob("*.py")):
        for module, name in imports(path.read_text("utf-8")):
            if (root := module.partition(".")[0]) in SOURCES and root != package:
                yield path.relative_to(ROOT), module, name


@cache
def public_names(module: str) -> frozenset[str]:
    """Return `__all__` of a module, and `__version__`."""
    path = SOURCES[module.partition(".")[0]].joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value)) | {"__version__"}
    raise AssertionError(f"{module} has no __all__")


def internal_module(module: str, name: str) -> str:
    """Return the module that an import needs and that is not public; empty if the name is."""
    if module not in RULES["public"]:
        return module
    inner = f"{module}.{name}"
    return "" if not name or inner in RULES["public"] or name in public_names(module) else inner


def test_every_distribution_is_known():
    assert sorted(SOURCES) == [
        "trainjob",
        "trainjob_airflow",
        "trainjob_demo",
        "trainjob_kfp",
        "trainjob_local",
        "trainjob_migrate",
    ]


@pytest.mark.parametrize("package", sorted(SOURCES))
def test_no_private_name_is_imported(package):
    """A name or module with `_` belongs to its distribution."""
    private = [
        f"{path}: {module}.{name}"
        for path, module, name in foreign_imports(package)
        if any(part.startswith("_") and part != "__version__" for part in (*module.split("."), name))
    ]
    assert private == []


@pytest.mark.parametrize("package", sorted(SOURCES))
def test_internal_modules_are_listed(package):
    """A distribution imports public names of the others, and the internal modules of its list, all of which it uses."""
    used = {internal_module(module, name) for _, module, name in foreign_imports(package)} - {""}
    assert sorted(used) == RULES["internal"].get(package, [])
