"""Tests of components that load their code from a ConfigMap: its content, its name, and runs without our packages."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import lzma
import os
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import trainjob_kfp
from tests.support.accounts import create_account, create_token, grant
from tests.support.component_runs import LAUNCHER, load_containers, run_component
from tests.support.framework_packages import install_line_framework
from tests.support.kubernetes_client import Client
from trainjob.errors import InvalidSpec
from trainjob.manifest import labels
from trainjob.packing import create_zip
from trainjob.project_code import pack
from trainjob.spec import Code
from trainjob.status import Phase, derive_verdict
from trainjob_kfp import code_configmap, packaging
from trainjob_kfp.code_configmap import build_code_configmap, configmap_name, pack_code

HERE = Path(__file__).resolve().parent
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
ENVIRONMENT = {"TRAINJOB_KFP_CODE": "configmap", "TRAINJOB_KFP_IMAGE": "python-with-kfp"}
# Argo stores a step's command ten times (tests/kfp_backend/test_runs.py), and a step may add 20 kB to the Workflow.
MAX_ADDED_BYTES = 2_000


def compile_all(folder, **environment):
    """Run golden.py in a new interpreter, and return the texts that it wrote, by name."""
    environment = {**os.environ, **environment}
    subprocess.run([sys.executable, HERE / "golden.py", folder], env=environment, check=True, timeout=300)
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.yaml"))}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return compile_all(tmp_path_factory.mktemp("compiled"), **ENVIRONMENT, PYTHONHASHSEED="1")


@pytest.fixture(scope="module")
def client(laptop):
    with contextlib.closing(Client.from_kubeconfig(str(laptop.kubeconfig))) as opened:
        yield opened


@pytest.fixture(scope="module")
def namespace(client):
    """Return a namespace with a service account that may read ConfigMaps and run TrainJobs."""
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "code"}})
    create_account(client, "code")
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list", "watch"]},
    ]
    grant(client, "code", rules)
    return "code"


@pytest.fixture
def run_in_pod(laptop, client, namespace, compiled, tmp_path, unique):
    """Return a function that runs a component with a pod's service account."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(create_token(client, namespace))
    (account / "namespace").write_text(namespace)
    (account / "ca.crt").write_text(laptop.ca_file.read_text())
    address = urlsplit(laptop.server)
    variables = {
        "KUBERNETES_SERVICE_HOST": address.hostname,
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "KUBECONFIG": str(laptop.kubeconfig),
        "TRAINJOB_RUN_ID": unique,
    }

    def run(name, arguments, **more):
        assert ACCOUNT_FOLDER in compiled[name]
        text = compiled[name].replace(ACCOUNT_FOLDER, str(account))
        return run_component(text, tmp_path, arguments, **variables, **more)

    return run


def read_texts():
    with zipfile.ZipFile(BytesIO(pack_code())) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_only_code_that_runs_in_a_step_is_packed():
    texts = read_texts()
    assert {
        "trainjob/lifecycle/submission.py",
        "trainjob/programs/export/__main__.py",
        "trainjob/frameworks/trl/pod/__main__.py",
        "trainjob_kfp/launcher.py",
        "trainjob_kfp/__init__.py",
    } <= set(texts)
    left_out = ("trainjob/cli/", "trainjob_kfp/components/", "trainjob_kfp/packaging", "trainjob_kfp/code_configmap")
    left_out += ("trainjob/project_code/", "trainjob_kfp/project_code")
    assert not [path for path in texts if path.startswith(left_out)]
    assert not [path for path, text in texts.items() if '"""' in text and ast.get_docstring(ast.parse(text))]


@pytest.mark.slow
def test_the_same_sources_have_the_same_name(compiled, tmp_path):
    """A component's command is part of the cache key."""
    assert compile_all(tmp_path, **ENVIRONMENT, PYTHONHASHSEED="2") == compiled


def test_a_command_is_hardly_longer_than_with_an_image(compiled):
    for name, text in compiled.items():
        plain = load_containers((HERE / "golden" / f"{name}.yaml").read_text("utf-8"))
        for container, other in zip(load_containers(text), plain, strict=True):
            added = sum(map(len, container["command"])) - sum(map(len, other["command"]))
            assert 0 < added < MAX_ADDED_BYTES


