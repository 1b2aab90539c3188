"""Tests of `trainjob watch` on a terminal, in a pipe, and with `--json`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key
from tests.integration.cli.pipe_reader import PipeReader
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.lifecycle import submit

FAILURE = "jobset failed due to one or more job failures (first failed job: b-node-0)"


@pytest.fixture
def api_server(tmp_path):
    with bare_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
def start_watch(api_server, start_command):
    """Return a function that starts a watch; it returns the process and its output."""

    def start(*arguments):
        process = start_command("--kubeconfig", api_server.kubeconfig, "watch", *arguments)
        return process, PipeReader(process.stdout.fileno())

    return start


def test_a_pipe_gets_a_line_for_each_change_until_all_named_trainjobs_have_ended(api_server, start_watch):
    api_server.create_trainjob("a", make_run_key("a"))
    api_server.create_trainjob("b", make_run_key("b"), queue="gpus")
    api_server.create_trainjob("another")
    api_server.set_running("a")
    process, output = start_watch("a", "b")
    output.wait_for("TrainJob default/a: Running [node]\n")
    api_server.set_running("b")
    output.wait_for("TrainJob default/b: Running [node]\n")
    api_server.set_finished("a")
    output.wait_for("TrainJob default/a: Complete\n")
    api_server.set_finished("b", "Failed", FAILURE)
    assert output.read_to_end().splitlines()[-1] == f"TrainJob default/b: Failed [node] (FailedJobs: {FAILURE})"
    assert (process.wait(60), process.stderr.read()) == (3, "")
    assert "another" not in output.text
    counts = api_server.server.request_counts
    assert (api_server.server.max_watches["trainjobs"], api_server.server.max_watches["pods"]) == (1, 1)
    assert (counts["get trainjobs"], counts["list pods"]) == (0, 1)


def test_json_has_a_line_for_each_change_of_the_active_trainjobs_until_ctrl_c(api_server, start_watch):
    api_server.create_trainjob("over")
    api_server.set_finished("over")
    api_server.create_trainjob("works", make_run_key("train", "kfp"), nodes=3)
    api_server.set_running("works")
    process, output = start_watch("--json")
    output.wait_for('"Running"')
    api_server.create_trainjob("comes")
    output.wait_for('"comes"')
    api_server.delete("works")
    output.wait_for('"Deleted"')
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    lines = [json.loads(line) for line in output.read_to_end().splitlines()]
    assert [(one["name"], one["phase"]) for one in lines] == [
        ("works", "Running"),
        ("comes", "Pending"),
        ("works", "Deleted"),
    ]
    first = lines[0]
    assert (first["ranks_ready"], first["ranks"], first["progress"], first["percent"]) == (0, 3, None, None)
    assert first["run_key"]["engine"] == "kfp"


def test_the_progress_that_the_trainer_reports_is_shown_without_one_in_the_log(api_server, start_watch):
    metrics = [{"name": name, "value": value} for name, value in (("current_step", "5"), ("total_steps", "9"))]
    api_server.create_trainjob("works")
    api_server.set_running("works")
    api_server.set_status(
        "works",
        {"trainerStatus": {"progressPercentage": 56, "metrics": metrics, "lastUpdatedTime": "2026-01-01T00:00:00Z"}},
    )
    process, output = start_watch("--json")
    output.wait_for('"percent"')
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    [found] = [json.loads(line) for line in output.read_to_end().splitlines()]
    numbers = {"step": 5, "total": 9, "epoch": None, "epochs": None, "loss": None}
    report = {"reported_percent": 56, "reported_at": "2026-01-01T00:00:00Z"}
    assert found["progress"] == {**numbers, **report, "percent": pytest.approx(500 / 9)}


IGNORING_CLOSED_PIPE = """
import signal, sys, threading
from trainjob.cli import main
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
main()
"""


def test_ctrl_c_ends_the_watch_if_another_thread_gets_the_signal(api_server, environment):
    """The same happens if the signal arrives just before the main thread starts to wait."""
    api_server.create_trainjob("works")
    api_server.set_running("works")
    command = [sys.executable, "-c", IGNORING_CLOSED_PIPE, "--kubeconfig", str(api_server.kubeconfig), "watch"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            PipeReader(process.stdout.fileno()).wait_for("TrainJob default/works: Running [node]")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()


def test_an_unknown_name_is_an_error_at_once(api_server, start_watch):
    process, output = start_watch("nobody")
    assert (process.wait(60), output.read_to_end()) == (1, "")
    assert process.stderr.read() == "error: there is no TrainJob default/nobody\n"


def test_a_terminal_shows_a_table_with_progress_loss_and_ranks(cluster, terminal, unique, tmp_path):
    go = tmp_path / "go"
    frames = " ".join(f"'1|{step}|Loss: 2.5: {step}0%|##| {step}/10 ['" for step in range(1, 6))
    script = f"echo 'epochs: 1'; printf '%s\\n' {frames}; until test -e {go}; do sleep 0.05; done"
    trainer = CustomTrainerContainer(image="busybox", command=("sh", "-c", script), num_nodes=2)
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "watch", unique, "run-1"))
    screen = terminal("watch", reference.name)
    screen.wait_for_text("step 5/10 (50 %), epoch 1/1, loss 2.5")
    screen.wait_for_text("2/2")
    screen.wait_for_text("Running")
    go.touch()
    assert screen.wait_for_exit(60) == 0
    assert "\x1b[1;32mComplete" in screen.output  # in color
    cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)
