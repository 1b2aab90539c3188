"""`trainjob watch` on a terminal, into a pipe, and for programs."""

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
    """Starts a watch; the process, and what it has written."""

    def start(*arguments):
        process = start_command("--kubeconfig", api_server.kubeconfig, "watch", *arguments)
        return process, PipeReader(process.stdout.fileno())

    return start


def test_a_line_for_each_change_until_all_that_are_named_have_ended(api_server, start_watch):
    api_server.trainjob("a", make_run_key("a"))
    api_server.trainjob("b", make_run_key("b"), queue="gpus")
    api_server.trainjob("another")
    api_server.runs("a")
    process, told = start_watch("a", "b")
    told.until("TrainJob default/a: Running [node]\n")
    api_server.runs("b")
    told.until("TrainJob default/b: Running [node]\n")
    api_server.ends("a")
    told.until("TrainJob default/a: Complete\n")
    api_server.ends("b", "Failed", FAILURE)
    assert told.rest().splitlines()[-1] == f"TrainJob default/b: Failed [node] (FailedJobs: {FAILURE})"
    assert (process.wait(60), process.stderr.read()) == (3, "")
    assert "another" not in told.text
    asked = api_server.server.asked
    assert (api_server.server.most_watches["trainjobs"], api_server.server.most_watches["pods"]) == (1, 1)
    assert (asked["get trainjobs"], asked["list pods"]) == (0, 1)


def test_for_programs_an_object_in_a_line_of_all_that_are_at_work_until_ctrl_c(api_server, start_watch):
    api_server.trainjob("over")
    api_server.ends("over")
    api_server.trainjob("works", make_run_key("train", "kfp"), nodes=3)
    api_server.runs("works")
    process, told = start_watch("--json")
    told.until('"Running"')
    api_server.trainjob("comes")
    told.until('"comes"')
    api_server.delete("works")
    told.until('"Deleted"')
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    lines = [json.loads(line) for line in told.rest().splitlines()]
    assert [(one["name"], one["phase"]) for one in lines] == [
        ("works", "Running"),
        ("comes", "Pending"),
        ("works", "Deleted"),
    ]
    first = lines[0]
    assert (first["ranks_ready"], first["ranks"], first["progress"], first["percent"]) == (0, 3, None, None)
    assert first["asked_by"]["engine"] == "kfp"


IGNORING_CLOSED_PIPE = """
import signal, sys, threading
from trainjob.cli import main
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
main()
"""


def test_ctrl_c_counts_also_when_it_wakes_nobody(api_server, environment):
    """As when it comes in the moment in which the thread is about to wait: here another thread gets the signal."""
    api_server.trainjob("works")
    api_server.runs("works")
    command = [sys.executable, "-c", IGNORING_CLOSED_PIPE, "--kubeconfig", str(api_server.kubeconfig), "watch"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            PipeReader(process.stdout.fileno()).wait_for("TrainJob default/works: Running [node]")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()


def test_one_that_does_not_exist_is_an_error_at_once(api_server, start_watch):
    process, told = start_watch("nobody")
    assert (process.wait(60), told.rest()) == (1, "")
    assert process.stderr.read() == "error: there is no TrainJob default/nobody\n"


def test_on_a_terminal_a_table_with_progress_loss_and_ranks(cluster, terminal, unique, tmp_path):
    go = tmp_path / "go"
    frames = " ".join(f"'1|{step}|Loss: 2.5: {step}0%|##| {step}/10 ['" for step in range(1, 6))
    script = f"echo 'epochs: 1'; printf '%s\\n' {frames}; until test -e {go}; do sleep 0.05; done"
    trainer = CustomTrainerContainer(image="busybox", command=("sh", "-c", script), num_nodes=2)
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "watch", unique, "run-1"))
    screen = terminal("watch", reference.name)
    screen.see("step 5/10 (50 %), epoch 1/1, loss 2.5")
    screen.see("2/2")
    screen.see("Running")
    go.touch()
    assert screen.end(60) == 0
    assert "\x1b[1;32mComplete" in screen.shown  # in colour
    cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)
