"""Tests of the modules that an import loads, because engines parse DAG and pipeline files all day."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "kubernetes",
    "kubernetes_asyncio",
    "torch",
    "huggingface_hub",
    "opendal",
    "starlette",
    "uvicorn",
    "rich",
    "typer",
}


def modules_loaded_by(statement: str) -> set[str]:
    show = "print(json.dumps(sorted(set(sys.modules) - before)))"
    code = f"import sys, json; before = set(sys.modules); {statement}; {show}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def find_heavy(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules} & HEAVY


def test_importing_trainjob_loads_no_submodules():
    loaded = modules_loaded_by("import trainjob")
    assert not find_heavy(loaded)
    assert {module for module in loaded if module.startswith("trainjob.")} == set()


def test_the_public_names_do_not_load_kubernetes():
    loaded = modules_loaded_by("import trainjob; [getattr(trainjob, name) for name in trainjob.__all__]")
    assert "trainjob.client" in loaded
    assert not find_heavy(loaded)


def test_the_packages_do_not_load_kubernetes():
    packages = [
        "errors",
        "spec",
        "manifest",
        "status",
        "frameworks",
        "client",
        "lifecycle",
        "inspection",
        "retention",
        "programs",
    ]
    assert not find_heavy(
        modules_loaded_by("; ".join(f"import trainjob.{package}" for package in [*packages, "local"]))
    )


def test_an_unknown_name_raises_an_attribute_error():
    done = subprocess.run([sys.executable, "-c", "import trainjob; trainjob.nope"], capture_output=True, text=True)
    assert "module 'trainjob' has no attribute 'nope'" in done.stderr
