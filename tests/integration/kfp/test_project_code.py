"""Tests of the code of a project in pipelines: in the arguments of the tasks, or in a ConfigMap of the namespace."""

# kfp reads the annotations immediately, so this file has no `from __future__ import annotations`.

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys

import pytest
import yaml
from kfp import dsl

from tests.integration.kfp import golden
from tests.support.accounts import create_account, create_token, grant, kubeconfig_with_token
from tests.support.kubernetes_client import Client
from tests.support.made_project import make_project
from trainjob.client import Cluster, Connection
from trainjob.errors import InvalidSpec, JobFailed, NotFound, PermissionDenied
from trainjob.lifecycle import RunKey
from trainjob.manifest import build_trainjob, labels
from trainjob.spec import PackedCode
from trainjob_demo.engines.kfp import RUN_PIPELINE
from trainjob_kfp import steps, train
from trainjob_kfp.code_origin import add_origin
from trainjob_kfp.function_text import MAX_ARGUMENT_BYTES
from trainjob_kfp.image import BASE_IMAGE
from trainjob_kfp.launcher import launch

FILES = {
    "acme/__init__.py": "",
    "acme/arithmetic.py": "def double(number):\n    return 2 * number\n",
    "acme/report.py": (
        "import os, sys\nfrom acme.arithmetic import double\n"
        "print(f\"node {os.environ['PET_NODE_RANK']}: {double(int(sys.argv[1]))}\")\n"
    ),
}
PIPELINES = """
from kfp import compiler, components, dsl, local
from trainjob_kfp import evaluate, train


def score(number: int):
    from acme.arithmetic import double

    return {"doubled": double(number)}


@dsl.pipeline(name="project")
def project():
    first = train(code=".", module="acme.report", args=["21"], num_nodes=2)
    second = train(function=score, function_args={"number": 3}, code=".").after(first)
    evaluate(function=score, function_args={"number": 4}, code=".", metric="doubled", minimum=8.0).after(second)


@dsl.pipeline(name="plain")
def plain():
    train(code=".", image="python:3.11", command=["python", "acme/report.py"], args=["21"], num_nodes=2)


@dsl.pipeline(name="made")
def made():
    train(code=".", image="python:3.11", command=["python", "-m", "acme.train"], args=["--lr", "1"], num_nodes=2)


@dsl.pipeline(name="given")
def given(code: dict):
    train(code=code, image="python:3.11", command=["python", "acme/report.py"], args=["21"])


if __name__ == "__main__":
    import json
    import sys

    name, folder, values = sys.argv[1:]
    compiler.Compiler().compile(globals()[name], f"{folder}/{name}.yaml")
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=f"{folder}/outputs", raise_on_error=True)
    components.load_component_from_file(f"{folder}/{name}.yaml")(**json.loads(values))
"""


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def produce() -> str:
    return ""


