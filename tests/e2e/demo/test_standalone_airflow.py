"""`trainjob airflow`: Airflow's UI, a DAG that trains with the demo's Hub, Ctrl-C, and a second start."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import uuid

import pytest

from tests.e2e.demo.demo_processes import find_processes
from tests.e2e.demo.test_demo import ENVIRONMENTS, ROOT, TRAINJOB
from tests.support.polling import wait_until

GATED = """
from airflow.sdk import dag

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator


@dag(schedule=None, default_args={{"retries": 2}})
def gated():
    command = ("sh", "-c", "until [ -e '{gate}' ]; do sleep 0.2; done")
    TrainJobOperator(task_id="train", trainer=CustomTrainerContainer(image="busybox", command=command))


gated()
"""

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("torchrun_lock")]


@pytest.fixture
def mark(monkeypatch):
    value = uuid.uuid4().hex
    monkeypatch.setenv("DEMO_MARK", value)
    return value


@pytest.fixture
def dags(tmp_path):
    folder = tmp_path / "my dags"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "airflow" / "trl_sft.py", folder)
    return folder


def find_free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Started:
    """A running `trainjob airflow`, and its REST API as the user `admin`."""

    def __init__(self, dags, state, *options):
        self.port = find_free_port()
        command = [TRAINJOB, "airflow", dags, "--state", state, "--port", str(self.port), *ENVIRONMENTS, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("Stop everything"):
                break
        else:
            pytest.fail(self.process.stderr.read())
        [self.password] = re.findall(r"\(user admin, password (\S+)\)", "\n".join(self.lines))
        self.token = self.request("POST", "/auth/token", {"username": "admin", "password": self.password})[
            "access_token"
        ]

    def request(self, method, path, body=None):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {getattr(self, 'token', '')}"}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, json.dumps(body), headers)
            response = connection.getresponse()
            assert response.status < 300, (path, response.status, response.read())
            return json.load(response)

    def run_in_shell(self, command):
        """Run a command in a shell with the variables that the last but one line names."""
        [source] = [line.split("(")[0].partition(":")[2] for line in self.lines if line.startswith("a shell:")]
        done = subprocess.run(["sh", "-ec", f"{source}\n{command}"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def wait_for_run(self, dag, run):
        def find_end():
            state = self.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")["state"]
            return state if state in ("success", "failed") else None

        return wait_until(find_end, 600, interval=1.0)

    def list_jobs(self):
        return json.loads(self.run_in_shell(shlex.join([TRAINJOB, "list", "--json"])))

    def stop(self):
        os.kill(self.process.pid, signal.SIGINT)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


def test_a_dag_runs_in_the_ui_and_a_second_start_has_its_run(dags, tmp_path, mark):
    state = tmp_path / "state of airflow"
    airflow = Started(dags, state, "--demo-hub")
    airflow.run_in_shell("airflow dags unpause trl_sft; airflow dags trigger trl_sft --run-id first")
    assert airflow.wait_for_run("trl_sft", "first") == "success"
    jobs = airflow.list_jobs()
    assert sorted(job["phase"] for job in jobs) == ["Complete"] * 4
    assert stat_mode(state / "airflow" / "simple_auth_manager_passwords.json.generated") == 0o600
    listening = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=True).stdout
    assert [line for line in listening.splitlines() if f":{airflow.port} " in line and "127.0.0.1" in line]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        subprocess.run(
            [TRAINJOB, "airflow", dags, "--state", state, *ENVIRONMENTS], check=True, capture_output=True, text=True
        )
    assert "already running in this folder" in refused.value.stderr
    assert airflow.stop() == (0, "")
    wait_until(lambda: not find_processes(mark, state))

    again = Started(dags, state, "--demo-hub")
    assert again.password == airflow.password
    assert again.request("GET", "/api/v2/dags/trl_sft/dagRuns/first")["state"] == "success"
    assert len(again.list_jobs()) == 4
    assert again.stop() == (0, "")
    wait_until(lambda: not find_processes(mark, state))


def test_a_training_continues_after_the_next_start(tmp_path, mark):
    """The training ends only when a file exists, which the test creates after the second start."""
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "gated.py").write_text(GATED.format(gate=tmp_path / "gate"))
    airflow = Started(tmp_path / "dags", tmp_path / "state")
    airflow.run_in_shell("airflow dags unpause gated; airflow dags trigger gated --run-id killed")
    training = wait_until(lambda: next((job for job in airflow.list_jobs() if job["phase"] == "Running"), None))
    assert airflow.stop() == (0, "")
    wait_until(lambda: not find_processes(mark, tmp_path / "state"))

    again = Started(tmp_path / "dags", tmp_path / "state")
    (tmp_path / "gate").touch()
    assert again.wait_for_run("gated", "killed") == "success"
    [finished] = again.list_jobs()
    assert (finished["uid"], finished["phase"]) == (training["uid"], "Complete")
    assert again.stop() == (0, "")


def stat_mode(path):
    return path.stat().st_mode & 0o777


def test_a_component_that_ends_stops_everything_and_shows_its_log(dags, tmp_path, mark):
    program = tmp_path / "broken" / "bin" / "airflow"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\ncase "$1" in\n  db) ;;\n  triggerer) echo no memory; exit 7;;\n  *) sleep 600;;\nesac\n'
    )
    program.chmod(0o755)
    (program.parent / "python").symlink_to("/bin/true")
    command = [TRAINJOB, "airflow", dags, f"--state={tmp_path / 'state'}", "--port", str(find_free_port())]
    done = subprocess.run([*command, f"--environment=airflow={program.parents[1]}"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "error: airflow triggerer failed with exit code 7:\nno memory\n" in done.stderr
    wait_until(lambda: not find_processes(mark, tmp_path / "state"))


def test_a_port_in_use_and_a_missing_folder_are_refused(dags, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = [TRAINJOB, "airflow", dags, "--state", tmp_path / "state", "--port", port, *ENVIRONMENTS]
        done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--port cannot be {port}: it cannot be used on 127.0.0.1" in done.stderr
    done = subprocess.run([TRAINJOB, "airflow", tmp_path / "none"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "name an existing folder with the files of DAGs" in done.stderr
