"""Runner of DAGs with `dag.test()`, in Airflow's environment.

Usage: python -m tests.support.dag_runner FOLDER. It reads lines of JSON from its input and prints one line of JSON for
each. A line `{"dag": "...", "conf": {...}}` has the response `{"state": "...", "tasks": {task: [state, ...]},
"returned": {task: [value, ...]}}`, with mapped tasks in the order of their index. The output of Airflow and the tasks
goes to the error stream.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

responses = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from airflow.models.xcom import XComModel  # noqa: E402 - after the redirection, because Airflow prints on import
from airflow.utils.session import create_session  # noqa: E402

from tests.support.airflow_versions import load_dags  # noqa: E402


def write_response(value: object) -> None:
    print(json.dumps(value), file=responses, flush=True)


def run_dag(dag: Any, conf: dict[str, Any]) -> dict[str, Any]:
    done = dag.test(run_conf=conf)
    states, returned = defaultdict(list), defaultdict(list)
    for instance in sorted(done.get_task_instances(), key=lambda one: one.map_index):
        states[instance.task_id].append(instance.state)
    with create_session() as session:
        wanted = XComModel.get_many(run_id=done.run_id, dag_ids=dag.dag_id, key="return_value")
        rows: list[Any] = list(session.scalars(wanted))
        for row in sorted(rows, key=lambda one: one.map_index):
            returned[row.task_id].append(XComModel.deserialize_value(row))
    return {"state": done.state, "tasks": states, "returned": returned}


def main(folder: str) -> None:
    bag = load_dags(Path(folder))
    for line in sys.stdin:
        request = json.loads(line)
        write_response(run_dag(bag.dags[request["dag"]], request["conf"]))


if __name__ == "__main__":
    main(sys.argv[1])