def run_git(folder, *arguments):
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return the folder of a repository, which is the working directory."""
    folder = write(tmp_path / "project", FILES)
    run_git(folder, "init", "-q")
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "-q", "--message", "first")
    monkeypatch.chdir(folder)
    return folder


def fill(folder, size):
    """Add a file of this size to a project, which no compression makes smaller."""
    numbers = random.Random(1)  # noqa: S311 - no secret
    (folder / "data.bin").write_bytes(numbers.randbytes(size))


def compile_calls(*calls, loop=None):
    """Return the YAML of a pipeline with these calls of `train`, in a loop over these items."""

    @dsl.pipeline(name="project")
    def pipeline():
        def call_all():
            for call in calls:
                train(**{"image": "python:3.11", "command": ["true"], **call})

        if loop is None:
            call_all()
        else:
            with dsl.ParallelFor(loop):
                call_all()

    return golden.compile_to_yaml(pipeline)


def read_arguments(text):
    """Return the constant `code` of each task of a pipeline."""
    [spec, *_] = yaml.safe_load_all(text)
    parts = [spec["root"], *spec["components"].values()]
    tasks = [task for part in parts for task in part.get("dag", {}).get("tasks", {}).values()]
    given = [task.get("inputs", {}).get("parameters", {}).get("code") for task in tasks]
    return [each["runtimeValue"]["constant"] for each in given if each]


def read_annotations(text):
    [_, *platforms] = yaml.safe_load_all(text)
    executors = platforms[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platforms else {}
    return [json.loads(each["podMetadata"]["annotations"][labels.CODE]) for each in executors.values()]


@pytest.mark.parametrize(
    "given",
    [".", {"path": "."}, {"path": "../project"}, "acme/.."],
    ids=str,
)
def test_a_small_project_is_in_the_argument_without_the_authors_path(project, given, tmp_path):
    text = compile_calls({"code": given, "module": "acme.report", "command": []})
    [argument] = read_arguments(text)
    assert argument.keys() == {"sha256", "archive"}
    assert PackedCode.from_object(argument).sha256 == json.loads(pack(project, "--json"))["sha256"]
    assert str(tmp_path) not in text
    found = {"sha256": argument["sha256"], "commit": run_git(project, "rev-parse", "HEAD"), "branch": "main"}
    assert read_annotations(text) == [{**found, "modified": False}]


def pack(folder, *options):
    command = [sys.executable, "-m", "trainjob", "pack", *options]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300).stdout


def test_the_requirements_and_a_written_archive_are_packed(project, tmp_path):
    (project / "requirements.txt").write_text("")
    pack(project, "--output", str(tmp_path / "code.tar.gz"))
    by_folder, by_archive = read_arguments(
        compile_calls(
            {"code": {"path": ".", "requirements": "requirements.txt"}},
            {"code": {"path": "../code.tar.gz", "requirements": "requirements.txt"}},
        )
    )
    assert by_folder == by_archive
    assert by_folder["requirements"] == "requirements.txt"


def test_an_archive_in_a_store_is_an_address():
    digest, secret = "ab" * 32, {"name": "s3"}
    code = {"path": f"s3://models/digits-{digest}.tar.gz", "secret": secret, "endpoint": "https://minio"}
    text = compile_calls({"code": code})
    argument = {"sha256": digest, "uri": code["path"], "secret": secret, "endpoint": code["endpoint"]}
    assert read_arguments(text) == [argument]
    manifest = build_trainjob(make_step(argument), name="a", namespace="b", labels={}, annotations={})
    assert '"secretKeyRef": {"name": "s3"' in json.dumps(manifest)


def test_the_same_files_give_the_same_pipeline_whatever_the_commit(project, tmp_path, monkeypatch):
    """The annotation with the commit is no part of Kubeflow Pipelines' cache key."""
    clone = tmp_path / "elsewhere" / "clone"
    clone.parent.mkdir()
    run_git(tmp_path, "clone", "-q", str(project), str(clone))
    here = compile_calls({"code": "."})
    monkeypatch.chdir(clone)
    assert compile_calls({"code": "."}) == here
    run_git(clone, "checkout", "-q", "-b", "other")
    run_git(clone, "commit", "-q", "--allow-empty", "--message", "second")
    [spec, _], [other, _] = (list(yaml.safe_load_all(text)) for text in (here, compile_calls({"code": "."})))
    assert other == spec
    (clone / "acme" / "arithmetic.py").write_text("def double(number):\n    return number + number\n")
    changed = compile_calls({"code": "."})
    assert read_arguments(changed)[0]["sha256"] != read_arguments(here)[0]["sha256"]
    assert read_annotations(changed)[0]["modified"]


def test_a_folder_outside_of_a_repository_has_no_annotation(project):
    shutil.rmtree(project / ".git")
    assert read_annotations(compile_calls({"code": "."})) == []


def test_each_project_is_packed_once_for_a_pipeline_and_again_for_the_next(project, tmp_path, monkeypatch):
    real, log = shutil.which("git"), tmp_path / "git.log"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {real} "$@"\n')
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    compile_calls({"code": "."})
    once = len(log.read_text().splitlines())
    compile_calls({"code": "."}, {"code": "."}, {"code": "."})
    assert len(log.read_text().splitlines()) == 2 * once


