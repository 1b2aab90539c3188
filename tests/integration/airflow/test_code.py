"""Tests of tasks that send the code of a project: where it comes from, when it is packed, and what Airflow keeps of it.

The runtime is that of JAX in most tests, whose scripts need no torchrun.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.integration.airflow.airflow_runs import read_xcom, run_dag
from tests.integration.airflow.test_errors_after_creation import (
    delete_trainjobs,
    list_trainjobs,
    make_context,
    resume,
)
from tests.integration.airflow.test_examples import EXAMPLES
from tests.integration.airflow.test_rendered_trainjob import read_rendered
from tests.support.airflow_versions import DagSerialization, load_dags, needs_overwritten_fields
from tests.support.interruptions import evict
from tests.support.made_project import MODULE as ACME
from tests.support.made_project import make_project
from trainjob.manifest import labels
from trainjob.project_code import list_files, pack, write_archive
from trainjob.spec import Code
from trainjob_airflow.run_key import get_run_key
from trainjob_airflow.version_compat import AirflowFailException, TaskDeferred

pytestmark = pytest.mark.usefixtures("airflow_environment")

TRAIN = """
import os, sys
import pkg.words

print("rank", os.environ["JAX_PROCESS_ID"], pkg.words.WORD, sys.argv[1:])
"""
PROJECT = {
    "project/train.py": TRAIN,
    "project/pkg/__init__.py": "",
    "project/pkg/words.py": "WORD = 'travelled'\n",
    "project/.trainjobignore": "notes.txt\n",
    "project/notes.txt": "stays here\n",
}
START = """
from airflow.sdk import DAG, task
from trainjob import Code, CustomTrainerContainer
from trainjob_airflow import TrainJobOperator

with DAG("travels", params={"project": "project"}):
"""
MODULE = """
    TrainJobOperator(
        task_id="train",
        runtime="jax-distributed",
        code="project",
        trainer=CustomTrainerContainer(image="python:3.12-slim", module="train", args=["--fast"], num_nodes=2),
    )
"""
FIELDS = '"image": "python:3.12-slim", "num_nodes": 2, "args": ["--fast"]'
TASKS = {
    "module": MODULE,
    "script": f"""
    trainer = {{"code": "project", "script": "train.py", {FIELDS}}}
    TrainJobOperator(task_id="train", runtime="jax-distributed", trainer=trainer)
""",
    "whole folder of the DAG": f"""
    trainer = {{"script": "project/train.py", {FIELDS}}}
    TrainJobOperator(task_id="train", runtime="jax-distributed", code=".", trainer=trainer)
""",
    "command": f"""
    trainer = {{"command": ["python", "train.py"], {FIELDS}}}
    TrainJobOperator(task_id="train", runtime="jax-distributed", code=Code(path="./project"), trainer=trainer)
""",
    "template": f"""
    trainer = {{"code": "{{{{ params.project }}}}", "script": "train.py", {FIELDS}}}
    TrainJobOperator(task_id="train", runtime="jax-distributed", trainer=trainer)
""",
    "template of the task": f"""
    trainer = {{"script": "train.py", {FIELDS}}}
    code = "{{{{ params.project }}}}"
    TrainJobOperator(task_id="train", runtime="jax-distributed", code=code, trainer=trainer)
""",
    "archive": f"""
    trainer = {{"module": "train", {FIELDS}}}
    TrainJobOperator(task_id="train", runtime="jax-distributed", code="project.tar.gz", trainer=trainer)
""",
    "function": """
    @task.trainjob(code="project", image="python:3.12-slim", runtime="jax-distributed", num_nodes=2)
    def train(word):
        import os

        import pkg.words

        print("rank", os.environ["JAX_PROCESS_ID"], pkg.words.WORD, [word])

    train("--fast")
""",
    "function with a template": """
    @task.trainjob(
        code={"path": "{{ params.project }}"}, image="python:3.12-slim", runtime="jax-distributed", num_nodes=2
    )
    def train(word):
        import os

        import pkg.words

        print("rank", os.environ["JAX_PROCESS_ID"], pkg.words.WORD, [word])

    train(word="--fast")
