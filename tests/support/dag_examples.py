"""Runs of the Airflow examples with `dag.test()`.

They run against a laptop cluster that serves the demo's model and tickets.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.demo_chain import laptop_with_demo_hub

ROOT = Path(__file__).resolve().parents[2]
DAGS = ROOT / "examples" / "airflow"


@contextlib.contextmanager
def laptop_with_tickets(folder: Path) -> Iterator[dict[str, str]]:
    """Start a laptop cluster and yield the environment of an Airflow that uses it.

    That Airflow has its own home, and its default Kubernetes connection leads to the cluster.
    """
    with laptop_with_demo_hub(folder) as cluster:
        yield airflow_environment(cluster.kubeconfig, folder / "airflow")


def airflow_environment(kubeconfig: Path, home: Path) -> dict[str, str]:
    """Return the environment of a separate Airflow whose default connection is that cluster."""
    extra = {"kube_config_path": str(kubeconfig), "namespace": "default"}
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",  # the airflow.cfg that Airflow creates has false
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }


def read_hub_objects(hub: Path) -> dict[str, bytes]:
    """Return the model and the tickets for the examples that fetch from an object store.

    The keys have the form `bucket/key`.
    """
    found = {}
    for folder, place in (("datasets/demo/tickets", "models/tickets"), ("models/demo/tiny-llama", "models/tiny-llama")):
        for path in (hub / folder).rglob("*"):
            if path.is_file():
                found[f"{place}/{path.relative_to(hub / folder).as_posix()}"] = path.read_bytes()
    return found


class ExampleRuns:
    """A process in Airflow's environment that runs the examples one after the other."""

    def __init__(self, environment: dict[str, str], log: Path, dags: Path = DAGS) -> None:
        """Create Airflow's database and load the DAGs.

        Args:
            environment: see `laptop_with_tickets`.
            log: the file for the output of Airflow and the tasks.
            dags: folder of the DAGs.
        """
        programs = ROOT / ".venv" / "airflow" / "bin"
        self._log = log
        with log.open("w") as out:
            subprocess.run([programs / "airflow", "db", "migrate"], env=environment, stdout=out, stderr=out, check=True)
            self._process = subprocess.Popen(
                [programs / "python", "-m", "tests.support.dag_runner", dags],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                bufsize=1,
            )

    def run(self, dag: str, **conf: Any) -> Any:
        """Run a DAG and return its `state`, and `tasks` and `returned` by task."""
        print(json.dumps({"dag": dag, "conf": conf}), file=self._process.stdin, flush=True)
        return self._read_response()

    def stop(self) -> None:
        """Kill the process, which is idle."""
        self._process.kill()
        self._process.communicate()

    def read_log(self) -> str:
        """Return the output of Airflow and the tasks."""
        return self._log.read_text(errors="replace")

    def _read_response(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        assert line, self.read_log()[-6000:]
        return json.loads(line)


@contextlib.contextmanager
def example_runs(folder: Path) -> Iterator[ExampleRuns]:
    """Start a laptop cluster and an Airflow, and yield the examples, ready to run."""
    with laptop_with_tickets(folder) as environment:
        runs = ExampleRuns(environment, folder / "airflow.log")
        try:
            yield runs
        finally:
            runs.stop()
