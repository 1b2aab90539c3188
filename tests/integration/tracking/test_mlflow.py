"""Trainings that are tracked on a real MLflow server."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace

import pytest

from tests.integration.tracking.tracked_programs import (
    mlflow_run,
    python,
    read_line,
    run_tracked,
    start_tracked,
    wait_for_end,
)
from tests.support.http_proxy import HookedProxy, authorizing_proxy
from tests.support.mlflow_server import MLflowServer
from tests.support.polling import wait_until
from trainjob.programs.fetch.record import RecordedFile, RecordWriter

STEPS = "[step(number, 1 / number) for number in range(1, 4)]"
UNTIL_SIGTERM = f"""
import signal
import time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
{STEPS}
signal.pause()
"""
WHEN_FILE_EXISTS = """
import pathlib, time
def wait_for(path):
    while not pathlib.Path(path).exists():
        time.sleep(0.01)
"""


def only_run(server, experiment):
    [run] = server.list_runs(experiment)
    return run


def tags_of(run):
    return {each["key"]: each["value"] for each in run["data"]["tags"]}


def losses(server, run):
    return server.get_metric_history(run["info"]["run_id"], "loss")


def failure_of(server_or_proxy, line):
    """Return the error in the log's line about a failure of MLflow."""
    start = f"tracking: MLflow ({server_or_proxy}) failed, and is tried again while the training continues: "
    assert line.startswith(start)
    return line.removeprefix(start)


@pytest.mark.slow
def test_a_run_has_parameters_tags_metrics_and_an_end(mlflow, unique):
    ended = run_tracked(mlflow_run(mlflow.url, unique), python(STEPS))
    assert (ended.code, ended.errors) == (0, "")
    run = only_run(mlflow, unique)
    info = run["info"]
    address = f"{mlflow.url}/#/experiments/{info['experiment_id']}/runs/{info['run_id']}"
    assert ended.own_lines == [f"tracking: run {address}"]
    assert (info["status"], info["run_name"]) == ("FINISHED", "tune run-1")
    assert {each["key"]: each["value"] for each in run["data"]["params"]} == {"epochs": "2", "a/b": "x"}
    assert tags_of(run).items() >= {"trainjob.attempt": "1", "trainjob.task": "tune"}.items()
    assert losses(mlflow, run) == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert mlflow.get_metric_history(info["run_id"], "lr") == [(1, 0.1), (2, 0.1), (3, 0.1)]


def fetch_record(folder):
    """Write the record of a fetched dataset with two files."""
    files = [RecordedFile("data/a.jsonl", 5, "", "ab" * 32), RecordedFile("data/b.jsonl", 7, "etag", "")]
    writer = RecordWriter(folder, "hf://demo/tickets", "1234abcd", files[:1])
    writer.add(files[1])
    return writer


@pytest.mark.slow
def test_a_run_has_the_fetched_dataset_once(mlflow, unique, tmp_path):
    run = mlflow_run(mlflow.url, unique)
    run = replace(run, options={**run.options, "dataset": str(tmp_path)})
    writer = fetch_record(tmp_path)
    assert run_tracked(run, python(STEPS)).code == 0
    assert "inputs" not in only_run(mlflow, unique) or not only_run(mlflow, unique)["inputs"]
    writer.finish()
    for _ in range(2):
        assert run_tracked(run, python(STEPS)).code == 0
    [found] = only_run(mlflow, unique)["inputs"]["dataset_inputs"]
    assert found["tags"] == [{"key": "mlflow.data.context", "value": "training"}]
    assert (found["dataset"]["name"], found["dataset"]["source_type"]) == ("demo/tickets", "hf")
    assert json.loads(found["dataset"]["source"]) == {"uri": "hf://demo/tickets", "revision": "1234abcd"}
    assert len(found["dataset"]["digest"]) == 36