""",
}


@pytest.fixture
def bundle(tmp_path):
    """Return the folder of a DAG bundle with a project in the folder `project`."""
    folder = tmp_path / "bundle"
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def load(bundle):
    """Return a function that parses the DAG with a task, and returns the task."""

    def load_task(text=MODULE, folder=bundle, **arguments):
        (folder / "travels.py").write_text(START + text)
        bag = load_dags(folder)
        assert bag.import_errors == {}
        operator = bag.dags["travels"].get_task("train")
        for name, value in arguments.items():
            setattr(operator, name, value)
        operator.render_template_fields({"params": {"project": "project"}})
        return operator

    return load_task


@pytest.fixture
def contexts(cluster, unique):
    """Return a function that makes the context of a try, and delete the TrainJobs at the end."""
    made = []

    def make(task, try_number=1):
        made.append(make_context(task, unique, try_number=try_number, max_tries=3))
        return made[-1]

    yield make
    for context in made:
        delete_trainjobs(cluster, context)


def defer(task, context):
    """Run a part of a task until its deferral, and return the deferral."""
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    return deferred.value


def read_digests(cluster, context):
    """Return the digest of the code of each TrainJob by its name."""
    found = list_trainjobs(cluster, context)
    return {job["metadata"]["name"]: labels.get_code(job["metadata"])["sha256"] for job in found}


def read_archive(cluster, job):
    """Return the content of the ConfigMap with the code of a TrainJob, in base64."""
    return cluster.get_config_map(f"{job}-code", "default")["binaryData"]["code.tar.gz"]


# -- parsing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TASKS.values(), ids=TASKS)
def test_a_parsed_dag_packs_lists_and_reads_nothing(tmp_path, text):
    """The project does not exist, and a git that is called leaves a file."""
    (tmp_path / "bin").mkdir()
    git, called, file = tmp_path / "bin" / "git", tmp_path / "called", tmp_path / "travels.py"
    git.write_text(f"#!/bin/sh\ntouch {called}\nexit 1\n")
    git.chmod(0o755)
    file.write_text(START + text)
    code = (
        "import runpy, sys\n"
        f"runpy.run_path({str(file)!r})\n"
        "print([name for name in sys.modules if name.startswith('trainjob.project_code')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PATH": str(git.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert not called.exists()


def test_two_parses_give_the_same_serialized_dag_without_the_project(bundle, load):
    shutil.rmtree(bundle / "project")
    first, second = (json.dumps(DagSerialization.to_dict(load(TASKS["command"]).dag)["dag"]["tasks"]) for _ in range(2))
    assert first == second
    assert "./project" in first


def test_the_lineage_at_the_start_of_a_task_does_not_read_the_project(bundle, load, contexts):
    shutil.rmtree(bundle / "project")
    assert load().get_openlineage_facets_on_start() is not None


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TASKS.values(), ids=TASKS)
def test_a_program_of_the_project_runs_on_two_nodes(bundle, load, contexts, cluster, capsys, text):
    folder = "." if 'code="."' in text else "project"
    if "tar.gz" in text:
        folder = "project.tar.gz"
        with (bundle / folder).open("wb") as archive:
            write_archive(pack(Code(path="project"), bundle), archive)
        shutil.rmtree(bundle / "project")
    task = load(text, deferrable=False)
    packed = pack(Code(path=folder), bundle)
    files = list_files(bundle / folder)
    context = contexts(task)
    result = task.execute(context)
    printed = capsys.readouterr().out
    for node in (0, 1):
        assert re.search(rf"\[node-{node}\] rank {node} travelled \['--fast'\]", printed), printed
    assert f"code: sha256:{packed.sha256}, {len(files)} files, " in printed
    assert read_digests(cluster, context) == {result["job"]: packed.sha256}
    assert packed.sha256 in task.rendered_trainjob
    kept = [json.dumps(result), *(str(getattr(task, name)) for name in task.template_fields)]
    archive = read_archive(cluster, result["job"])
    assert not [text for text in kept if archive[:40] in text]


def test_a_repository_runs_unchanged_on_two_nodes(bundle, load, contexts, capsys):
    expected = make_project(bundle / "acme")
    text = MODULE.replace('"project"', '"acme"').replace(
        'module="train", args=["--fast"]', f'module="{ACME}", args=["--lr", "1"]'
    )
    task = load(text, deferrable=False)
    task.execute(contexts(task))
    printed = capsys.readouterr().out
    assert [f"[node-{node}] {expected}" in printed for node in range(2)] == [True, True], printed


@pytest.mark.slow
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
@needs_overwritten_fields
def test_the_example_trains_with_torch_and_airflow_stores_only_the_digest(airflow, cluster):
    printed, tasks, state = run_dag(airflow, "project_code", AIRFLOW__CORE__DAGS_FOLDER=str(EXAMPLES))
    assert state == "success", printed[-6000:]
    assert {name: reached for name, (reached, _) in tasks.items()} == dict.fromkeys(tasks, "success")
    job = read_xcom("project_code", "return_value", "train")["job"]
    digest = labels.get_code(cluster.get_trainjob(job, "default")["metadata"])["sha256"]
    assert f"code: sha256:{digest}" in printed
    stored = json.dumps(
        [read_rendered("project_code"), *(read_xcom("project_code", "return_value", name) for name in tasks)]
    )
    assert digest in stored
    assert read_archive(cluster, job)[:40] not in stored


def test_a_checkout_without_git_has_the_digest_of_its_commit(bundle, load, contexts, cluster, capsys, tmp_path):
    """A versioned bundle of git has no `.git`, so that `.gitignore` and `.trainjobignore` decide."""
    (bundle / "project" / ".gitignore").write_text("*.log\npkg/cache/\n")
    (bundle / "travels.py").write_text(START + MODULE)
    for command in (
        ("init", "-q", "-b", "main"),
        ("add", "--all"),
        ("-c", "user.name=Test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(["git", "-C", bundle, *command], check=True)
    commit = subprocess.run(["git", "-C", bundle, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    with_git = load(deferrable=False)
    first = with_git.execute(contexts(with_git))
    assert f", commit {commit.stdout.strip()} (main), from {bundle / 'project'}" in capsys.readouterr().out
    version = tmp_path / "versions" / "1"
    subprocess.run(["git", "clone", "-q", bundle, version], check=True)
    shutil.rmtree(version / ".git")
    (version / "project" / "pkg" / "cache").mkdir()
    for name in ("pkg/cache/words.bin", "steps.log", "notes.txt"):
        (version / "project" / name).write_text("left out")
    without_git = load(folder=version, deferrable=False)
    context = contexts(without_git)
    assert without_git.execute(context)["job"] == first["job"]
    assert f", no commit, from {version / 'project'}" in capsys.readouterr().out
    assert len({*read_digests(cluster, context).values()}) == 1


# -- tries ------------------------------------------------------------------------------------------------------------

WAITING = MODULE.replace('module="train", args=["--fast"]', 'command=["sleep", "60"]')


def test_a_retry_adopts_the_trainjob_of_the_same_files_and_replaces_that_of_changed_ones(
    bundle, load, contexts, cluster
):
    first = load(WAITING)
    created = defer(first, contexts(first)).trigger.reference
    second = load(WAITING)
    adopted = defer(second, contexts(second, 2)).trigger.reference
    assert (adopted["uid"], adopted["adopted"]) == (created["uid"], True)
    (bundle / "project" / "pkg" / "words.py").write_text("WORD = 'changed'\n")
    third = load(WAITING)
    context = contexts(third, 3)
    replaced = defer(third, context).trigger.reference
    assert (replaced["uid"] != created["uid"], replaced["adopted"]) == (True, False)
    assert read_digests(cluster, context)[replaced["name"]] == pack(Code(path="project"), bundle).sha256


def test_neither_the_triggerer_nor_the_end_of_a_task_reads_the_project(bundle, load, contexts, cluster):
    task, resumed = load(), load()
    context = contexts(task)
    deferral = defer(task, context)
    shutil.rmtree(bundle / "project")
    path, arguments = deferral.trigger.serialize()
    stored = json.dumps([arguments, deferral.kwargs])
    result = resume(resumed, context, path, arguments, **deferral.kwargs)
    assert result["phase"] == "Complete"
    [digest] = read_digests(cluster, context).values()
    assert digest in stored
    assert read_archive(cluster, result["job"])[:40] not in stored


@pytest.mark.parametrize("is_changed", [False, True], ids=["the same version", "changed files"])
def test_an_attempt_after_an_interruption_packs_the_project_again(bundle, load, contexts, cluster, is_changed):
    task = load(WAITING)
    context = contexts(task)
    deferral = defer(task, context)
    evict(cluster, f"{labels.RUN_KEY}={get_run_key(context).digest}")
    before = pack(Code(path="project"), bundle).sha256
    if is_changed:
        (bundle / "project" / "train.py").write_text("print('changed')\n")
    with pytest.raises(TaskDeferred) as deferred:
        resume(load(WAITING), context, *deferral.trigger.serialize(), **deferral.kwargs)
    second = deferred.value.trigger.reference
    digest = read_digests(cluster, context)[second["name"]]
    assert second["uid"] != deferral.trigger.reference["uid"]
    assert (digest, digest != before) == (pack(Code(path="project"), bundle).sha256, is_changed)


# -- errors -----------------------------------------------------------------------------------------------------------


def remove_project(project):
    shutil.rmtree(project)


def add_credential(project):
    token = "hf_" + "AbCdEfGhIj" * 3 + "AbCd"  # put together here, because scanners of sources would report it
    (project / "settings.py").write_text(f"TOKEN = {token!r}\n")


def add_large_file(project):
    with (project / "model.bin").open("wb") as file:
        file.truncate(201 << 20)  # sparse


def remove_files(project):
    (project / ".trainjobignore").write_text("*\n")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (remove_project, r"trainer.code.path cannot be 'project': .* does not exist"),
        (add_credential, r"a folder with 'settings\.py': line 1 contains"),
        (add_large_file, r"201\.0 MiB, and 200\.0 MiB are allowed"),
        (remove_files, "it has no file that travels"),
    ],
    ids=["missing folder", "credential", "too large", "no files"],
)
def test_a_project_that_cannot_travel_fails_without_a_retry(bundle, load, contexts, cluster, change, reason):
    change(bundle / "project")
    task = load()
    context = contexts(task)
    with pytest.raises(AirflowFailException, match=reason) as error:
        task.execute(context)
    assert f"The code in {bundle / 'project'} can't be sent" in str(error.value)
    assert not list_trainjobs(cluster, context)
