"""Commands of the pages, run as written on a new laptop cluster for each page.

A page runs in an empty folder with links to `manifests` and `examples`. A page that installs distributions of this
project runs in a copy of the checkout, with a new virtual environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.e2e.docs.page_session import PageFailure, PageSession
from tests.e2e.docs.page_stubs import BUCKETS, OBJECTS
from tests.support.checkout import copy_checkout
from tests.support.code_blocks import ROOT, CodeBlock
from tests.support.page_commands import PageCommand
from tests.support.page_runs import PAGE_SESSIONS, session_steps
from tests.support.s3_server import S3Server
from trainjob_local import LocalCluster
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.timeout(1200), pytest.mark.torchtune]

# Addresses that the pages show, and that the S3 server of the test replaces.
S3_ADDRESSES = ("https://minio.example.org",)
NAMESPACES = ("team",)
_PIP = re.compile(r"pip (\w+)")
# What a machine needs to reach its package index.
_INHERITED = re.compile(r"LANG|TMPDIR|TZ|PIP_\w+|UV_\w+|SSL_CERT_\w+")


@pytest.mark.parametrize("page", PAGE_SESSIONS)
def test_the_commands_of_a_page(page, kubectl_program, environments, request, tmp_path):
    steps = session_steps(page)
    text = (ROOT / page).read_text("utf-8")
    fetches = "hf://" in text
    if fetches or "torch.distributed" in text:
        request.getfixturevalue("torchrun_lock")
    hub = request.getfixturevalue("hub_folder") if fetches else tmp_path
    folders = {name: tmp_path / name for name in ("home", "programs", "page", "scratch")}
    for folder in folders.values():
        folder.mkdir()
    (folders["programs"] / "kubectl").symlink_to(kubectl_program)
    programs = [folders["programs"], *prepare_folder(folders["page"], steps, tmp_path / "venv")]
    with HubServer(hub) as hub_server, S3Server(buckets=BUCKETS, access_key="") as store:
        store.objects.update(OBJECTS)
        pod_env = {"HF_ENDPOINT": hub_server.url, "AWS_ENDPOINT_URL": store.url}
        with LocalCluster(tmp_path / "cluster", environments=environments, pod_env=pod_env) as cluster:
            create_namespaces(cluster.kubeconfig)
            environment = session_environment(folders["home"], programs, cluster.kubeconfig)
            replacements = dict.fromkeys(S3_ADDRESSES, store.url)
            installs = (folders["page"] / "core").exists()
            seconds = 600.0 if installs else 240.0  # an installation downloads packages
            session = PageSession(folders["page"], folders["scratch"], environment, replacements, seconds=seconds)
            reason = run_steps(steps, session)
    if reason:
        logs = [f"{path.name}:\n{path.read_text('utf-8')[-4000:]}" for path in folders["page"].glob("*.log")]
        pytest.fail("\n".join([reason, *logs]), pytrace=False)


def prepare_folder(folder: Path, steps: list[CodeBlock | PageCommand], venv: Path) -> list[Path]:
    """Prepare the folder in which the commands run, and return the folders of their programs."""
    commands = [step.text for step in steps if isinstance(step, PageCommand)]
    pip = {found[1] for text in commands if (found := _PIP.match(text))}
    if pip:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    if pip & {"install", "wheel"}:
        copy_checkout(folder)
        return [venv / "bin"]
    for name in ("manifests", "examples", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    engines = {step.engine for step in steps if isinstance(step, CodeBlock) and step.language == "python"}
    engines |= {text.partition(" ")[0] for text in commands}
    engines |= {name for text in commands for name in re.findall(r"-m trainjob_(\w+)", text)}
    return [
        *(ROOT / ".venv" / name / "bin" for name in ("airflow", "kfp", "core") if name in {*engines, "core"}),
        venv / "bin",
    ]


def create_namespaces(kubeconfig: Path) -> None:
    with config.new_client_from_config(str(kubeconfig)) as api:
        for name in NAMESPACES:
            client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})


def session_environment(home: Path, programs: list[Path], kubeconfig: Path) -> dict[str, str]:
    """Return the environment of a new user, without the variables of this one."""
    kept = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    path = [*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"]
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join(path),
        "KUBECONFIG": str(kubeconfig),
        "AIRFLOW_HOME": str(home / "airflow"),
        "COLUMNS": "132",
    }


def run_steps(steps: list[CodeBlock | PageCommand], session: PageSession) -> str:
    """Run the steps of a page, and return why a command failed; an empty text if none did."""
    try:
        with session:
            session.run(steps)
    except PageFailure as failure:
        return str(failure)
    finally:
        for seconds, command in session.timings:
            print(f"{seconds:6.1f} s  {command}")
    return ""
