"""What the operators cost a process that parses DAG files, on top of Airflow's SDK."""

from __future__ import annotations

import subprocess
import sys

from markdown import table

_TIMES = 5
_MOST_MS = 50.0
_SDK = "import airflow.sdk, airflow.sdk.exceptions; from airflow.sdk import Asset, BaseHook, BaseOperator, conf"
STATEMENTS = {
    "TrainJobOperator": "from trainjob_airflow import TrainJobOperator",
    "every operator, sensor and Workspace": (
        "from trainjob_airflow import DeleteTrainJobOperator, ExportModelOperator, FineTuneOperator, "
        "InitializeDatasetOperator, InitializeModelOperator, TrainJobOperator, TrainJobSensor, Workspace"
    ),
    "KubernetesJobOperator": "from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator",
    "KubernetesPodOperator": "from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator",
}


def measure():
    """(milliseconds, modules) of each statement."""
    return {name: _measure_one(statement) for name, statement in STATEMENTS.items()}


def _measure_one(statement):
    """(milliseconds of CPU, modules) of a statement in a fresh interpreter that has imported Airflow's SDK.

    The best of some; CPU, as it is all computation, and a busy machine shows in the time that passes.
    """
    code = (
        f"import sys, time; {_SDK}; before = len(sys.modules); began = time.process_time(); {statement}; "
        "print((time.process_time() - began) * 1000, len(sys.modules) - before)"
    )
    found = []
    for _ in range(_TIMES):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        milliseconds, modules = done.stdout.split()[-2:]
        found.append((float(milliseconds), int(modules)))
    return min(found)


_TEXT = """## Imports

In a fresh interpreter that has imported Airflow's SDK, the best of five.

{rows}"""


def section(found):
    """As Markdown."""
    return _TEXT.format(
        rows=table(("Import", "CPU ms", "Modules"), [(name, f"{ms:.0f}", n) for name, (ms, n) in found.items()])
    )


def goals(found):
    """(goal, met, value) of each."""
    slowest = max(ms for name, (ms, _) in found.items() if not name.startswith("Kubernetes"))
    yield f"imports take at most {_MOST_MS:.0f} ms over Airflow's SDK", slowest <= _MOST_MS, f"{slowest:.0f} ms"
