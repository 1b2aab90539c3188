"""CPU time of imports and of `trainjob --help`.

The imports are measured in a process that parses DAG files, in addition to Airflow's SDK.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from tests.support.markdown import table
from tools.bench.sizes import size

_TIMES = size(5, 1)
_MAX_IMPORT_MS = 50.0
_MAX_HELP_MS = 200.0
_COMMAND = Path(__file__).resolve().parents[2] / ".venv" / "core" / "bin" / "trainjob"
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
    """Measure the imports and `trainjob --help`.

    Returns:
        `imports`, with CPU milliseconds and number of modules by name of the statement; and `help_ms`, the CPU
            milliseconds of `trainjob --help`.
    """
    measured = list(STATEMENTS.items())[: size(None, 1)]
    imports = {name: _measure_one(statement) for name, statement in measured}
    return {"imports": imports, "help_ms": min(_measure_help() for _ in range(_TIMES))}


def _measure_help():
    """Return the CPU milliseconds of `trainjob --help` in the core's environment."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([_COMMAND, "--help"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _measure_one(statement):
    """Return CPU milliseconds and number of modules of a statement.

    The statement runs in a fresh interpreter that has imported Airflow's SDK. The result is the best of several runs.
    CPU time is measured because imports only compute, and elapsed time depends on the load of the machine.
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

Airflow imports the operators each time that it parses a DAG file. The CPU time and the number of additional modules
are measured in a fresh interpreter that has imported Airflow's SDK. Each row is the best of five runs.

{rows}

`trainjob --help` in the core's environment takes {help_ms:.0f} ms of CPU time, the best of five runs."""


def section(found):
    """Format the measured values as a Markdown section."""
    return _TEXT.format(
        rows=table(
            ("Import", "CPU ms", "Additional modules"),
            [(name, f"{ms:.0f}", n) for name, (ms, n) in found["imports"].items()],
        ),
        help_ms=found["help_ms"],
    )


def goals(found):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    slowest = max(ms for name, (ms, _) in found["imports"].items() if not name.startswith("Kubernetes"))
    yield (
        f"importing an operator takes at most {_MAX_IMPORT_MS:.0f} ms of CPU time in addition to Airflow's SDK",
        slowest <= _MAX_IMPORT_MS,
        f"{slowest:.0f} ms",
    )
    help_ms = found["help_ms"]
    yield (
        f"`trainjob --help` takes at most {_MAX_HELP_MS:.0f} ms of CPU time",
        help_ms <= _MAX_HELP_MS,
        f"{help_ms:.0f} ms",
    )
