"""The conformance suite on one or more clusters: each `--backend NAME` adds one; the default is the laptop cluster.

The main process starts each cluster once; all workers of pytest-xdist share them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.conformance.backends import BACKENDS, BackendUnavailable, Target
from tests.conformance.report import Report, case_title
from tests.support.diagnosed_jobs import open_job_group
from tests.support.kubernetes_client import Client
from trainjob.client import Cluster, Connection

_TARGETS = pytest.StashKey[dict[str, "Target | str"]]()


def pytest_addoption(parser):
    parser.addoption("--backend", action="append", choices=sorted(BACKENDS), help="cluster on which the suite runs")
    parser.addoption("--conformance-report", metavar="FILE", help="write the table of cases and back ends (Markdown)")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "since(version): case for Trainers with that API version or a later one; the default is 2.1"
    )
    config.addinivalue_line("markers", "before(version): case for Trainers with an older API version than this")
    config.addinivalue_line("markers", "only(*backends): case that needs a feature of these back ends")
    config.addinivalue_line(
        "markers", "differs(backend, reason): known difference; the case must fail on this back end"
    )
    if hasattr(config, "workerinput"):
        config.stash[_TARGETS] = {
            name: value if isinstance(value, str) else Target.from_dict(value)
            for name, value in json.loads(config.workerinput["targets"]).items()
        }
        return
    config.stash[_TARGETS] = _start_targets(config)
    config.pluginmanager.register(Report(_selected_backends(config), config.getoption("--conformance-report")))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    targets = node.config.stash[_TARGETS]
    node.workerinput["targets"] = json.dumps(
        {name: value if isinstance(value, str) else value.to_dict() for name, value in targets.items()}
    )


def _selected_backends(config):
    return config.getoption("--backend") or ["laptop"]


def _start_targets(config):
    """Start the selected back ends, and return their targets; if one cannot run, the reason."""
    stack = contextlib.ExitStack()
    targets: dict[str, Target | str] = {}
    config.add_cleanup(stack.close)
    if config.getoption("collectonly"):
        return targets
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as after Ctrl-C, the temporary folders are removed
    for name in _selected_backends(config):
        folder = Path(tempfile.mkdtemp(prefix=f"conformance-{name}-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            targets[name] = stack.enter_context(BACKENDS[name].start(name, folder))
        except BackendUnavailable as reason:
            targets[name] = str(reason)
    return targets


def pytest_generate_tests(metafunc):
    if "target" in metafunc.fixturenames:
        names = [name for name in _selected_backends(metafunc.config) if _applies_to(metafunc.definition, name)]
        known = {mark.args[0]: mark.args[1] for mark in metafunc.definition.iter_markers("differs")}
        parameters = [
            pytest.param(name, marks=[pytest.mark.xfail(reason=known[name], strict=True)] if name in known else [])
            for name in names
        ]
        metafunc.parametrize("target", parameters, indirect=True, scope="session")


def pytest_collection_modifyitems(items):
    """Add row and column to each case, and drop the cases that do not apply.

    On the laptop cluster, a case that uses nothing of `trainjob` is marked slow: `make smoke` and `make slow` run it.
    """
    for item in items:
        if backend := _backend(item):
            item.user_properties += [("backend", backend), ("title", case_title(item))]
        if backend == "laptop" and not _uses_trainjob(item):
            item.add_marker(pytest.mark.slow)
    items[:] = [item for item in items if _backend(item) != ""]


def _uses_trainjob(item):
    """Return whether a case uses our client or an import of `trainjob`.

    Cases that only start our command run with the tests of the command: in the long suites.
    """
    modules = [getattr(value, "__module__", None) or "" for value in vars(item.module).values()]
    return "cluster" in item.fixturenames or any(name.startswith("trainjob.") for name in modules)


def _backend(item):
    """Return the back end of a case: empty if none applies, None if it is not a case."""
    parameters = getattr(item, "callspec", None) and item.callspec.params
    if not parameters or "target" not in parameters:
        return None
    return parameters["target"] if isinstance(parameters["target"], str) else ""


def _applies_to(item, backend):
    """Return whether a case applies to a back end; otherwise it has no cell in that column."""
    version = BACKENDS[backend].trainer
    marks = {kind: [_parse_version(mark.args[0]) for mark in item.iter_markers(kind)] for kind in ("since", "before")}
    only = [mark.args for mark in item.iter_markers("only")]
    return (
        all(version >= first for first in marks["since"] or [(2, 1)])
        and all(version < end for end in marks["before"])
        and all(any(backend.startswith(name) for name in names) for names in only)
    )


def _parse_version(text):
    major, minor = text.split(".")
    return int(major), int(minor)


@pytest.fixture(scope="session")
def target(request):
    """Return the cluster on which a test runs."""
    found = request.config.stash[_TARGETS][request.param]
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def client(target):
    """Return the unmodified Kubernetes client, with all permissions."""
    with contextlib.closing(Client.from_kubeconfig(target.kubeconfig)) as opened:
        yield opened


@pytest.fixture
def namespace(client, unique):
    """Return the name of a new namespace that has its default service account."""
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    client.wait_for("Namespace", None, unique, lambda found: found["status"].get("phase") == "Active")
    client.wait_for("ServiceAccount", unique, "default", bool)  # a controller creates it; pods cannot exist before
    yield unique
    client.request("DELETE", f"/api/v1/namespaces/{unique}")


@pytest.fixture
def gate(target, tmp_path):
    """Return a file, and a shell command that waits for the file.

    If pods cannot read the files of this machine, the command waits for 10 s.
    """
    file = tmp_path / "gate"
    return file, f"while [ ! -e {file} ]; do sleep 0.05; done" if target.pods_are_processes else "sleep 10"


@pytest.fixture
def cluster(target, namespace):
    """Return the project's own client of the cluster."""
    opened = Cluster(Connection(kubeconfig=target.kubeconfig, namespace=namespace), retry_seconds=5.0)
    yield opened
    opened.close()


@pytest.fixture
def job_group(cluster, unique):
    """Return the group that submits and waits for jobs that fail or do not start."""
    with open_job_group(cluster, unique) as opened:
        yield opened


@pytest.fixture
def record_feature(target, evidence):
    """Return a function that records for docs/evidence/features.md that a feature was tested.

    Only real control planes count: they have accepted the objects of the feature.
    """

    def record(*rows):
        for row in rows if target.backend.startswith("controlplane") else ():
            evidence("features", row=row, cell="control plane")

    return record
