"""The compiled YAML of the components and of the example of the whole chain.

Run as a program, this module writes the files: golden.py [FOLDER], by default tests/integration/kfp/golden.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from kfp import compiler

import trainjob_kfp

FOLDER = Path(__file__).resolve().parent / "golden"
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "kfp" / "tickets_llm.py"


def load_components() -> dict[str, Any]:
    """Return the components and the example pipeline, by name."""
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return {name: getattr(trainjob_kfp, name) for name in trainjob_kfp.__all__} | {EXAMPLE.stem: example.tickets_llm}


def compile_to_yaml(component: Any) -> str:
    """Return the compiled YAML without the line with kfp's version."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "compiled.yaml"
        compiler.Compiler().compile(component, str(path))
        lines = path.read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("sdkVersion: "))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, component in load_components().items():
        (folder / f"{name}.yaml").write_text(compile_to_yaml(component), "utf-8")


if __name__ == "__main__":
    main()