def test_the_program_has_no_text_that_a_template_changes(compiled):
    """Argo replaces `{{...}}`, and Kubernetes replaces `$(NAME)`."""
    for text in compiled.values():
        for container in load_containers(text):
            program = container["command"][-1]
            assert configmap_name() in program
            assert "{{" not in program
            assert "$(" not in program


def test_a_docstring_is_only_in_the_description(compiled):
    golden = {path.stem: path.read_text("utf-8") for path in (HERE / "golden").glob("fine_tune.yaml")}
    for text in (compiled["fine_tune"], golden["fine_tune"]):
        [container] = load_containers(text)
        assert "Method of the framework" in text
        assert "Method of the framework" not in container["command"][-1]


def test_a_function_without_a_docstring_is_unchanged():
    text = "import kfp\n\ndef component(a: int):\n    return a\n"
    assert packaging.remove_docstring(text) == text
    only_a_text = 'def component():\n    """Text."""\n'
    assert packaging.remove_docstring(only_a_text) == only_a_text


def test_without_an_image_the_python_image_installs_the_cores_requirements():
    code = (
        "import json, trainjob_kfp; container = trainjob_kfp.train.component_spec.implementation.container;"
        "print(json.dumps([container.image, container.command]))"
    )
    environment = {**os.environ, "TRAINJOB_KFP_CODE": "configmap", "TRAINJOB_KFP_IMAGE": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True, timeout=300
    )
    image, command = json.loads(done.stdout)
    assert image == "python:3.12-slim"
    assert command[:2] == ["sh", "-c"]
    assert re.search(r"pip install .*'kfp==2\.\d+\.\d+' '--no-deps'", command[2])
    assert re.search(r"'kubernetes[<>=,\d]+' 'pydantic[<>=.\d]+' 'pyyaml[<>=.\d]+'", command[2])
    assert "trainjob" not in command[2]
    [plain] = load_containers((HERE / "golden" / "train.yaml").read_text("utf-8"))
    assert sum(map(len, command)) - sum(map(len, plain["command"])) < MAX_ADDED_BYTES


def test_another_source_of_the_code_is_refused(monkeypatch):
    monkeypatch.setenv("TRAINJOB_KFP_CODE", "embedded")
    with pytest.raises(InvalidSpec, match="TRAINJOB_KFP_CODE"):
        packaging.trainjob_component(trainjob_kfp.train.python_func)


def test_a_missing_configmap_is_named_with_the_command_that_creates_it(run_in_pod, client, namespace):
    client.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{configmap_name()}")
    done, _ = run_in_pod("train", {"image": "busybox"})
    assert done.returncode == 1
    assert f'The step has no code of trainjob: configmaps "{configmap_name()}" not found' in done.stdout
    command = f"python -m trainjob_kfp.code_configmap | kubectl apply --server-side -n {namespace} -f -"
    assert f"Hint: {command}" in done.stdout


@pytest.fixture
def configmap(client, namespace):
    client.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{configmap_name()}")
    return client.create(build_code_configmap(), namespace)


def test_other_code_does_not_run(run_in_pod, client, namespace):
    code = create_zip({"trainjob_kfp/__init__.py": "print('INJECTED')"})
    configmap = build_code_configmap()
    assert configmap["immutable"]
    configmap["binaryData"][code_configmap.KEY] = base64.b64encode(lzma.compress(code)).decode()
    client.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{configmap_name()}")
    client.create(configmap, namespace)
    done, _ = run_in_pod("train", {"image": "busybox"})
    assert done.returncode == 1
    assert "The step has no code of trainjob: changed" in done.stdout
    assert "INJECTED" not in done.stdout


