"""Trainings that copy their checkpoints to an object store on loopback."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.interrupted_trainings import killing_environment
from tests.support.s3_server import S3Server
from tests.support.training_fixtures import ROOT
from trainjob.local import LocalCluster

__all__ = ["URI", "copying_environment", "killing_environment", "list_copies", "replace_workspace", "store", "to_store"]

URI = "s3://models/checkpoints"
MARK = re.compile(r"[0-9a-f]{32}/checkpoint-([0-9]+)/trainjob_complete")


@pytest.fixture
def store() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def copying_environment(killing_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a training with opendal, which the image does not contain."""
    [package] = (ROOT / ".venv/initializer/lib").glob("python3*/site-packages/opendal")
    Path(killing_environment["PYTHONPATH"], "opendal").symlink_to(package)
    return {**killing_environment, "KILL_AT": "nothing"}


@pytest.fixture
def to_store(laptop: LocalCluster, unique: str) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that creates a Secret for a step.

    It returns the fields with which the step copies to the store.
    """
    from kubernetes import client, config

    opened = config.new_client_from_config(str(laptop.kubeconfig))

    def put(url: str, credentials: dict[str, str]) -> dict[str, Any]:
        body = {"metadata": {"name": unique}, "stringData": credentials}
        client.CoreV1Api(opened).create_namespaced_secret("default", body)
        return {"checkpoint_uri": URI, "checkpoint_endpoint": url, "secret": unique}

    yield put
    opened.close()


def list_copies(store: S3Server) -> list[int]:
    return [int(found[1]) for name in store.read_prefix("models/checkpoints") if (found := MARK.fullmatch(name))]


def replace_workspace(workspace: Path, hub: Path) -> None:
    """Remove a workspace, and copy model and dataset into a new one, with new times."""
    shutil.rmtree(workspace)
    for source, name in (("models/demo/tiny-llama", "model"), ("datasets/demo/tickets", "dataset")):
        shutil.copytree(hub / source, workspace / name, copy_function=shutil.copyfile)
