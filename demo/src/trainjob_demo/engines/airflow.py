"""Airflow: `airflow dags test`, with a separate database in the demo's folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from trainjob_demo.engines.engine import EngineCommand
from trainjob_demo.processes import run_to_end

__all__ = ["Airflow", "airflow_variables"]


def airflow_variables(home: Path, dags: Path, kubeconfig: Path) -> Mapping[str, str]:
    """Return the environment variables of an Airflow whose tasks use a cluster.

    Args:
        home: folder of Airflow's database and logs.
        dags: folder of the DAGs.
        kubeconfig: kubeconfig of the cluster.
    """
    extra = {"kube_config_path": str(kubeconfig), "namespace": "default"}
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "0",  # no timeout, because the first file imports everything
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }


class Airflow:
    """Airflow in its own environment.

    Args:
        environment: Python environment with Airflow and this project's provider.
        folder: the demo's folder, for the database and the logs.
    """

    workflows = Path(__file__).parents[1] / "dags"

    def __init__(self, environment: Path, folder: Path) -> None:
        self._program = str(environment / "bin" / "airflow")
        self._home = folder / "airflow"
        self.log = folder / "airflow.log"

    def prepare(self) -> None:
        """Create Airflow's database, unless an earlier demo has created it.

        A database of another environment is replaced.

        Raises:
            DemoError: the database could not be created.
        """
        created_with = self._home / "created-with"
        if created_with.exists() and created_with.read_text(encoding="utf-8") == self._program:
            return
        print("creating Airflow's database", flush=True)
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir(parents=True)
        home = {"AIRFLOW_HOME": str(self._home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        run_to_end("airflow db migrate", [self._program, "db", "migrate"], self.log, home)
        created_with.write_text(self._program, encoding="utf-8")

    def command(self, workflow: Path, kubeconfig: Path) -> EngineCommand:
        """Return the command `airflow dags test`.

        Args:
            workflow: file of the DAG, whose name is the DAG's ID.
            kubeconfig: kubeconfig of the cluster.
        """
        variables = airflow_variables(self._home, workflow.parent, kubeconfig)
        return EngineCommand((self._program, "dags", "test", workflow.stem), variables)
