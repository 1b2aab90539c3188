"""Runs of a compiled component's real command, as Kubeflow Pipelines' launcher starts it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

LAUNCHER = Path(__file__).resolve().parents[2] / ".venv" / "launcher"


def load_containers(text: str) -> list[dict[str, Any]]:
    """Return the containers of a compiled pipeline or component."""
    return [executor["container"] for executor in yaml.safe_load(text)["deploymentSpec"]["executors"].values()]


def executor_input(text: str, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the executor input of a component's task with the given arguments.

    It has the form that KFP's driver writes (2.17, backend/src/v2/driver/driver.go).
    """
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
    """Run a component and return the finished process and its output parameters.

    The command's python3 is that of `python`. The environment has no other variables than PATH, HOME, TMPDIR and the
    given ones.
    """
    [container] = load_containers(text)
    executor_text = json.dumps(executor_input(text, folder, arguments))
    path = f"{python / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [*container["command"], *(word.replace("{{$}}", executor_text) for word in container["args"])],
        env={"PATH": path, "HOME": str(folder), "TMPDIR": str(folder)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        cwd=folder,
    )
    output = folder / "output.json"
    return done, json.loads(output.read_text())["parameterValues"] if output.exists() else {}
