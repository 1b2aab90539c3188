"""Commands of the pages, run as written on a new laptop cluster for each page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.e2e.docs.page_session import PageFailure, PageSession
from tests.e2e.docs.page_stubs import BUCKETS
from tests.support.code_blocks import PAGES, ROOT, CodeBlock
from tests.support.page_commands import PageCommand, page_steps
from tests.support.s3_server import S3Server
from trainjob_local import LocalCluster
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.timeout(1200), pytest.mark.torchtune, pytest.mark.usefixtures("torchrun_lock")]

NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
PAGES_WITH_COMMANDS = [name for name in NAMES if any(isinstance(step, PageCommand) for step in page_steps(name))]
# Addresses that the pages show, and the stub that replaces each.
S3_ADDRESSES = ("https://minio.example.org",)


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_the_commands_of_a_page(page, kubectl_program, environments, request, tmp_path):
    steps = page_steps(page)
    hub = request.getfixturevalue("hub_folder") if "hf://" in (ROOT / page).read_text("utf-8") else tmp_path
    with HubServer(hub) as hub_server, S3Server(buckets=BUCKETS, access_key="") as store:
        pod_env = {"HF_ENDPOINT": hub_server.url, "AWS_ENDPOINT_URL": store.url}
        with LocalCluster(tmp_path / "cluster", environments=environments, pod_env=pod_env) as cluster:
            create_namespace(cluster.kubeconfig, "team")
            folders = {name: tmp_path / name for name in ("home", "programs", "page", "scratch")}
            for folder in folders.values():
                folder.mkdir()
            for name in ("manifests", "examples"):
                (folders["page"] / name).symlink_to(ROOT / name)
            (folders["programs"] / "kubectl").symlink_to(kubectl_program)
            (folders["programs"] / "kfp").symlink_to(ROOT / ".venv" / "kfp" / "bin" / "kfp")
            environment = session_environment(folders["home"], folders["programs"], cluster.kubeconfig)
            replacements = dict.fromkeys(S3_ADDRESSES, store.url)
            reason = run_steps(steps, PageSession(folders["page"], folders["scratch"], environment, replacements))
    if reason:
        pytest.fail(reason, pytrace=False)


def create_namespace(kubeconfig: Path, name: str) -> None:
    with config.new_client_from_config(str(kubeconfig)) as api:
        client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})


def session_environment(home: Path, programs: Path, kubeconfig: Path) -> dict[str, str]:
    """Return the environment of a new user, without the variables of this one."""
    path = [programs, ROOT / ".venv" / "core" / "bin", "/usr/local/bin", "/usr/bin", "/bin"]
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "TZ") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join(map(str, path)),
        "KUBECONFIG": str(kubeconfig),
        "COLUMNS": "132",
    }


def run_steps(steps: list[CodeBlock | PageCommand], session: PageSession) -> str:
    """Run the steps of a page, and return why a command failed, if any did."""
    try:
        with session:
            session.run(steps)
    except PageFailure as failure:
        return str(failure)
    finally:
        for seconds, command in session.timings:
            print(f"{seconds:6.1f} s  {command}")
    return ""
