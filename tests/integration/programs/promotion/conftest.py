"""Promotions on the laptop cluster, with a command that notes each model that it serves."""

from __future__ import annotations

import sys

import pytest

from tests.support.kubernetes_client import Client
from tests.support.promotions import Promoter

_DEPLOY = """
import os, pathlib, sys
folder, model = pathlib.Path(sys.argv[1]), os.environ["MODEL_URI"]
while (folder / "hold").exists():
    pass
with (folder / "log").open("a") as log:
    log.write(model + "\\n")
if model.endswith("bad"):
    sys.exit("this model cannot be loaded")
(folder / "served").write_text(model)
"""


@pytest.fixture
def promoter(laptop, unique, tmp_path):
    """Return promotions of the service `tickets` in a namespace of their own."""
    client = Client.from_kubeconfig(str(laptop.kubeconfig))
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    command = [sys.executable, "-c", _DEPLOY, str(tmp_path)]
    options = {"kind": "Command", "service": "tickets", "command": command, "seconds": 60}
    yield Promoter(client, unique, tmp_path / "account", options).prepare()
    client.close()


@pytest.fixture
def served(tmp_path):
    """Return a function that returns the served model."""
    return (tmp_path / "served").read_text
