"""Airflow with its UI, and the laptop cluster on which its DAGs run, until a user stops them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from subprocess import Popen
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.local import LocalCluster
from trainjob_demo.engines import ENGINES
from trainjob_demo.engines.airflow import airflow_variables
from trainjob_demo.errors import DemoError
from trainjob_demo.paths import display_path
from trainjob_demo.processes import run_process, run_to_end
from trainjob_demo.tickets_hub import serve_hub
from trainjob_local.private_files import read_or_create

__all__ = ["HUB_ENVIRONMENT", "run_standalone_airflow"]

HUB_ENVIRONMENT = "trl"
"""Name of the environment whose torch writes the model of the demo's Hub."""

_LOOPBACK = "127.0.0.1"
# Airflow's servers for logs would listen on every interface. The API server reads the files on this machine instead.
_COMPONENTS = {
    "api-server": (),
    "dag-processor": (),
    "scheduler": ("--skip-serve-logs",),
    "triggerer": ("--skip-serve-logs",),
}
_HEALTHY = {"metadatabase", "scheduler", "triggerer", "dag_processor"}
_START_SECONDS = 300.0


def run_standalone_airflow(
    environments: Mapping[str, Path], folder: Path, dags: Path, port: int, *, demo_hub: bool
) -> None:
    """Run Airflow and a laptop cluster until one of their processes ends, or Ctrl-C.

    The runs, the TrainJobs and their volumes remain in the folder. All processes end with this function.

    Args:
        environments: folders of Python environments: `airflow`; `trl` for the demo's Hub; others replace images, as in
            [trainjob_local.LocalCluster][].
        folder: folder for the cluster, Airflow's database and the logs, whose lock this process holds.
        dags: folder of the DAGs.
        port: TCP port of Airflow's UI on 127.0.0.1.
        demo_hub: whether pods use a Hub on this machine, which has only `demo/tiny-llama` and `demo/tickets`.

    Raises:
        ClusterError: the laptop cluster did not start, or failed.
        DemoError: a component of Airflow did not start, or has ended.
        InvalidSpec: the port is in use.
    """
    _check_port(port)
    images = {name: path for name, path in environments.items() if name not in ENGINES}
    program = environments["airflow"] / "bin" / "airflow"
    with ThreadPoolExecutor() as threads, contextlib.ExitStack() as stack:
        pod_env = {"HF_ENDPOINT": stack.enter_context(serve_hub(images[HUB_ENVIRONMENT]))[1]} if demo_hub else {}
        cluster = stack.enter_context(LocalCluster(folder / "cluster", images, pod_env))
        home = folder / "airflow"
        password = _read_password(home)
        variables = {**airflow_variables(home, dags, cluster.kubeconfig), **_server_variables(program, port)}
        shell = _write_shell_variables(folder / "environment.sh", {**variables, "KUBECONFIG": str(cluster.kubeconfig)})
        print(f"starting Airflow (its logs: {display_path(folder)}/*.log)", flush=True)
        run_to_end("airflow db migrate", [str(program), "db", "migrate"], folder / "db-migrate.log", variables)
        processes = {
            name: stack.enter_context(run_process([str(program), name, *options], _log_of(folder, name), variables))
            for name, options in _COMPONENTS.items()
        }
        _wait_until_healthy(port, lambda: _raise_if_ended(processes, folder))
        print(_format_addresses(port, password, dags, shell), flush=True)
        waits: list[Future[Any]] = [threads.submit(cluster.wait_ended)]
        waits += [threads.submit(process.wait) for process in processes.values()]
        ended, _ = wait(waits, return_when=FIRST_COMPLETED)
        for one in ended:
            one.result()
        _raise_if_ended(processes, folder)


def _check_port(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Airflow's server does
        try:
            listener.bind((_LOOPBACK, port))
        except OSError as error:
            allowed = f"it cannot be used on {_LOOPBACK} ({error.strerror}); name a free port"
            raise InvalidSpec(Problem("--port", str(port), allowed)) from None


def _read_password(home: Path) -> str:
    """Return the password of the user `admin`.

    The first call creates it, in the file of Airflow's simple auth manager.
    """
    home.mkdir(parents=True, exist_ok=True)
    file = home / "simple_auth_manager_passwords.json.generated"
    text = read_or_create(file, lambda: json.dumps({"admin": secrets.token_urlsafe(12)}))
    return str(json.loads(text)["admin"])


def _server_variables(program: Path, port: int) -> Mapping[str, str]:
    address = f"http://{_LOOPBACK}:{port}"
    no_proxy = ",".join(filter(None, [os.environ.get("NO_PROXY"), _LOOPBACK]))
    return {
        "PATH": os.pathsep.join([str(program.parent), os.environ.get("PATH", os.defpath)]),
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "AIRFLOW__API__HOST": _LOOPBACK,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__CORE__PARALLELISM": "8",  # each running task is a process
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",  # seconds until a new file is seen; Airflow's default is 300
        "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",  # the airflow.cfg that Airflow creates has false
    }


def _write_shell_variables(file: Path, variables: Mapping[str, str]) -> Path:
    """Write a file that sets the variables in a shell, and return its path."""
    programs = variables["PATH"].partition(os.pathsep)[0]
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items() if name != "PATH"]
    file.write_text(f'{"".join(lines)}PATH={shlex.quote(programs)}:"$PATH"\n', encoding="utf-8")
    return file


def _log_of(folder: Path, component: str) -> Path:
    return folder / f"{component}.log"


def _raise_if_ended(processes: Mapping[str, Popen[bytes]], folder: Path) -> None:
    for name, process in processes.items():
        if (code := process.poll()) is not None:
            raise DemoError.from_program(f"airflow {name}", code, _log_of(folder, name))


def _wait_until_healthy(port: int, check: Callable[[], None]) -> None:
    """Wait until all components are healthy; `check` raises if one of them has ended."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START_SECONDS
    health: dict[str, dict[str, str]] = {}
    while {name for name, part in health.items() if part.get("status") == "healthy"} < _HEALTHY:
        check()
        if time.monotonic() > deadline:
            hint = "read the logs of its components; a machine with little memory may need more time"
            raise DemoError(
                f"Airflow is not healthy after {_START_SECONDS:.0f} s: {health or 'no response'}", hint=hint
            )
        time.sleep(0.5)
        with (
            contextlib.suppress(OSError, ValueError),
            opener.open(f"http://{_LOOPBACK}:{port}/api/v2/monitor/health", timeout=10) as response,
        ):
            health = json.load(response)


def _format_addresses(port: int, password: str, dags: Path, shell: Path) -> str:
    address = f"http://{_LOOPBACK}:{port}"
    lines = {
        "Airflow": f"{address} (user admin, password {password})",
        "the TrainJobs": f"{address}/plugin/trainjobs",
        "the DAGs": f"{display_path(dags)} (a new DAG is paused until you switch it on)",
        "a shell": f". {shlex.quote(str(display_path(shell)))} (sets KUBECONFIG, and finds the program airflow)",
    }
    return "\n".join([*(f"{what + ':':<15}{text}" for what, text in lines.items()), "Stop everything with Ctrl-C."])
