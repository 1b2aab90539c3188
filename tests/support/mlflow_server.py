"""A real MLflow tracking server of a test, from the environment .venv/tracking."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

ROOT = Path(__file__).resolve().parents[2]
TRACKING_PYTHON = ROOT / ".venv" / "tracking" / "bin" / "python"
"""Python with the client libraries of all trackers."""
_START_SECONDS = 120


class MLflowServer:
    """MLflow server with a SQLite database, used as a context manager.

    The server listens on a loopback port. Its data are kept while it is stopped and started again.

    Attributes:
        url: address of the server.
    """

    def __init__(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MLflowServer:
        with contextlib.ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainjob-mlflow-")))
            self._log = self._folder / "mlflow.log"
            stack.callback(self.stop)
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        database = f"sqlite:///{self._folder}/mlflow.db"
        address = ("--host", "127.0.0.1", "--port", str(self._port), "--workers", "1")
        storage = ("--backend-store-uri", database, "--artifacts-destination", str(self._folder))
        settings = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with self._log.open("ab") as out:
            self._server = subprocess.Popen(
                [TRACKING_PYTHON, "-m", "mlflow", "server", *address, *storage],
                env={**os.environ, **settings},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            assert self._server.poll() is None and time.monotonic() < deadline, self._log.read_text()[-4000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """Kill the server with its workers."""
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None

    def list_runs(self, experiment: str) -> list[dict[str, Any]]:
        """Return the active runs of an experiment, oldest first, as the REST API does."""
        found = self._request(f"experiments/get-by-name?experiment_name={experiment}")
        query = {"experiment_ids": [found["experiment"]["experiment_id"]], "order_by": ["attributes.start_time"]}
        runs: list[dict[str, Any]] = self._request("runs/search", query).get("runs", [])
        return runs

    def get_metric_history(self, run: str, name: str) -> list[tuple[int, float]]:
        """Return step and value of each value of a metric, in the order of the steps."""
        found = self._request(f"metrics/get-history?run_id={run}&metric_key={name}")
        return sorted((int(each.get("step", 0)), float(each["value"])) for each in found.get("metrics", []))

    def has_experiment(self, name: str) -> bool:
        """Return whether an experiment exists."""
        address = f"{self.url}/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}"
        return urllib3.request("GET", address, timeout=30).status == 200

    def create_run(self, experiment: str, tags: dict[str, str], start_time: int) -> str:
        """Create a run, and its experiment if there is none, and return the run's ID."""
        address = f"{self.url}/api/2.0/mlflow/experiments/create"
        urllib3.request("POST", address, json={"name": experiment}, timeout=30)  # 400 if it exists
        found = self._request(f"experiments/get-by-name?experiment_name={experiment}")["experiment"]["experiment_id"]
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        body = {"experiment_id": found, "tags": listed, "start_time": start_time}
        return str(self._request("runs/create", body)["run"]["info"]["run_id"])

    def get_run(self, run: str) -> dict[str, Any]:
        """Return a run, as the REST API does."""
        found: dict[str, Any] = self._request(f"runs/get?run_id={run}")["run"]
        return found

    def list_versions(self, model: str) -> list[dict[str, Any]]:
        """Return the versions of a registered model, newest first."""
        query = urlencode({"filter": f"name = '{model}'"})
        versions: list[dict[str, Any]] = self._request(f"model-versions/search?{query}").get("model_versions", [])
        return versions

    def get_aliases(self, model: str) -> dict[str, str]:
        """Return the version of each alias of a registered model."""
        found = self._request(f"registered-models/get?{urlencode({'name': model})}")["registered_model"]
        return {each["alias"]: each["version"] for each in found.get("aliases", [])}

    def delete_run(self, run: str) -> None:
        """Delete a run, as a user does on the server's page."""
        self._request("runs/delete", {"run_id": run})

    def _request(self, path: str, body: Any = None) -> Any:
        address = f"{self.url}/api/2.0/mlflow/{path}"
        answer = urllib3.request("GET" if body is None else "POST", address, json=body, timeout=30)
        assert answer.status == 200, answer.data
        return answer.json()

    def _is_ready(self) -> bool:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return urllib3.request("GET", f"{self.url}/health", timeout=5, retries=False).status == 200
        return False


def check_tracked_example(server: MLflowServer, run: dict[str, Any]) -> None:
    """Check the run of the example `tracked`.

    It trains on 340 rows in batches of 8 with TRL, which logs each tenth step.
    """
    assert run["info"]["status"] == "FINISHED"
    history = server.get_metric_history(run["info"]["run_id"], "loss")
    assert [step for step, _ in history] == [10, 20, 30, 40]
    assert history[-1][1] < history[0][1]
    parameters = {each["key"]: each["value"] for each in run["data"]["params"]}
    assert parameters.items() >= {"framework": "trl", "method": "sft", "learning_rate": "0.003"}.items()
    assert parameters["dataset"] == "hf://demo/tickets"