CONTAINED = 40_000  # bytes, of which an argument has 4/3


@pytest.mark.parametrize(
    ("size", "tasks", "loop", "contained"),
    [
        (CONTAINED, 1, None, True),
        (CONTAINED, 2, None, False),
        (CONTAINED // 3, 3, None, True),
        (CONTAINED // 3, 1, ["a", "b", "c"], True),
        (CONTAINED // 3, 1, ["a", "b", "c", "d"], False),
        (60_000, 1, None, False),
        (900_000, 1, None, False),
    ],
)
def test_projects_that_are_too_large_for_a_pipeline_are_references(project, size, tasks, loop, contained, recwarn):
    fill(project, size)
    text = compile_calls(*[{"code": "."}] * tasks, loop=loop)
    found = read_arguments(text)
    assert len(found) == tasks
    digest = found[0]["sha256"]
    reference = {"sha256": digest, "config_map": f"trainjob-code-{digest[:40]}"}
    assert found == [{"sha256": digest, "archive": found[0]["archive"]} if contained else reference] * tasks
    messages = [each for each in recwarn if "ConfigMap" in str(each.message)]
    assert len(messages) == (0 if contained else 1)
    for each in messages:
        command = "trainjob pack . --config-map | kubectl apply --server-side -n NAMESPACE -f -"
        assert str(each.message).endswith(command)
        assert each.filename == __file__
    sizes = len(json.dumps(found)) * len(loop or "1")
    assert sizes <= MAX_ARGUMENT_BYTES


@pytest.mark.filterwarnings("ignore:the project")
def test_only_the_project_that_does_not_fit_is_a_reference(project, tmp_path):
    other = write(tmp_path / "other", {"train.py": ""})
    fill(project, CONTAINED)
    first, small, second = read_arguments(compile_calls({"code": "."}, {"code": str(other)}, {"code": "."}))
    assert first == second
    assert first.keys() == {"sha256", "config_map"}
    assert small.keys() == {"sha256", "archive"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("../missing", "code cannot be '../missing'"),
        ({"path": ".", "requirements": "uv.lock"}, "code.requirements cannot be 'uv.lock': uv.lock is needed"),
        ({"path": ".", "requires": "uv.lock"}, "code.requires: there is no field 'requires' in Code"),
        ({"sha256": "abc", "archive": "AAAA"}, "code.sha256 cannot be 'abc': it must be a SHA-256"),
        ({"sha256": "0" * 64}, "only a constant folder is packed"),
        ({"sha256": "0" * 64, "archive": "A" * 70_000}, f"{MAX_ARGUMENT_BYTES} bytes are allowed"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("project")
def test_a_wrong_project_is_refused_at_the_line_of_the_call(code, message):
    with pytest.raises(InvalidSpec) as raised:
        compile_calls({"code": code})
    assert message in str(raised.value)
    assert f"{__file__}:" in str(raised.value)


def test_a_project_with_a_credential_is_refused_without_its_value(project):
    (project / ".env").write_text("DB_PASSWORD=s3cr3t\n")
    with pytest.raises(InvalidSpec, match="line 1 contains the value of a secret variable") as raised:
        compile_calls({"code": "."})
    assert "s3cr3t" not in str(raised.value)


def test_a_project_that_does_not_fit_into_a_configmap_is_refused(project):
    fill(project, 1_000_000)
    with pytest.raises(InvalidSpec, match=r"1000000 bytes .*\.trainjobignore, or build an image"):
        compile_calls({"code": "."})
    done = subprocess.run(
        [sys.executable, "-m", "trainjob", "pack", "--config-map"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "a ConfigMap can have 1000000 bytes of it" in done.stderr


def test_code_of_the_run_compiles():
    @dsl.pipeline
    def pipeline(code: dict, text: str, digest: str):
        given = {"image": "python:3.11", "module": "acme.report"}
        partly = {"sha256": digest, "config_map": f"trainjob-code-{digest}"}
        for each in (code, text, produce().output, partly, {"path": text}, f"{text}/folder"):
            train(code=each, **given)

    assert "archive" not in golden.compile_to_yaml(pipeline)


@pytest.mark.parametrize(
    "code", [{"path": "."}, {"path": "{"}, {"path": '["a"]'}, {"path": '{"sha256": "0"}'}], ids=str
)
def test_a_folder_of_the_run_is_refused(code):
    with pytest.raises(InvalidSpec, match=r"^code cannot be .*: only a constant folder is packed"):
        steps.train({"image": "python:3.11", "command": ["true"], "code": code}, None)


REFERENCE = {"sha256": "12" * 32, "config_map": "trainjob-code-" + "12" * 20}


def make_step(code=REFERENCE, **arguments):
    return steps.train({"image": "python:3.11", "command": ["true"], "code": code, **arguments}, None)


@pytest.mark.parametrize("code", [REFERENCE, {"path": json.dumps(REFERENCE)}], ids=["dict", "text"])
def test_packed_code_of_the_run_is_mounted(code):
    job = make_step(code)
    manifest = build_trainjob(job, name="a", namespace="b", labels={}, annotations={})
    assert f'"name": "{REFERENCE["config_map"]}"' in json.dumps(manifest)


def make_pod(annotation):
    return {"metadata": {"annotations": {labels.CODE: json.dumps(annotation)}}}


@pytest.mark.parametrize(
    ("annotation", "commit"),
    [
        ({"sha256": "12" * 32, "commit": "abc", "branch": "main", "modified": True}, ("abc", "main", True)),
        ({"sha256": "34" * 32, "commit": "abc"}, ("", "", False)),
        ({"sha256": "12" * 32, "commit": ["abc"]}, ("", "", False)),
        ("text", ("", "", False)),
    ],
    ids=["same", "other code", "wrong type", "text"],
)
def test_the_trainjob_has_the_commit_of_the_launchers_annotation(annotation, commit):
    code = add_origin(make_step(), make_pod(annotation)).trainer.code
    assert (code.commit, code.branch, code.modified) == commit
    assert code.config_map == REFERENCE["config_map"]


def test_without_code_or_pod_nothing_is_added():
    plain = steps.train({"image": "busybox"}, None)
    assert add_origin(plain, make_pod({"sha256": "12" * 32, "commit": "abc"})) is plain
    step = make_step()
    assert add_origin(step, None) is step


class Runner:
    """Runs the pipelines with `kfp.local` in the folder of the project."""

    def __init__(self, laptop, folder, run_id):
        self._laptop, self._folder, self.id = laptop, folder, run_id
        (folder / "pipelines.py").write_text(PIPELINES)

    def __call__(self, name, **values):
        """Return the exit code and the log of a pipeline."""
        done = subprocess.run(
            [sys.executable, RUN_PIPELINE, self._folder / "pipelines.py", name, self._folder, json.dumps(values)],
            env={**os.environ, "KUBECONFIG": str(self._laptop.kubeconfig), "TRAINJOB_RUN_ID": self.id},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout


@pytest.fixture
def run_pipeline(laptop, tmp_path, unique, project):
    (tmp_path / "run").mkdir()
    return Runner(laptop, tmp_path / "run", unique)


@pytest.mark.slow
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
def test_modules_and_functions_use_the_project(run_pipeline):
    code, log = run_pipeline("project")
    assert code == 0, log
    assert "[node-0] node 0: 42" in log
    assert "[node-1] node 1: 42" in log
    assert '[node-0] trainjob result: {"doubled": 6}' in log
    assert '[node-0] trainjob result: {"doubled": 8}' in log


def test_a_command_runs_in_the_project_on_two_nodes(run_pipeline, cluster, project):
    code, log = run_pipeline("plain")
    assert code == 0, log
    assert "[node-0] node 0: 42" in log
    assert "[node-1] node 1: 42" in log
    [job] = cluster.list_trainjobs("default", f"{labels.RUN}={run_pipeline.id}")
    [digest] = {each["sha256"] for each in read_arguments(compile_calls({"code": "."}))}
    assert labels.get_code(job["metadata"])["sha256"] == digest


def test_a_repository_runs_unchanged_on_two_nodes(run_pipeline, tmp_path, monkeypatch):
    expected = make_project(tmp_path / "acme")
    monkeypatch.chdir(tmp_path / "acme")
    code, log = run_pipeline("made")
    assert code == 0, log
    assert [f"[node-{node}] {expected}" in log for node in range(2)] == [True, True], log


def create_config_map(cluster, folder, namespace="default"):
    """Create the ConfigMap that the command prints, and return it."""
    config_map = yaml.safe_load(pack(folder, "--config-map"))
    assert "namespace" not in config_map["metadata"]
    config_map["metadata"]["namespace"] = namespace
    return cluster.create_config_map(config_map)


def test_the_configmap_of_the_command_is_the_code_that_the_run_names(run_pipeline, cluster, project):
    fill(project, 100_000)
    name = create_config_map(cluster, project)["metadata"]["name"]
    reference = {"sha256": json.loads(pack(project, "--json"))["sha256"], "config_map": name}
    code, log = run_pipeline("given", code=reference)
    assert code == 0, log
    assert "[node-0] node 0: 42" in log
    with pytest.warns(UserWarning, match="the project .*/project comes from a ConfigMap"):
        [compiled] = read_arguments(compile_calls({"code": str(project)}))
    assert compiled == reference


def key_of(run_id):
    return RunKey(engine="test", workflow="code", task="train", run=run_id)


def run_step(laptop, unique, code, **options):
    """Run a step whose command needs the project, and return its log."""
    step = make_step(code, command=["python", "acme/report.py"], args=["21"])
    connection = options.pop("connection", None) or Connection(kubeconfig=str(laptop.kubeconfig))
    lines = []
    launch(step, key=key_of(unique), connection=connection, on_line=lambda line: lines.append(line.text), **options)
    return lines


def test_a_missing_configmap_ends_the_step_before_it_creates_a_trainjob(laptop, cluster, unique):
    with pytest.raises(NotFound) as raised:
        run_step(laptop, unique, REFERENCE)
    assert f"there is no ConfigMap {REFERENCE['config_map']} in namespace default" in str(raised.value)
    assert "run: trainjob pack DIR --config-map | kubectl apply --server-side -n default -f -" in str(raised.value)
    assert not cluster.list_trainjobs("default", f"{labels.RUN}={unique}")


def test_a_missing_configmap_of_another_name_has_no_command(laptop, unique):
    with pytest.raises(NotFound, match="create it before the TrainJob"):
        run_step(laptop, unique, {**REFERENCE, "config_map": "of-the-team"})


def test_other_content_of_the_configmap_is_refused_in_the_pod(laptop, cluster, project, unique):
    other = create_config_map(cluster, write(project / "acme", {"new.py": unique}))
    with pytest.raises(JobFailed, match="has other code than the job was created with"):
        run_step(laptop, unique, {"sha256": "56" * 32, "config_map": other["metadata"]["name"]})


def test_an_account_that_may_not_get_configmaps_runs_the_step(laptop, cluster, project, unique):
    client = Client.from_kubeconfig(str(laptop.kubeconfig))
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    create_account(client, unique)
    rules = [
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list", "watch"]},
    ]
    grant(client, unique, rules)
    path = project.parent / "kubeconfig"
    path.write_text(kubeconfig_with_token(str(laptop.kubeconfig), create_token(client, unique), unique))
    client.close()
    config_map = create_config_map(cluster, project, unique)
    reference = {
        "sha256": labels.get_code(config_map["metadata"])["sha256"],
        "config_map": config_map["metadata"]["name"],
    }
    connection = Connection(kubeconfig=str(path))
    with contextlib.closing(Cluster(connection)) as restricted, pytest.raises(PermissionDenied):
        restricted.get_config_map(reference["config_map"], unique)
    lines = run_step(laptop, unique, reference, connection=connection)
    assert "node 0: 42" in lines
