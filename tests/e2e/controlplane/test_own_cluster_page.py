"""The tutorial about a cluster of your own: its commands, with the real kubectl on a control plane with Trainer 2.3."""

from __future__ import annotations

import os

import pytest

from control_plane import ControlPlane
from programs import KUBECTL
from tests.e2e.docs.page_session import PageFailure, PageSession
from tests.e2e.docs.page_stubs import make_page_hub
from tests.support.code_blocks import ROOT
from tests.support.demo_chain import ALL_ENVIRONMENTS
from tests.support.page_commands import page_steps
from trainjob_local.demo.hub import HubServer

PAGE = "docs/tutorials/own-cluster.md"

pytestmark = [pytest.mark.timeout(600), pytest.mark.trl, pytest.mark.usefixtures("torchrun_lock")]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Serve a tiny model and dataset under the names of the page."""
    with HubServer(make_page_hub(tmp_path_factory.mktemp("hub"))) as server:
        yield server.url


def test_the_commands_of_the_page(hub, tmp_path):
    """All commands that need neither a container engine nor a GPU run as written."""
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    if KUBECTL.list_missing():
        pytest.skip("kubectl is not built: run `python tests/controlplane/build.py --kubectl`, which needs Go")
    folders = {name: tmp_path / name for name in ("home", "page", "programs", "scratch")}
    for folder in folders.values():
        folder.mkdir()
    (folders["page"] / "manifests").symlink_to(ROOT / "manifests")
    (folders["programs"] / "kubectl").symlink_to(KUBECTL.folder / "kubectl")
    (folders["programs"] / "trainjob").symlink_to(ROOT / ".venv" / "core" / "bin" / "trainjob")
    with ControlPlane(tmp_path / "state", environments=ALL_ENVIRONMENTS, pod_env={"HF_ENDPOINT": hub}) as plane:
        environment = {
            "HOME": str(folders["home"]),
            "PATH": os.pathsep.join([str(folders["programs"]), os.environ["PATH"]]),
            "KUBECONFIG": str(plane.kubeconfig),
            "COLUMNS": "132",
        }
        try:
            with PageSession(folders["page"], folders["scratch"], environment, {}) as session:
                session.run(page_steps(PAGE))
        except PageFailure as failure:
            pytest.fail(str(failure), pytrace=False)
