"""Fixtures for every test that uses a cluster."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.support.evidence", "tests.support.airflow_installation"]

# An example's duration means nothing on a busy machine. The input is the same each time, so no test fails by chance.
settings.register_profile("trainjob", deadline=None, derandomize=True)
# `--hypothesis-profile`: less input (`make test`) or more; `soak`, run by hand, uses other input each time.
settings.register_profile("quick", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=400, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=5000)
settings.load_profile("trainjob")

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure():
    """Restore the default handler of SIGINT.

    A shell that runs tests in the background ignores SIGINT. The processes that tests start would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def trainjob_cluster_options():
    """Return the arguments of the laptop cluster that the pytest plugin starts.

    Containers of the Trainer's torchtune and initializer images run in `.venv/torchtune` and `.venv/initializer`, those
    of the JAX and XGBoost images in this interpreter's environment, because only examples need these packages.
    """
    made = {name: ROOT / ".venv" / name for name in ("torchtune", "initializer")}
    return {"environments": {**made, "runtimes": sys.prefix}}


@pytest.fixture(scope="session")
def laptop(trainjob_cluster):
    """Return the laptop cluster of the session; each test uses its own object names."""
    return trainjob_cluster


@pytest.fixture(scope="session")
def cluster(laptop):
    """Yield this project's client of the laptop cluster."""
    from trainjob.client import Cluster, Connection

    opened = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=5.0)
    yield opened
    opened.close()


@pytest.fixture
def refusing_url():
    """Yield the URL of a port that refuses connections.

    No other process can use the port in the meantime.
    """
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # the socket never listens
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def unique():
    """Return a short name that no other test uses."""
    return "t" + uuid.uuid4().hex[:8]


@pytest.fixture
def torchrun_lock():
    """Hold a lock, so that only one test at a time runs torchrun on this machine.

    Torch uses every core, so trainings at the same time would exceed the time limits of their tests. Each user has a
    lock, because a user can't write another user's file in the folder for temporary files.
    """
    with (Path(tempfile.gettempdir()) / f"trainjob-torchrun-{os.getuid()}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