@pytest.mark.slow
def test_a_server_that_lacks_datasets_gets_the_metrics(mlflow, unique, tmp_path):
    fetch_record(tmp_path).finish()
    requests = []

    def refuse(request, done):
        if not request.path.endswith("/log-inputs"):
            return 0
        requests.append(request.path)
        return 404

    with HookedProxy(mlflow.url, refuse) as proxy:
        run = mlflow_run(proxy.url, unique)
        run = replace(run, options={**run.options, "dataset": str(tmp_path)})
        ended = run_tracked(run, python(STEPS))
    first, second = ended.own_lines
    assert first.startswith(f"tracking: run {proxy.url}/")
    assert second.startswith(f"tracking: the dataset is not recorded in MLflow ({proxy.url}): MlflowException: ")
    assert "404" in second
    found = only_run(mlflow, unique)
    assert (found["info"]["status"], losses(mlflow, found)) == ("FINISHED", [(1, 1.0), (2, 0.5), (3, 1 / 3)])
    assert len(requests) == 1


@pytest.mark.slow
def test_map_indexes_have_one_parent(mlflow, unique):
    """Two map indexes that start at once create the parent if they find none."""
    tags = {"trainjob.engine": "airflow", "trainjob.workflow": "dag", "trainjob.task": "tune", "trainjob.run": "run-1"}

    def start(index):
        run = mlflow_run(mlflow.url, unique, run_id=f"{unique}-{index}", tags={**tags, "trainjob.map_index": index})
        return start_tracked(replace(run, options={**run.options, "parent": f"{unique}-parent"}), python(STEPS))

    processes = [start(index) for index in ("0", "1")]
    assert [wait_for_end(process).code for process in processes] == [0, 0]
    assert wait_for_end(start("0")).code == 0  # a later attempt
    [parent] = [run for run in mlflow.list_runs(unique) if "trainjob.map_index" not in tags_of(run)]
    children = [run for run in mlflow.list_runs(unique) if run != parent]
    assert (parent["info"]["run_name"], parent["info"]["status"]) == ("tune run-1", "FINISHED")
    assert tags_of(parent).items() >= {**tags, "trainjob.tracked_run": f"{unique}-parent"}.items()
    assert [tags_of(run)["mlflow.parentRunId"] for run in children] == [parent["info"]["run_id"]] * 2


OFTEN = {"MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL": "0.1"}
CPU = "system/cpu_utilization_percentage"


def measured_run(url, unique):
    run = mlflow_run(url, unique)
    return replace(run, options={**run.options, "system_metrics": "true"})


def read_cpu(server, experiment):
    runs = server.list_runs(experiment) if server.has_experiment(experiment) else []
    return [step for run in runs for step, _ in server.get_metric_history(run["info"]["run_id"], CPU)]


@pytest.mark.slow
def test_system_metrics_continue_in_a_later_attempt(mlflow, unique):
    counts = []
    for _ in range(2):
        process = start_tracked(measured_run(mlflow.url, unique), python(UNTIL_SIGTERM), env=OFTEN)
        wait_until(lambda: len(read_cpu(mlflow, unique)) > (counts or [0])[-1] + 2)
        process.send_signal(signal.SIGTERM)
        ended = wait_for_end(process)
        assert (ended.code, len(ended.own_lines)) == (0, 1)
        counts.append(len(read_cpu(mlflow, unique)))
    assert read_cpu(mlflow, unique) == list(range(counts[-1]))
    assert only_run(mlflow, unique)["info"]["status"] == "KILLED"


@pytest.mark.slow
def test_an_image_without_psutil_has_no_system_metrics(mlflow, unique, tmp_path):
    (tmp_path / "psutil.py").write_text("raise ModuleNotFoundError(\"No module named 'psutil'\", name='psutil')")
    env = {**OFTEN, "PYTHONPATH": str(tmp_path)}
    ended = run_tracked(measured_run(mlflow.url, unique), python(STEPS), env=env)
    cause = "ModuleNotFoundError: No module named 'psutil'"
    assert ended.own_lines[1:] == [f"tracking: no system metrics are sent to MLflow ({mlflow.url}): {cause}"]
    run = only_run(mlflow, unique)
    assert (run["info"]["status"], len(losses(mlflow, run)), read_cpu(mlflow, unique)) == ("FINISHED", 3, [])