@pytest.mark.usefixtures("configmap")
def test_a_step_runs_without_our_packages(run_in_pod, cluster):
    absent = subprocess.run([LAUNCHER / "bin" / "python3", "-c", "import trainjob"], capture_output=True, text=True)
    assert "No module named 'trainjob'" in absent.stderr
    patch = {"manager": "example.org/a", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    arguments = {"image": "busybox", "command": ["echo", "hello"], "runtime_patches": [patch]}
    done, outputs = run_in_pod("train", arguments)
    assert done.returncode == 0, done.stdout
    assert "[node-0] hello" in done.stdout
    job = cluster.get_trainjob(outputs["job"], outputs["namespace"])
    assert job["spec"]["runtimePatches"][-1].items() >= patch.items()
    assert derive_verdict(job).phase is Phase.COMPLETE
    assert outputs["uid"] == job["metadata"]["uid"]


@pytest.mark.usefixtures("configmap")
def test_a_step_sends_the_code_of_a_project(run_in_pod, tmp_path):
    """The image has no `pathspec`, with which an author's machine reads .gitignore."""
    absent = subprocess.run([LAUNCHER / "bin" / "python3", "-c", "import pathspec"], capture_output=True, text=True)
    assert "No module named 'pathspec'" in absent.stderr
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "hello.py").write_text("print('hello')")
    packed = pack(Code(path="project"), tmp_path)
    code = {"sha256": packed.sha256, "archive": packed.archive}
    done, _ = run_in_pod("train", {"image": "python:3.11", "command": ["python", "hello.py"], "code": code})
    assert done.returncode == 0, done.stdout
    assert "[node-0] hello" in done.stdout


@pytest.mark.usefixtures("configmap")
def test_a_step_sends_the_program_of_its_framework(run_in_pod, tmp_path):
    """The program in the pod refuses a workspace without a model.

    The launcher refuses an argument that is not in the framework's table.
    """
    given = {
        "model": "m",
        "framework": "trl",
        "method": "grpo",
        "workspace": str(tmp_path / "workspace"),
        "config": {"reward_functions": ["def score(completions, **kwargs):\n    return [1.0] * len(completions)"]},
        "image": "busybox",
    }
    done, _ = run_in_pod("fine_tune", given)
    assert "model: it must be the folder of a model with config.json" in done.stdout
    assert "The step failed:" in done.stdout
    done, _ = run_in_pod("fine_tune", {**given, "arguments": {"logging_step": 1}})
    assert "arguments.logging_step: TRL 1.16.0 grpo has no such argument" in done.stdout
    assert done.returncode == 2


OTHER_FRAMEWORK = {"model": "line", "framework": "line", "config": {"steps": 300}, "image": "python:3.11"}


@pytest.mark.usefixtures("configmap")
def test_a_step_names_the_missing_package_of_its_framework(run_in_pod, cluster, tmp_path, unique):
    done, _ = run_in_pod("fine_tune", {**OTHER_FRAMEWORK, "workspace": str(tmp_path)})
    known = "llamafactory, torchtune, trl, unsloth"
    assert f"framework cannot be 'line': it must be one of {known};" in done.stdout
    assert "for another one, install its package where this step runs" in done.stdout
    assert "Traceback" not in done.stdout
    assert done.returncode == 2
    assert not cluster.list_trainjobs("default", f"{labels.RUN}={unique}")


@pytest.mark.usefixtures("configmap")
def test_a_step_runs_the_framework_of_a_package_in_its_image(run_in_pod, cluster, tmp_path, unique):
    """The image has the package without its dependency trainjob, which comes from the ConfigMap."""
    packages = install_line_framework(tmp_path / "packages")
    done, outputs = run_in_pod("fine_tune", {**OTHER_FRAMEWORK, "workspace": str(tmp_path)}, PYTHONPATH=str(packages))
    assert done.returncode == 0, done.stdout
    assert "[node-0] y = 2.000 x + 1.000" in done.stdout
    assert json.loads((tmp_path / "output" / "line.json").read_text()) == pytest.approx(
        {"slope": 2, "intercept": 1}, abs=0.001
    )
    [job] = cluster.list_trainjobs("default", f"{labels.RUN}={unique}")
    assert (outputs["uid"], derive_verdict(job).phase) == (job["metadata"]["uid"], Phase.COMPLETE)
