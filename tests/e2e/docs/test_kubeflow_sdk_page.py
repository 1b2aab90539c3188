"""The page about the Kubeflow SDK: its program and its commands, with the real SDK on a laptop cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.support.code_blocks import ROOT, python_blocks
from tests.support.page_commands import PageCommand, find_missing_line, page_steps
from tests.support.uv import UV

PAGE = "docs/how-to/from-kubeflow-sdk.md"
SHOWN_NAME = "u499b169dfc2"  # a TrainJob of the SDK has a random name

pytestmark = [pytest.mark.torchtune, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def sdk_python(tmp_path_factory):
    """Return the interpreter of an environment with the SDK in the version of the page."""
    version = re.search(r"kubeflow (\d+\.\d+\.\d+)", (ROOT / PAGE).read_text("utf-8"))
    folder = tmp_path_factory.mktemp("sdk") / "venv"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder], check=True)
    subprocess.run([UV, "pip", "install", "-q", "--python", folder, f"kubeflow=={version[1]}"], check=True)
    return folder / "bin" / "python"


@pytest.mark.usefixtures("torchrun_lock")
def test_the_program_trains_and_the_commands_find_its_trainjob(sdk_python, laptop, tmp_path):
    environment = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
    with config.new_client_from_config(str(laptop.kubeconfig)) as api:
        client.CoreV1Api(api).create_namespace({"metadata": {"name": "team"}})
        [block] = python_blocks("kubeflow")
        (tmp_path / "block.py").write_text(block.text, "utf-8")
        printed = run([sdk_python, tmp_path / "block.py"], environment)
        assert printed.splitlines() == ["total 8"]  # the SDK prints the log of one node
        jobs = client.CustomObjectsApi(api)
        [job] = jobs.list_namespaced_custom_object("trainer.kubeflow.org", "v1alpha1", "team", "trainjobs")["items"]
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    commands = [step for step in page_steps(PAGE) if isinstance(step, PageCommand)]
    assert commands
    for command in commands:
        printed = run(["bash", "-c", command.text.replace(SHOWN_NAME, job["metadata"]["name"])], environment)
        shown = tuple(line.replace(SHOWN_NAME, job["metadata"]["name"]) for line in command.output)
        assert find_missing_line(shown, printed) is None, printed


def run(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
