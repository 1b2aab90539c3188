"""ConfigMap with the code of the components, for pipelines whose steps run in an image without our packages.

Argo stores a step's command about ten times in the run's Workflow, which may have 1 MiB (KFP 2.17, Argo 4.0). Therefore
the command has only a short program, which loads the code from this ConfigMap. One ConfigMap in the namespace of the
runs serves all pipelines that were compiled with the same code:

    python -m trainjob_kfp.code_configmap | kubectl apply --server-side -n NAMESPACE -f -

Its name ends with the SHA-256 of the code, which a step compares with the code. So ConfigMaps of several versions can
exist at the same time, and a pipeline runs only the code that it was compiled with. The ConfigMap is immutable.

The apply is server-side, because the other kind also stores the whole object in an annotation, and annotations may have
256 KiB (Kubernetes 1.36, apimachinery/pkg/api/validation/objectmeta.go). A ConfigMap itself may have 1 MiB.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import inspect
import lzma
import re
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import yaml

from trainjob.minify import minify
from trainjob.packing import create_zip
from trainjob_kfp import code_loading

if TYPE_CHECKING:
    from importlib.abc import Traversable

KEY = "code.zip.xz"
"""Key of the code in the ConfigMap: a zip file, compressed with xz."""

_INDENTATION = re.compile(r"(?m)(?:^|(?<= {4})) {4}")

# Packages and modules that only authors, terminals and laptops use.
_LEFT_OUT = (
    "trainjob/cli/",
    "trainjob/inspection/",
    "trainjob/local.py",
    "trainjob/options.py",
    "trainjob/project_code/",
    "trainjob/retention/",
    "trainjob_kfp/code_configmap.py",
    "trainjob_kfp/code_loading.py",
    "trainjob_kfp/compile_checks.py",
    "trainjob_kfp/components/",
    "trainjob_kfp/launcher_settings.py",
    "trainjob_kfp/packaging.py",
    "trainjob_kfp/pipelines.py",
    "trainjob_kfp/project_code.py",
    "trainjob_kfp/sdk_arguments.py",
)


def build_code_configmap() -> dict[str, Any]:
    """Return the ConfigMap with the code of these versions of `trainjob` and `trainjob_kfp`."""
    text = base64.b64encode(lzma.compress(pack_code())).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": configmap_name(),
            "labels": {"app.kubernetes.io/part-of": "trainjob", "app.kubernetes.io/version": version("kfp-trainjob")},
        },
        "binaryData": {KEY: text},
        "immutable": True,
    }


@functools.cache
def configmap_name() -> str:
    """Return the name of the ConfigMap, which ends with the SHA-256 of the code.

    The same sources have the same name on every machine, because the name is part of a step's command and thereby of
    Kubeflow Pipelines' cache key.
    """
    return f"kfp-trainjob-{hashlib.sha256(pack_code()).hexdigest()}"


@functools.cache
def pack_code() -> bytes:
    """Return the code as a zip file, without docstrings and comments."""
    return create_zip(
        {
            path: minify(text) if path.endswith(".py") else text
            for package in ("trainjob", "trainjob_kfp")
            for path, text in sorted(_read_files(resources.files(package), package))
            if not path.startswith(_LEFT_OUT)
        }
    )


def loading_program() -> str:
    """Return the program that makes the code importable, to run before a component.

    It is the function [trainjob_kfp.code_loading.load_code][] with a call of it.
    """
    # Indented by one space and with one line of imports, because each byte of a command is ten bytes of the Workflow.
    function = _INDENTATION.sub(" ", minify(inspect.getsource(code_loading.load_code)))
    start, *modules = function.split("\n import ")
    return f'{start}\n import {",".join(modules)}load_code("{configmap_name()}")\n'


def _read_files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for item in folder.iterdir():
        below = f"{path}/{item.name}"
        if item.is_dir():
            yield from _read_files(item, below)
        elif item.name.endswith((".py", ".json")):
            yield below, item.read_text("utf-8")


if __name__ == "__main__":
    yaml.safe_dump(build_code_configmap(), sys.stdout, sort_keys=False)