@pytest.mark.slow
def test_a_later_attempt_continues_the_run(mlflow, unique):
    first = mlflow_run(mlflow.url, unique)
    assert run_tracked(first, python(f"{STEPS}; sys.exit(3)")).code == 3
    run = only_run(mlflow, unique)
    assert run["info"]["status"] == "FAILED"
    second = replace(first, tags={**first.tags, "trainjob.attempt": "2"}, parameters={"epochs": "9", "new": "1"})
    assert run_tracked(second, python("[step(number, 0.25) for number in (3, 4)]")).code == 0
    again = only_run(mlflow, unique)
    assert again["info"]["run_id"] == run["info"]["run_id"]
    assert (again["info"]["status"], tags_of(again)["trainjob.attempt"]) == ("FINISHED", "2")
    assert losses(mlflow, again) == [(1, 1.0), (2, 0.5), (3, 0.25), (3, 1 / 3), (4, 0.25)]
    parameters = {each["key"]: each["value"] for each in again["data"]["params"]}
    assert parameters == {"epochs": "2", "a/b": "x", "new": "1"}  # MLflow refuses another value


@pytest.mark.slow
def test_a_pod_that_gets_sigterm_is_killed_whatever_its_exit_code(mlflow, unique):
    process = start_tracked(mlflow_run(mlflow.url, unique), python(UNTIL_SIGTERM))
    read_line(process, "tracking: run ")  # an import of mlflow may take longer than the 10 s after SIGTERM
    process.send_signal(signal.SIGTERM)
    assert wait_for_end(process).code == 0
    run = only_run(mlflow, unique)
    assert (run["info"]["status"], len(losses(mlflow, run))) == ("KILLED", 3)


@pytest.mark.slow
def test_metrics_with_names_that_mlflow_refuses(mlflow, unique):
    names = {"a//b": "a/b", "/c": "c", "../d": "d", "e(f)": "e_f_", "..g": "_.g", "h/.": "h"}
    values = {name: str(number) for number, name in enumerate(names)}
    row = {"loss": "1.0", "learning_rate": "0.1", **values, "epoch": "1.0", "step": 5, "max_steps": 10}
    ended = run_tracked(mlflow_run(mlflow.url, unique), python(f"print({row})"))
    assert len(ended.own_lines) == 1
    metrics = {each["key"]: each["value"] for each in only_run(mlflow, unique)["data"]["metrics"]}
    expected = {valid: float(number) for number, valid in enumerate(names.values())}
    assert metrics == {"loss": 1.0, "learning_rate": 0.1, **expected}


@pytest.mark.slow
def test_a_run_that_is_deleted_meanwhile_is_created_again(mlflow, unique, tmp_path):
    """A user deletes the run; the values after that are in a new one."""
    go_on = tmp_path / "go-on"
    source = f"{WHEN_FILE_EXISTS}\nstep(1, 1.0)\nwait_for({str(go_on)!r})\nstep(2, 0.5)"
    process = start_tracked(mlflow_run(mlflow.url, unique), python(source))
    read_line(process, "tracking: run ")
    deleted = wait_until(lambda: next((run for run in mlflow.list_runs(unique) if losses(mlflow, run)), None))
    mlflow.delete_run(deleted["info"]["run_id"])
    go_on.touch()
    ended = wait_for_end(process)
    [line] = ended.own_lines
    assert "deleted" in failure_of(mlflow.url, line)
    run = only_run(mlflow, unique)
    assert (ended.code, run["info"]["status"]) == (0, "FINISHED")
    assert losses(mlflow, run) == [(2, 0.5)]


