"""Texts of users are arguments or variables: no shell interprets them, and pip does not take them as options."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trainjob
import trainjob_local
import trainjob_migrate
from trainjob import (
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    InvalidSpec,
    RunKey,
    TrainJob,
)
from trainjob.lifecycle import Listener, cancel, submit, wait
from trainjob.manifest import build_trainjob, to_trainjob

HOSTILE = [
    "; touch x",
    "$(touch x)",
    "`touch x`",
    "' ; touch x ; '",
    '" ; touch x ; "',
    "a\ntouch x",
    "| touch x",
    "&& touch x",
    "> x",
    "$HOME",
    "${x}",
    "$(PATH)",
    "$$(PATH)",
    "*",
    "~",
    "\\",
]
STEPS = [
    InitializeDataset(storage_uri="hf://a/b", workspace="w"),
    InitializeModel(storage_uri="s3://a/b", workspace="w", secret="s"),
    FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w"),
    FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, dataset="hf://a/b", model_initializer="hf://a/b"),
    ExportModel(workspace="w", destination="s3://a/b"),
]


def print_and_return(value):
    print(value)
    return value


def step_commands():
    """Yield the command and arguments of every kind of step."""
    jobs = [*STEPS, TrainJob(trainer=CustomTrainer(func=print_and_return, func_args={"value": 1}))]
    for job in jobs:
        trainer = build_trainjob(to_trainjob(job), name="n", namespace="team")["spec"]["trainer"]
        yield [*trainer.get("command", ()), *trainer.get("args", ())]


def test_no_step_of_ours_starts_a_shell():
    programs = {re.sub(r"[\d.]+$", "", command[0]) for command in step_commands()}
    assert programs == {"python", "tune"}


@pytest.fixture
def run_and_record(tmp_path):
    """Return a function that runs a trainer and returns its output and pip's arguments."""
    (tmp_path / "pip.py").write_text("import json,sys\nopen('pip.json','w').write(json.dumps(sys.argv[1:]))\n")
    run = tmp_path / "torch" / "distributed"
    run.mkdir(parents=True)
    (run / "run.py").write_text("import runpy,sys\nrunpy.run_path(sys.argv[1], run_name='__main__')\n")

    def execute(trainer):
        job = TrainJob(trainer=trainer)
        command = build_trainjob(job, name="n", namespace="team")["spec"]["trainer"]["command"]
        done = subprocess.run(
            [sys.executable, *command[1:]],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        given = tmp_path / "pip.json"
        return done.stdout, json.loads(given.read_text()) if given.exists() else None

    yield execute
    assert not (tmp_path / "x").exists()


def expand_dollars(word):
    """Replace `$$` by `$`, as Kubernetes does for a container."""
    return word.replace("$$", "$")


def test_packages_and_indexes_are_arguments_of_pip(run_and_record, evidence):
    packages = [text for text in HOSTILE if text.strip()]
    trainer = CustomTrainer(
        func=print_and_return, func_args={"value": 1}, packages_to_install=packages, pip_index_urls=HOSTILE
    )
    _, given = run_and_record(trainer)
    extra = [word for url in HOSTILE[1:] for word in ("--extra-index-url", url)]
    expected = ["install", "--quiet", "--index-url", HOSTILE[0], *extra, *packages]
    assert [expand_dollars(word) for word in given] == expected
    evidence("security", check="shell text as packages and pip indexes", result=f"{len(given)} arguments, unchanged")


def test_arguments_of_a_function_are_data(run_and_record, evidence):
    output, _ = run_and_record(CustomTrainer(func=print_and_return, func_args={"value": HOSTILE}))
    assert json.loads(output.splitlines()[-1].removeprefix("trainjob result: ")) == HOSTILE
    evidence("security", check="shell text as a function's arguments", result=f"{len(HOSTILE)} values, unchanged")


@pytest.mark.parametrize("option", ["--index-url=https://evil.example", "-e.", "-r/etc/passwd", "--", " ", ""])
def test_an_option_as_a_package_is_refused(option):
    with pytest.raises(InvalidSpec, match="packages_to_install"):
        CustomTrainer(func=print_and_return, func_args={"value": 1}, packages_to_install=["numpy", option])


@pytest.mark.parametrize("region", ["--endpoint=x", "-x", "a b", "$(id)", "a\nb"])
def test_an_option_as_a_region_is_refused(region):
    for make in (
        lambda: ExportModel(workspace="w", destination="s3://b/x", region=region),
        lambda: InitializeModel(workspace="w", storage_uri="s3://b/x", region=region),
    ):
        with pytest.raises(InvalidSpec, match="region"):
            make()


def test_values_reach_a_container_unchanged(cluster, unique, evidence):
    """On a cluster, variables are unchanged, and only Kubernetes expands arguments."""
    variables = "[os.environ[f'A{i}'] for i in range(int(sys.argv[1]))]"
    program = f"import json, os, sys; print(json.dumps([sys.argv[1:], {variables}]))"
    plain = [text for text in HOSTILE if "$(" not in text]
    trainer = CustomTrainerContainer(
        image="busybox",
        command=[sys.executable, "-c", program],
        args=[str(len(HOSTILE)), *plain],
        env={f"A{number}": text for number, text in enumerate(HOSTILE)},
    )
    lines = []
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("security", "injection", "values", unique))
    assert wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text))).succeeded
    cancel(cluster, reference)
    assert json.loads(lines[-1]) == [[str(len(HOSTILE)), *plain], HOSTILE]
    evidence("security", check="shell text as variables and arguments of a container", result="unchanged")


NAMES = ["..", "../../api/v1/secrets", "a/b", "a?watch=true", "a%2fb", "A", "", "a b", "-a", "a\n", "x" * 254]


@pytest.mark.parametrize("name", NAMES)
def test_an_invalid_name_is_refused_before_it_is_in_a_url(cluster, name):
    """A namespace or a name is one part of a URL's path and cannot select another path."""
    requests = [
        lambda: cluster.list_trainjobs(name),
        lambda: cluster.open_log("p", name, "c"),
        lambda: cluster.list_events(name, ""),
        lambda: cluster.pod_informer(name).add_event_handler("x", lambda _: None).close(),
    ]
    if name:
        requests += [lambda: cluster.get_trainjob(name, "default"), lambda: cluster.open_log(name, "default", "c")]
    for send in requests:
        with pytest.raises(InvalidSpec, match="Kubernetes name"):
            send()


def test_the_sources_start_no_shell():
    """No source of this project starts a shell; ruff checks this, too (S602-S607, S506).

    The init container of a migrated MPIJob runs one with a fixed script, which gets paths as its arguments.
    """
    packages = (trainjob, trainjob_local, trainjob_migrate)
    paths = [path for package in packages for path in Path(package.__file__).parent.rglob("*.py")]
    shells = re.compile(r"shell=True|os\.system|os\.popen|[\"'](ba)?sh[\"'], *[\"']-")
    assert len(paths) > 100
    found = {path.name: shells.findall(path.read_text("utf-8")) for path in paths}
    assert {name: count for name, hits in found.items() if (count := len(hits))} == {"mpi_files.py": 1}
