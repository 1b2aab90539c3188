"""Check that each public name has an entry on a reference page of the built site.

Usage: check_reference.py objects.inv

The public names are those of `__all__` in the public packages. They are read without importing the packages, because
the environment of the site has none of their dependencies.
"""

from __future__ import annotations

import ast
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "core/src": (
        "trainjob",
        "trainjob.checkpoint",
        "trainjob.client",
        "trainjob.errors",
        "trainjob.frameworks.llamafactory",
        "trainjob.frameworks.unsloth",
        "trainjob.frameworks.torchtune",
        "trainjob.frameworks.trl",
        "trainjob.lifecycle",
        "trainjob.local",
        "trainjob.manifest",
        "trainjob.retention",
        "trainjob.spec",
        "trainjob.status",
    ),
    "laptop/src": ("trainjob_local", "trainjob_local.pytest_plugin"),
    "migrate/src": ("trainjob_migrate",),
    "providers/airflow/src": ("trainjob_airflow",),
    "components/kfp/src": ("trainjob_kfp",),
}
# Names that no __all__ has.
OTHER_NAMES = {
    "trainjob.frameworks.transformers.callback.CheckpointCallback",
    "trainjob.frameworks.transformers.start.find_checkpoint_to_resume",
    "trainjob.packing.read_packed_code",
    "trainjob_airflow.decorators.trainjob.trainjob_task",
    "trainjob_airflow.operators.base.StepOperator",
    "trainjob_kfp.source",
}


def list_public_names() -> set[str]:
    """Return the public names with their packages."""
    found = set(OTHER_NAMES)
    for folder, packages in PACKAGES.items():
        for package in packages:
            base = ROOT / folder / package.replace(".", "/")
            path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            found |= {f"{package}.{name}" for name in read_public_names(path.read_text("utf-8"))}
    return found


def read_public_names(source: str) -> list[str]:
    """Return the names in `__all__` of a module's source.

    Raises:
        ValueError: the module has no `__all__`.
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError("the module has no __all__")


def read_inventory(content: bytes) -> set[str]:
    """Return the names in an inventory of Sphinx: four lines, and compressed entries."""
    entries = content.split(b"\n", 4)[4]
    return {line.split()[0] for line in zlib.decompress(entries).decode().splitlines()}


def main() -> int:
    """Print the public names without an entry, and return the exit status."""
    missing = list_public_names() - read_inventory(Path(sys.argv[1]).read_bytes())
    for name in sorted(missing):
        print(f"no page of docs/reference describes {name}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
