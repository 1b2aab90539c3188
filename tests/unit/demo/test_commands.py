"""The commands that `trainjob demo` runs, and those that it recommends at its end."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from trainjob_demo import runner
from trainjob_demo.engines import ENGINES
from trainjob_demo.engines.kfp import RUN_PIPELINE
from trainjob_demo.errors import DemoError
from trainjob_demo.next_steps import format_next_steps
from trainjob_demo.runner import WORKFLOWS, remove_cluster
from trainjob_local.running_clusters import ClusterRecord

KUBECONFIG = Path("/state of the cluster/kubeconfig")


@pytest.mark.parametrize("name", WORKFLOWS.values())
@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_has_each_workflow(engine, name):
    workflow = ENGINES[engine](Path("/env"), Path("/demo")).workflows / f"{name}.py"
    assert workflow.is_file()
    # The files are examples, too.
    assert (Path(__file__).resolve().parents[3] / "examples" / engine / workflow.name).samefile(workflow)


def test_airflow_runs_the_dag_of_the_file_on_the_cluster():
    command = ENGINES["airflow"](Path("/env"), Path("/demo")).command(Path("/dags/tickets_llm.py"), KUBECONFIG)
    assert command.words == ("/env/bin/airflow", "dags", "test", "tickets_llm")
    assert str(command) == "airflow dags test tickets_llm"
    assert command.environment["AIRFLOW_HOME"] == "/demo/airflow"
    assert command.environment["AIRFLOW__CORE__DAGS_FOLDER"] == "/dags"
    connection = json.loads(command.environment["AIRFLOW_CONN_KUBERNETES_DEFAULT"])
    assert connection["extra"] == {"kube_config_path": str(KUBECONFIG), "namespace": "default"}


def test_kfp_runs_the_pipeline_of_the_file_on_the_cluster():
    command = ENGINES["kfp"](Path("/env"), Path("/demo")).command(Path("/pipelines/tickets_llm.py"), KUBECONFIG)
    python, program, *arguments = command.words
    assert (python, Path(program).is_file()) == ("/env/bin/python", True)
    assert arguments == ["/pipelines/tickets_llm.py", "run"]
    assert command.environment["KUBECONFIG"] == str(KUBECONFIG)


def test_kfp_finds_its_python_in_the_path(tmp_path):
    """kfp writes `sys.executable` into shell commands without quotes."""
    file = tmp_path / "pipeline.py"
    file.write_text("import shutil, sys\nprint(sys.argv[1], sys.executable, shutil.which('python3'), sep='\\n')\n")
    done = subprocess.run([sys.executable, RUN_PIPELINE, file, "run"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["run", "python3", str(Path(sys.executable).with_name("python3"))]


def test_recommended_commands_can_be_pasted_into_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, workflow, cluster, _ = format_next_steps(
        tmp_path / "my model", Path("/a b/dag.py"), tmp_path / "state"
    ).splitlines()
    assert shlex.split(model.partition(":")[2]) == ["ls", "my model"]
    assert shlex.split(workflow.partition(":")[2]) == ["cat", "/a b/dag.py"]
    program, *arguments = shlex.split(cluster.partition(":")[2])
    assert (Path(program).name, arguments) == ("trainjob", ["local", "up", "--state", "state"])


def test_the_files_of_a_running_cluster_are_not_deleted(tmp_path, monkeypatch):
    state = tmp_path / "cluster-airflow"
    state.mkdir()
    running = ClusterRecord(1, "https://127.0.0.1:1", str(state), "", False, "2026-01-01T00:00:00Z")
    monkeypatch.setattr(runner, "list_clusters", lambda: [running])
    with pytest.raises(DemoError, match="is running") as error:
        remove_cluster(state)
    assert error.value.hint == f"stop it: trainjob local down --state {state}"
    assert state.exists()
    monkeypatch.setattr(runner, "list_clusters", list)
    remove_cluster(state)
    assert not state.exists()


def test_an_interrupt_while_the_demo_removes_its_files_does_not_stop_it(tmp_path, monkeypatch):
    removed = []

    @contextlib.contextmanager
    def serve_hub(environment):
        try:
            yield tmp_path, "http://hub"
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            removed.append("demo-hub")

    def fail(*arguments):
        raise DemoError("the DAG failed")

    monkeypatch.setattr(runner, "serve_hub", serve_hub)
    monkeypatch.setattr(runner, "run_chain", fail)
    monkeypatch.setattr(runner, "Scorer", Mock())
    monkeypatch.setattr(runner, "Cluster", Mock())
    monkeypatch.setattr(runner, "LocalCluster", MagicMock())
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(DemoError):
            runner.run_demo("kfp", "trl", {"kfp": tmp_path, "trl": tmp_path}, tmp_path)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert removed == ["demo-hub"]
