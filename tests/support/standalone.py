"""A complete Airflow (API server, scheduler, triggerer, workers) and its REST API."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_AIRFLOW = Path(sys.executable).parent / "airflow"
# The log servers would listen on every interface. Tests read the logs from Airflow's home instead.
_ARGUMENTS = {name: ["--skip-serve-logs"] for name in ("scheduler", "triggerer", "celery worker")}

# Intervals after which Airflow notices a change; the defaults are in the order of minutes.
SHORT_INTERVALS = {
    "AIRFLOW__CORE__PARALLELISM": "8",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _list_sessions(leaders: Collection[int]) -> dict[int, str]:
    """Return the processes of these leaders' sessions, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # After the name in parentheses: state, parent, process group, session.
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) in leaders and state != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


def wait_for_airflow(condition: Callable[[], T], seconds: float) -> T:
    """Poll `condition`, which sends requests to Airflow, and return its first true result.

    The function polls every 0.5 s, because a request costs Airflow more than most of its work.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"the condition was not met within {seconds} s"
        time.sleep(0.5)
    return result


class Standalone:
    """The components of `airflow standalone`, each as a process of its own, in one home.

    They are healthy when the context is entered.

    Args:
        home: Airflow's home, which is empty.
        dags: folder of the DAGs.
        database: SQLAlchemy address of an empty database; the default is a SQLite file in `home`.
        triggerers: number of triggerers.
        environment: more environment variables of the processes.
    """

    def __init__(
        self, home: Path, dags: Path, *, database: str | None = None, triggerers: int = 1, **environment: str
    ) -> None:
        self.log = home / "standalone.log"
        self._first_components = ["api-server", "dag-processor", "scheduler", *["triggerer"] * triggerers]
        self._sqlite_file = home / "airflow.db" if database is None else None
        self._host = f"127.0.0.1:{_free_port()}"
        self.environment = {
            **os.environ,
            "PATH": f"{_AIRFLOW.parent}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",  # the airflow.cfg that Airflow creates has false
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{self._host}/execution/",
            "AIRFLOW__API__BASE_URL": f"http://{self._host}",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": self._host.rpartition(":")[2],
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__EXPOSE_STACKTRACE": "True",
            **({} if database is None else {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database}),
            **environment,
        }
        self._token = ""
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._killed: dict[str, list[subprocess.Popen[bytes]]] = {}  # only their main processes have ended

    def __enter__(self) -> Standalone:
        with self.log.open("w") as out:
            subprocess.run([_AIRFLOW, "db", "migrate"], env=self.environment, stdout=out, stderr=out, check=True)
        try:
            for name in self._first_components:
                self.start_component(name)
            wait_for_airflow(self.is_healthy, 200)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill_component(name)

    @property
    def url(self) -> str:
        """Address of the UI and the REST API."""
        return f"http://{self._host}"

    # -- components -------------------------------------------------------------------------------------------------

    def start_components(self, name: str, number: int) -> None:
        """Start several processes of a component."""
        for _ in range(number):
            self.start_component(name)

    def start_component(self, name: str) -> int:
        """Start one more process of a component, in a new session, and return its ID.

        Args:
            name: `api-server`, `dag-processor`, `scheduler`, `triggerer` or `celery worker`.
        """
        with self.log.open("a") as out:
            process = subprocess.Popen(
                [_AIRFLOW, *name.split(), *_ARGUMENTS.get(name, [])],
                env=self.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._running.setdefault(name, []).append(process)
        return process.pid

    def kill_instance(self, name: str, number: int = 0) -> None:
        """Kill one of several processes of a component, with every process that it has started.

        Args:
            name: name of the component.
            number: position among those of the component that run, oldest first.
        """
        process = self._running[name].pop(number)
        for pid in _list_sessions({process.pid}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def kill_component(self, name: str) -> int:
        """Kill a component and every process that it, or a component killed earlier, has started.

        Returns:
            Number of the component's main processes, such as 2 with two triggerers.
        """
        for pid in self.list_processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running = self._running.pop(name)
        for process in running + self._killed.pop(name, []):
            process.wait()
        return len(running)

    def restart_ended_components(self) -> list[str]:
        """Start each component again whose process has ended, and return their names.

        As a service manager does, the function first kills the processes that the component has left.
        """
        restarted = []
        for name, processes in list(self._running.items()):
            for process in [one for one in processes if one.poll() is not None]:
                self.kill_instance(name, processes.index(process))
                self.start_component(name)
                restarted.append(name)
        return restarted

    def stop_component(self, name: str) -> int:
        """Stop a component in order, with SIGTERM to its main processes, and wait for their end.

        Returns:
            Number of the component's main processes.
        """
        for process in self._running[name]:
            process.terminate()
        for process in self._running[name]:
            assert process.wait(60) in (0, -signal.SIGTERM)
        return self.kill_component(name)

    @contextlib.contextmanager
    def suspended_component(self, name: str) -> Iterator[None]:
        """Suspend the processes of a component in a block; after it, Airflow is healthy."""
        pids = self.suspend_component(name)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        wait_for_airflow(self.is_healthy, 120)

    def suspend_component(self, name: str) -> list[int]:
        """Suspend the processes of a component, and return their IDs.

        A process that is suspended within a transaction would block all of Airflow, because SQLite has one lock. Such
        processes are resumed and suspended again.
        """
        pids = list(self.list_processes(name))

        def is_suspended() -> bool:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            if self._sqlite_file is None:
                return True
            with contextlib.closing(sqlite3.connect(self._sqlite_file, timeout=5.0, isolation_level=None)) as database:
                try:
                    database.execute("BEGIN EXCLUSIVE")
                    database.execute("ROLLBACK")
                except sqlite3.OperationalError:
                    for pid in pids:
                        os.kill(pid, signal.SIGCONT)
                    return False
            return True

        wait_for_airflow(is_suspended, 120)
        return pids

    def kill_main_process(self, name: str) -> None:
        """Kill only the component's process; the processes that it has started continue."""
        process = self._running[name].pop()
        self._killed.setdefault(name, []).append(process)
        process.kill()
        process.wait()

    def list_processes(self, name: str) -> dict[int, str]:
        """Return every process of a component with its command line.

        These are the component itself and the processes that a killed component has left.
        """
        return _list_sessions({process.pid for process in self._running[name] + self._killed.get(name, [])})

    def is_healthy(self) -> bool:
        """Return whether every component is healthy according to the API server."""
        for name, processes in self._running.items():
            assert all(one.poll() is None for one in processes), f"{name} has ended\n{self.log.read_text()[-4000:]}"
        try:
            health = self.request("GET", "/api/v2/monitor/health")
        except (OSError, http.client.HTTPException):
            return False
        wanted = ("scheduler", "triggerer", "dag_processor", "metadatabase")
        if not health or any(health[part]["status"] != "healthy" for part in wanted):
            return False
        self._token = self._token or self.request("GET", "/auth/token")["access_token"]
        return True

    # -- REST API ---------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the JSON of the response; None for a 404.

        The function repeats the request after a database error of Airflow's own. Airflow's API server writes its audit
        log on its event loop. There it waits for a lock that another request releases on the same loop. With SQLite
        both requests block for 5 s, and one of them fails.
        """
        deadline = time.monotonic() + 120
        while True:
            status, text = self._request_once(method, path, body)
            if status == 404:
                return None
            if status < 300:
                return json.loads(text)
            in_trouble = status == 500 and '"Database error"' in text
            assert in_trouble and time.monotonic() < deadline, f"{method} {path}: {status} {text}"
            time.sleep(0.5)

    def _request_once(self, method: str, path: str, body: object) -> tuple[int, str]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        with contextlib.closing(http.client.HTTPConnection(self._host, timeout=60)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def start_run(self, dag: str, **conf: object) -> str:
        """Start a DAG run as soon as the DAG is known, and return the run's path."""
        wait_for_airflow(lambda: self.request("GET", f"/api/v2/dags/{dag}"), 90)
        run = self.request("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})
        return f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}"

    def get_state(self, run: str, task: str | None = None) -> str | None:
        """Return the state of a run, or of a task in it."""
        found = self.request("GET", run if task is None else f"{run}/taskInstances/{task}")
        return str(found["state"]) if found and found["state"] else None

    def mark_task(self, run: str, task: str, state: str) -> None:
        """Mark a task failed or successful, as a user does."""
        self.request("PATCH", f"{run}/taskInstances/{task}", {"new_state": state})

    def clear_task(self, run: str, task: str) -> None:
        """Clear a task in any state, as a user does."""
        self.clear_tasks(run, task)

    def clear_tasks(self, run: str, *tasks: str) -> None:
        """Clear tasks of a run together, in any state."""
        name = run.rpartition("/")[2]
        body = {"dag_run_id": name, "task_ids": tasks, "dry_run": False, "only_failed": False, "only_running": False}
        self.request("POST", f"/api/v2/dags/{run.split('/')[4]}/clearTaskInstances", body)
