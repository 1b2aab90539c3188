"""A compiled component's real command, run as Kubeflow Pipelines' launcher runs it, in any environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

LAUNCHER = Path(__file__).resolve().parents[2] / ".venv" / "launcher"


def containers(text: str) -> list[dict[str, Any]]:
    """The containers of a compiled pipeline or component."""
    return [executor["container"] for executor in yaml.safe_load(text)["deploymentSpec"]["executors"].values()]


def executor_input(text: str, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """What KFP's driver makes of a component's task with these arguments (2.17, backend/src/v2/driver/driver.go)."""
    [spec] = yaml.safe_load(text)["components"].values()
    inputs, outputs = spec["inputDefinitions"]["parameters"], spec["outputDefinitions"]
    defaults = {name: one["defaultValue"] for name, one in inputs.items() if "defaultValue" in one}
    return {
        "inputs": {"parameterValues": defaults | arguments},
        "outputs": {
            "parameters": {name: {"outputFile": f"{folder}/{name}"} for name in outputs["parameters"]},
            "artifacts": {
                name: {"artifacts": [{"name": name, "type": one["artifactType"], "uri": f"{folder}/{name}"}]}
                for name, one in outputs.get("artifacts", {}).items()
            },
            "outputFile": f"{folder}/output.json",
        },
    }


def run_component(
    text: str, folder: Path, arguments: dict[str, Any], *, python: Path = LAUNCHER, **environment: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """(the finished process, its output parameters), with `python`'s own python3 and no other variables than these."""
    [container] = containers(text)
    given = json.dumps(executor_input(text, folder, arguments))
    path = f"{python / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [*container["command"], *(word.replace("{{$}}", given) for word in container["args"])],
        env={"PATH": path, "HOME": str(folder), "TMPDIR": str(folder)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        cwd=folder,
    )
    output = folder / "output.json"
    return done, json.loads(output.read_text())["parameterValues"] if output.exists() else {}
