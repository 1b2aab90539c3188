"""Jobs that print 5 MB and 50 MB at once: the triggerer survives, the tasks succeed, and every gap is marked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow

pytestmark = pytest.mark.timeout(1200)

LINES = 50_000
DAGS = Path(__file__).resolve().parent / "dags"


@pytest.fixture(scope="module")
def airflow(laptop, installation, tmp_path_factory):
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    environment = {**SHORT_INTERVALS, "AIRFLOW_CONN_KUBERNETES_DEFAULT": connection}
    with Standalone(tmp_path_factory.mktemp("airflow"), DAGS, **installation, **environment) as airflow:
        yield airflow


def read_log(airflow, run, task):
    """Return the events of a task's log, in order."""
    found = airflow.request("GET", f"{run}/taskInstances/{task}/logs/1?full_content=true")
    return [entry["event"] for entry in found["content"]]


@pytest.mark.parametrize("width", [99, 999])
def test_a_flood_of_log_lines_does_not_stop_the_triggerer(airflow, evidence, record_case, width):
    triggerers = airflow.list_processes("triggerer")
    run = airflow.start_run("flooding", lines=LINES, width=width)
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 600)
    assert airflow.get_state(run) == "success", airflow.log.read_text()[-4000:]
    lines = read_log(airflow, run, "flood")
    notices = [match for line in lines if (match := re.match(r"\[node-0\] ([0-9,]+) lines .* were skipped", line))]
    numbers = [int(match[1]) for line in lines if (match := re.fullmatch(r"\[node-0\] (\d+)", line))]
    skipped = sum(int(match[1].replace(",", "")) for match in notices)
    evidence("log flood", lines=LINES, written=len(numbers), skipped=skipped, notices=len(notices))
    is_far_behind = any("far behind after the end" in line for line in lines)  # on a busy machine
    assert len(numbers) + skipped == LINES or is_far_behind
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == LINES
    assert "[node-0] last" in lines
    assert not any(line.startswith("[") for line in read_log(airflow, run, "unlogged"))
    assert "[node-0] quiet" in read_log(airflow, run, "quiet_0")
    assert "event loop appears deadlocked" not in airflow.log.read_text()
    assert airflow.list_processes("triggerer").keys() >= triggerers.keys()
    record_case(
        f"a job prints {LINES:,} lines of {width} characters at once",
        f"{len(numbers):,} written and {skipped:,} skipped with a notice"
        f"{', the rest not read' if is_far_behind else ''}; no triggerer was restarted",
    )