@pytest.mark.slow
def test_pods_that_start_at_once_have_one_run(mlflow, unique):
    """Each recorder creates a run if it finds none; the oldest one remains."""
    processes = [start_tracked(mlflow_run(mlflow.url, unique), python(STEPS)) for _ in range(3)]
    assert [wait_for_end(process).code for process in processes] == [0, 0, 0]
    run = only_run(mlflow, unique)
    assert run["info"]["status"] == "FINISHED"
    assert {step for step, _ in losses(mlflow, run)} == {1, 2, 3}


@pytest.mark.slow
def test_of_several_runs_the_oldest_remains(mlflow, unique):
    """Two runs exist if the answer to the request that created the first one was lost."""
    run = mlflow_run(mlflow.url, unique)
    oldest, _ = [mlflow.create_run(unique, {"trainjob.tracked_run": run.run_id}, start) for start in (1000, 2000)]
    run_tracked(run, python(STEPS))
    assert only_run(mlflow, unique)["info"]["run_id"] == oldest


@pytest.mark.slow
def test_an_unreachable_server_costs_two_lines(refusing_url, unique):
    process = start_tracked(mlflow_run(refusing_url, unique), python(UNTIL_SIGTERM))
    cause = failure_of(refusing_url, read_line(process, "tracking: "))
    assert "Connection refused" in cause
    process.send_signal(signal.SIGTERM)
    ended = wait_for_end(process)
    [line] = ended.own_lines
    assert ended.code == 0
    start = f"tracking: 3 of 3 steps were not sent to MLflow ({refusing_url}): MlflowException: "
    assert line.startswith(start)
    assert line.endswith(cause[-60:])


@pytest.mark.slow
def test_a_server_that_dies_and_returns_gets_all_values(unique, tmp_path):
    go_on, end = tmp_path / "go-on", tmp_path / "end"
    source = f"{WHEN_FILE_EXISTS}\nstep(1, 1.0)\nwait_for({str(go_on)!r})\nstep(2, 0.5)\nwait_for({str(end)!r})"
    with MLflowServer() as server:
        process = start_tracked(measured_run(server.url, unique), python(source), env=OFTEN)
        read_line(process, "tracking: run ")
        wait_until(lambda: [run for run in server.list_runs(unique) if losses(server, run)])
        wait_until(lambda: read_cpu(server, unique))
        server.stop()
        go_on.touch()
        failure_of(server.url, read_line(process, "tracking: "))
        server.start()
        before = len(read_cpu(server, unique))
        wait_until(lambda: len(read_cpu(server, unique)) > before)
        end.touch()
        ended = wait_for_end(process, 180)
        run = only_run(server, unique)
        assert losses(server, run) == [(1, 1.0), (2, 0.5)]
    assert (ended.code, ended.own_lines) == (0, [])
    assert run["info"]["status"] == "FINISHED"


@pytest.mark.slow
def test_a_login(mlflow, unique):
    with authorizing_proxy(mlflow.url, "Bearer right") as proxy:
        run = mlflow_run(proxy.url, unique)
        assert run_tracked(run, python(STEPS), env={"MLFLOW_TRACKING_TOKEN": "right"}).code == 0
        found = only_run(mlflow, unique)
        assert (found["info"]["status"], len(losses(mlflow, found))) == ("FINISHED", 3)
        process = start_tracked(run, python(UNTIL_SIGTERM), env={"MLFLOW_TRACKING_TOKEN": "the-wrong-one"})
        cause = failure_of(proxy.url, read_line(process, "tracking: "))
        process.send_signal(signal.SIGTERM)
        ended = wait_for_end(process)
        started = time.monotonic()
        refused = run_tracked(run, python(STEPS), env={"MLFLOW_TRACKING_TOKEN": "the-wrong-one"})
    assert time.monotonic() - started < 40  # it does not wait for 60 s after the end of the training
    assert refused.own_lines[-1] == f"tracking: 3 of 3 steps were not sent to MLflow ({proxy.url}): {cause}"
    assert "401" in cause
    assert "the-wrong-one" not in cause + ended.output + ended.errors
    [line] = ended.own_lines
    assert line == f"tracking: 3 of 3 steps were not sent to MLflow ({proxy.url}): {cause}"
