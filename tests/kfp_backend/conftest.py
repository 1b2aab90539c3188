"""The back end that all cases share, with the objects that their pipelines name."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.kfp_backend.backend import IMAGE_WITHOUT_CODE, ROOT, KfpBackend
from tests.kfp_backend.pipeline_run import PipelineRun, start_run
from tests.support.demo_chain import ALL_ENVIRONMENTS, ENVIRONMENTS, example_workflow, make_demo_hub
from trainjob_kfp.code_configmap import build_code_configmap
from trainjob_local.demo.hub import HubServer

COMPILE = """
import sys
from kfp import compiler
from tests.kfp_backend import pipelines
compiler.Compiler().compile(getattr(pipelines, sys.argv[1]), sys.argv[2])
"""


@pytest.fixture(scope="session")
def backend(tmp_path_factory):
    """Start the back end once for all cases."""
    source = os.environ.get("KFP_SOURCE", "")
    if reason := KfpBackend.unavailable_reason(source):
        # A user who names the source has requested these tests.
        pytest.fail(reason, pytrace=False) if source else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("backend")
    make_demo_hub(folder / "hub")
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(HubServer(folder / "hub"))
        environments = {**ENVIRONMENTS, "trl": ALL_ENVIRONMENTS["trl"]}
        started = KfpBackend(
            Path(source), folder / "state", environments=environments, pod_env={"HF_ENDPOINT": hub.url}
        )
        stack.enter_context(started)
        create_named_objects(started)
        yield started


@pytest.fixture(autouse=True)
def control_plane_runs(backend):
    """Report that the control plane has ended, in place of refused connections."""
    yield
    if reason := backend.find_failure():
        pytest.exit(reason, returncode=1)


def create_named_objects(backend: KfpBackend) -> None:
    """Create the claims, the Secret and the ConfigMaps that the pipelines name."""
    make = backend.cluster.create
    make(build_code_configmap(), backend.namespace)
    for name in ("shared", "tickets"):
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        make(claim, backend.namespace)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "extra"}}
    make({**secret, "stringData": {"password": "password-of-the-test"}}, backend.namespace)
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    make({**settings, "data": {"a.txt": "hello"}}, backend.namespace)


@pytest.fixture(scope="session")
def kfp_client(backend):
    """Return a client of the back end's API server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # kfp 2.17 warns of servers older than 2.0
        return backend.client()


@pytest.fixture
def start(backend, kfp_client, tmp_path):
    """Return a function that compiles a pipeline and starts a run of it.

    The steps get their code from `code`, `image` or `configmap`; kfp therefore runs in a process of its own.
    """

    def start(pipeline, arguments=None, *, cache: bool | None = False, code: str = "image") -> PipelineRun:
        package, name = tmp_path / f"{pipeline.name}.yaml", pipeline.name.replace("-", "_")
        compile_pipeline([sys.executable, "-c", COMPILE, name, package], code)
        return start_run(backend, kfp_client, package, arguments, cache=cache)

    return start


@pytest.fixture
def start_example(backend, kfp_client, tmp_path):
    """Return a function that compiles an example as its page says and starts a run of it."""

    def start(name: str, *, code: str = "image") -> PipelineRun:
        package = tmp_path / f"{name}.yaml"
        compile_pipeline([sys.executable, example_workflow("kfp", name), "compile", package], code)
        return start_run(backend, kfp_client, package)

    return start


def compile_pipeline(command, code: str) -> None:
    """Run a command that compiles a pipeline, with `code` as in `start`."""
    image = {"TRAINJOB_KFP_IMAGE": IMAGE_WITHOUT_CODE} if code == "configmap" else {}
    subprocess.run(command, env={**os.environ, "TRAINJOB_KFP_CODE": code, **image}, cwd=ROOT, check=True)
