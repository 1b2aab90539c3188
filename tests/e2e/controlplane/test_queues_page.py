"""The page about queues: its YAML and its commands, with the real kubectl and Kueue on a control plane."""

from __future__ import annotations

import os

import pytest

from control_plane import ControlPlane
from programs import KUBECTL
from tests.e2e.docs.page_session import PageFailure, PageSession
from tests.support.code_blocks import ROOT
from tests.support.kubernetes_client import Client
from tests.support.page_commands import page_steps

PAGE = "docs/how-to/queues.md"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def plane(tmp_path):
    if reason := ControlPlane.unavailable_reason(kueue=True):
        pytest.skip(reason)
    if not (KUBECTL.folder / "kubectl").exists():
        pytest.skip("kubectl is not built: run `python tests/controlplane/build.py --kubectl`, which needs Go")
    with ControlPlane(tmp_path / "state", kueue=True) as cluster:
        client = Client.from_kubeconfig(str(cluster.kubeconfig))
        try:
            client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, "")
        finally:
            client.close()
        yield cluster


def test_the_commands_of_the_page(plane, tmp_path):
    """The second TrainJob waits for the quota of the first one, and runs when the first one is deleted."""
    folders = {name: tmp_path / name for name in ("home", "programs", "page", "scratch")}
    for folder in folders.values():
        folder.mkdir()
    for name, program in {
        "kubectl": KUBECTL.folder / "kubectl",
        "trainjob": ROOT / ".venv" / "core" / "bin" / "trainjob",
    }.items():
        (folders["programs"] / name).symlink_to(program)
    environment = {
        "HOME": str(folders["home"]),
        "PATH": os.pathsep.join([str(folders["programs"]), os.environ["PATH"]]),
        "KUBECONFIG": str(plane.kubeconfig),
        "COLUMNS": "200",
    }
    with PageSession(folders["page"], folders["scratch"], environment, {}) as session:
        try:
            session.run(page_steps(PAGE))
        except PageFailure as failure:
            pytest.fail(str(failure), pytrace=False)
