"""Tests of `trainjob run`: the ways in which it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from http import HTTPStatus

import pytest
import yaml

from tests.integration.cli.gated_steps import GatedStep, wait_for_only_trainjob
from tests.support.api_proxy import ApiProxy
from tests.support.laptop_memory import RUN_ON_TWO_NODES, get_large_memory
from tests.support.pseudo_terminal import CTRL_C
from trainjob.status import derive_verdict

SECONDS = 300.0


def test_run_prints_phases_and_the_logs_of_all_ranks(trainjob, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune", nodes=2)
    work.open_gate()
    done = trainjob("run", work.file, "-n", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].endswith(": created")
    assert {"[node-0] done", "[node-1] done"} <= set(lines)
    assert re.fullmatch(rf"TrainJob {namespace}/tune-[0-9a-f]{{8}} is complete( after \d+ s)?", lines[-1])


def test_a_step_that_gets_too_few_nodes_runs_on_fewer(trainjob, cluster, namespace, tmp_path):
    trainer = {
        "image": "busybox",
        "command": ["sh", "-c", RUN_ON_TWO_NODES],
        "num_nodes": [1, 4],
        "shrink_after": 1,
        "resources_per_node": {"memory": get_large_memory(cluster)},
    }
    (tmp_path / "tune.yaml").write_text(yaml.safe_dump({"step": "TrainJob", "name": "tune", "trainer": trainer}))
    done = trainjob("run", tmp_path / "tune.yaml", "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert "requests 4 of 1 to 4 nodes. After 1 s without them, the next attempt requests 2" in done.stderr
    assert "no reservation for 4 nodes within 1 s; the next attempt requests 2 nodes" in done.stdout
    assert {"[node-0] of 2", "[node-1] of 2"} <= set(done.stdout.splitlines())


def test_a_failure_has_its_exit_code_reason_and_advice(trainjob, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune", code=7)
    work.open_gate()
    as_text, as_json = (trainjob("run", work.file, "-n", namespace, *more) for more in ([], ["--json"]))
    assert (as_text.returncode, as_json.returncode) == (3, 3)
    assert "exit code 7" in as_text.stderr
    assert as_text.stderr.splitlines()[-1].startswith("  -> ")
    [outcome] = json.loads(as_json.stdout)
    assert (outcome["phase"], outcome["exit_code"], outcome["log_tail"]) == ("Failed", 7, ["begun", "done"])


@pytest.mark.slow
def test_steps_run_in_order_until_one_fails_and_a_second_run_continues_there(trainjob, cluster, namespace, tmp_path):
    first, second = GatedStep(tmp_path, "first"), GatedStep(tmp_path, "second", code=1)
    third = GatedStep(tmp_path, "third")
    for work in (first, second, third):
        work.open_gate()
    chain = yaml.safe_dump_all([work.document for work in (first, second, third)])
    done = trainjob("run", "-", "-n", namespace, "--run-id", "monday", "--json", input=chain)
    assert (done.returncode, [one["phase"] for one in json.loads(done.stdout)]) == (3, ["Complete", "Failed"])
    assert len(cluster.list_trainjobs(namespace)) <= 2
    fixed = GatedStep(tmp_path, "second")
    chain = yaml.safe_dump_all([work.document for work in (first, fixed, third)])
    again = trainjob("run", "-", "-n", namespace, "--run-id", "monday", "--json", input=chain)
    ends = json.loads(again.stdout)
    assert (again.returncode, [one["phase"] for one in ends]) == (0, ["Complete"] * 3)
    assert ends[0]["uid"] == json.loads(done.stdout)[0]["uid"]


def test_a_killed_run_that_is_started_again_adopts_its_trainjob(start_command, trainjob, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    killed = start_command("run", work.file, "-n", namespace)
    job = wait_for_only_trainjob(cluster, namespace, phase="Running")
    killed.kill()
    killed.wait(SECONDS)
    again = start_command("run", work.file, "-n", namespace)
    assert again.stdout.readline().endswith(": adopted, because it already existed\n")
    work.open_gate()
    assert again.wait(SECONDS) == 0
    assert "[node-0] begun\n" in again.stdout.read()  # from the beginning
    assert [each["metadata"]["uid"] for each in cluster.list_trainjobs(namespace)] == [job["metadata"]["uid"]]


def test_the_deletion_of_an_adopted_trainjob_starts_another_attempt(start_command, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    killed = start_command("run", work.file, "-n", namespace)
    job = wait_for_only_trainjob(cluster, namespace, phase="Running")
    killed.kill()
    killed.wait(SECONDS)
    again = start_command("run", work.file, "-n", namespace)
    assert again.stdout.readline().endswith(": adopted, because it already existed\n")
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    assert cluster.delete_trainjob(name, namespace, uid)
    work.open_gate()
    printed, errors = again.communicate(timeout=SECONDS)
    assert (again.returncode, errors) == (0, "")
    notice = f"TrainJob {namespace}/{name} was deleted after it was adopted; starting another attempt\n"
    assert "created" in printed.partition(notice)[2]
    assert wait_for_only_trainjob(cluster, namespace)["metadata"]["uid"] != uid


def test_ctrl_c_deletes_the_trainjob_and_prints_it(terminal, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    screen = terminal("run", work.file, "-n", namespace)
    screen.wait_for_text("begun")
    name = wait_for_only_trainjob(cluster, namespace)["metadata"]["name"]
    screen.send_keys(CTRL_C)
    assert screen.wait_for_exit() == 130
    assert f"interrupted: ending TrainJob {namespace}/{name}" in screen.output
    assert f"TrainJob {namespace}/{name}: it was deleted" in screen.output
    assert cluster.get_trainjob(name, namespace) is None
    assert "Traceback" not in screen.output


@pytest.mark.slow
@pytest.mark.parametrize(("on_kill", "became"), [("delete", "it was deleted"), ("keep", "it continues to run")])
def test_sigterm_applies_the_kill_action(start_command, cluster, namespace, tmp_path, on_kill, became):
    work = GatedStep(tmp_path, "tune", on_kill=on_kill)
    process = start_command("run", work.file, "-n", namespace)
    name = wait_for_only_trainjob(cluster, namespace, phase="Running")["metadata"]["name"]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert errors.endswith(f"TrainJob {namespace}/{name}: {became}\n")
    assert (cluster.get_trainjob(name, namespace) is None) == (on_kill == "delete")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["latency 0.1", "latency 1", "latency 4", "throttled", "away"])
def test_sigterm_deletes_the_trainjob_whatever_the_api_does(
    start_command, laptop, cluster, namespace, tmp_path, fault, evidence
):
    work = GatedStep(tmp_path, "tune")
    with ApiProxy(laptop) as proxy:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(proxy.kubeconfig))
        process = start_command("--kubeconfig", kubeconfig, "run", work.file, "-n", namespace)
        name = wait_for_only_trainjob(cluster, namespace, phase="Running")["metadata"]["name"]
        proxy.delay_responses(float(fault.removeprefix("latency ")) if fault.startswith("latency") else 0.0)
        if fault == "throttled":
            proxy.reject_requests(HTTPStatus.TOO_MANY_REQUESTS)
            threading.Timer(5, proxy.accept_requests).start()
        if fault == "away":
            proxy.disconnect()
            threading.Timer(30, proxy.start_listening).start()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert errors.endswith(f"TrainJob {namespace}/{name}: it was deleted\n")
    assert cluster.get_trainjob(name, namespace) is None
    evidence("faults", fault=f"SIGTERM to `trainjob run`, API {fault}", runs=1, result="0 TrainJobs left")


@pytest.mark.slow
def test_a_closed_output_pipe_ends_the_command_and_the_trainjob_continues(start_command, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    process = start_command("run", work.file, "-n", namespace)
    assert process.stdout.readline().endswith(": created\n")
    process.stdout.close()
    assert process.wait(SECONDS) == -signal.SIGPIPE
    assert process.stderr.read() == ""
    assert not derive_verdict(wait_for_only_trainjob(cluster, namespace)).phase.finished


def test_a_terminal_shows_a_progress_bar(terminal, namespace, tmp_path):
    frames = "echo 'epochs: 1'; echo '1|21|Loss: 2.5:  50%|##  | 21/42 [00:01<00:01]'"
    work = GatedStep(tmp_path, "tune", first_command=frames)
    screen = terminal("run", work.file, "-n", namespace)
    screen.wait_for_text("step 21/42 (50 %), epoch 1/1, loss 2.5")
    screen.wait_for_text("━")
    work.open_gate()
    assert screen.wait_for_exit() == 0
    assert "[node-0]" in screen.output


@pytest.mark.slow
def test_an_unknown_runtime_is_refused_before_anything_is_created(trainjob, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune", runtime="torch-distribted")
    done = trainjob("run", work.file, "-n", namespace)
    assert (done.returncode, cluster.list_trainjobs(namespace)) == (2, [])
    assert "did you mean torch-distributed?" in done.stderr


def test_a_second_ctrl_c_exits_at_once_if_the_cluster_does_not_respond(terminal, tmp_path):
    work = GatedStep(tmp_path, "tune")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "config"
        cluster = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        content = {
            "clusters": [{"name": "silent", "cluster": cluster}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "silent", "context": {"cluster": "silent", "user": "me"}}],
            "current-context": "silent",
        }
        kubeconfig.write_text(yaml.safe_dump(content))
        screen = terminal("--kubeconfig", kubeconfig, "run", work.file)
        silent.settimeout(SECONDS)
        connection, _ = silent.accept()  # from now on the command waits for a response
        with connection:
            connection.settimeout(SECONDS)
            assert connection.recv(4) == b"GET "
            screen.send_keys(CTRL_C)
            screen.wait_for_text("interrupted: ending the TrainJob that is being created; interrupt again to leave it")
            screen.send_keys(CTRL_C)
            assert screen.wait_for_exit() == 130
