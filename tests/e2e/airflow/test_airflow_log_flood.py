"""Jobs that print 5 MB and 50 MB at once: the triggerer lives on, the tasks return, and every gap is noted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.standalone import QUICK, Standalone, wait_for

pytestmark = pytest.mark.timeout(1200)

LINES = 50_000
DAGS = Path(__file__).resolve().parent / "dags"


@pytest.fixture(scope="module")
def there(laptop, tmp_path_factory):
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    environment = {**QUICK, "AIRFLOW_CONN_KUBERNETES_DEFAULT": connection}
    with Standalone(tmp_path_factory.mktemp("airflow"), DAGS, **environment) as airflow:
        yield airflow


def log_of(there, run, task):
    """The events of a task's log, in order."""
    found = there.ask("GET", f"{run}/taskInstances/{task}/logs/1?full_content=true")
    return [entry["event"] for entry in found["content"]]


@pytest.mark.parametrize("width", [99, 999])
def test_a_job_that_prints_a_lot_at_once_stops_no_triggerer(there, evidence, width):
    triggerers = there.processes("triggerer")
    run = there.start("flooding", lines=LINES, width=width)
    wait_for(lambda: there.state(run) in ("success", "failed"), 600)
    assert there.state(run) == "success", there.log.read_text()[-4000:]
    lines = log_of(there, run, "flood")
    notices = [match for line in lines if (match := re.match(r"\[node-0\] ([0-9,]+) lines .* were skipped", line))]
    numbers = [int(match[1]) for line in lines if (match := re.fullmatch(r"\[node-0\] (\d+)", line))]
    skipped = sum(int(match[1].replace(",", "")) for match in notices)
    evidence("log flood", lines=LINES, written=len(numbers), skipped=skipped, notices=len(notices))
    assert len(numbers) + skipped == LINES
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == LINES
    assert "[node-0] last" in lines
    assert not any(line.startswith("[") for line in log_of(there, run, "unlogged"))
    assert "[node-0] quiet" in log_of(there, run, "quiet_0")
    assert "event loop appears deadlocked" not in there.log.read_text()
    assert there.processes("triggerer").keys() >= triggerers.keys()
