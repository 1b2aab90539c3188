"""Task logs with numbered lines while triggerers and workers are stopped and killed."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from tests.support.airflow_versions import needs_task_state_store
from tests.support.standalone import wait_for_airflow
from trainjob.client import STORE_SECONDS

TASKS = ("one", "two", "three")
TASK_PROCESS = re.compile(r"airflow worker -- [0-9a-f]{8}-")
SKIPPED = re.compile(r"\[(?P<source>node-\d)\] (?P<number>[\d,]+) lines? \(.*\) were skipped here")
LINE = re.compile(r"\[(?P<source>node-\d)\] (?:line|last) (?P<number>\d+)")


class TaskLog:
    """The lines of one try of a task, which several processes have written."""

    def __init__(self, airflow, run, task):
        self._folder = airflow.log.parent / "logs" / f"dag_id={run.split('/')[4]}" / f"run_id={run.rpartition('/')[2]}"
        self._pattern = f"task_id={task}/attempt=1.log*"

    def read(self):
        """Return the text and the time of each line, in the order of the times."""
        found = []
        for path in self._folder.glob(self._pattern):
            for line in path.read_text().splitlines():
                event = json.loads(line)
                found.append((event["timestamp"], event["event"]))
        return [(text, moment) for moment, text in sorted(found, key=lambda line: line[0])]

    def numbers(self, source="node-0"):
        found = [LINE.match(text) for text, _ in self.read()]
        return [int(line["number"]) for line in found if line and line["source"] == source]


def count_lines(log):
    """Return how many lines were written, lost, repeated, and marked as repeated.

    On a busy machine lines may be skipped, with a notice.
    """
    counts = dict.fromkeys(("lines", "lost", "repeated", "marked"), 0)
    for source in ("node-0", "node-1"):
        highest, marked = 0, False
        seen = set()
        for text, _ in log.read():
            if "another process has written its log until here" in text:
                marked = True
            elif (found := SKIPPED.match(text)) and found["source"] == source:
                counts["lost"] -= int(found["number"].replace(",", ""))
            elif (found := LINE.match(text)) and found["source"] == source and " last " not in text:
                number = int(found["number"])
                counts["repeated"] += number in seen
                counts["marked"] += number in seen and marked
                marked = marked and number in seen  # until the first new line
                seen.add(number)
                highest = max(highest, number)
        counts["lines"] += len(seen)
        counts["lost"] += highest - len(seen)
        assert any(text.startswith(f"[{source}] last") for text, _ in log.read())
    return counts


def describe(counts):
    return f"{counts['lines']} lines, {counts['lost']} lost, {counts['repeated']} repeated with a notice"


def add(counts):
    return {name: sum(one[name] for one in counts) for name in counts[0]}


def finish(airflow, run, folder):
    (folder / "numbered").touch()
    wait_for_airflow(lambda: airflow.get_state(run) == "success", 120)


@pytest.mark.parametrize("end", ["orderly hand-over", "SIGKILL"])
def test_the_log_continues_in_another_triggerer(airflow, tmp_path, evidence, record_case, end):
    run = airflow.start_run("numbered", go=str(tmp_path))
    logs = [TaskLog(airflow, run, task) for task in TASKS]
    wait_for_airflow(lambda: all(len(log.numbers()) > 10 for log in logs), 120)
    rounds = 3 if end == "orderly hand-over" else 2
    for _ in range(rounds):
        if end == "SIGKILL":
            began = time.monotonic()
            wait_for_airflow(lambda began=began: time.monotonic() - began > STORE_SECONDS + 8, 60)
            ended = airflow.kill_component("triggerer")
        else:
            ended = airflow.stop_component("triggerer")
        before = [max(log.numbers()) for log in logs]
        airflow.start_components("triggerer", ended)
        wait_for_airflow(
            lambda before=before: all(max(log.numbers()) > n + 10 for log, n in zip(logs, before, strict=True)), 120
        )
    finish(airflow, run, tmp_path)
    counts = add([count_lines(log) for log in logs])
    evidence("takeover", process="Airflow triggerer", end=end, runs=rounds * len(TASKS), **counts)
    assert counts["lost"] == 0
    assert counts["repeated"] == counts["marked"]
    seconds = 1.5 if end == "orderly hand-over" else STORE_SECONDS + 8
    assert counts["repeated"] <= rounds * len(TASKS) * 2 * 2 * seconds  # two sources, two lines a second
    for task in TASKS:
        assert airflow.request("GET", f"{run}/taskInstances/{task}/xcomEntries/log_times") is None
    record_case(f"task log after the end of both triggerers: {end}", describe(counts))


@needs_task_state_store
def test_the_log_continues_on_another_worker(airflow, tmp_path, evidence, record_case):
    run = airflow.start_run("numbered_on_worker", go=str(tmp_path))
    log = TaskLog(airflow, run, "task")
    wait_for_airflow(lambda: len(log.numbers()) > 10, 90)
    [pid] = [pid for pid, title in airflow.list_processes("scheduler").items() if TASK_PROCESS.match(title)]
    os.kill(pid, signal.SIGTERM)
    before = max(log.numbers())
    wait_for_airflow(lambda: max(log.numbers()) > before + 40, 120)
    finish(airflow, run, tmp_path)
    counts = count_lines(log)
    evidence("takeover", process="Airflow worker", end="orderly hand-over", runs=1, **counts)
    assert counts["lost"] == 0
    assert counts["repeated"] == counts["marked"] <= 2 * 3  # two sources, lines of the last second
    record_case("task log after the SIGTERM of a worker", describe(counts))
