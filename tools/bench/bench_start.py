"""Cost of starting to wait for many TrainJobs in a triggerer, and delays of events during the start."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tests.support.markdown import table
from tools.bench.bench_waiting import configure_connection, percentile, start_process
from tools.bench.sizes import size
from tools.bench.waiting_server import serve
from tools.bench.waiting_triggers import run_triggers

_CLIENTS = {
    "trainjob": "`TrainJobTrigger`",
    "idle": "a trigger that only waits",
    "10": "poll, 10 s",
    "2": "poll, 2 s",
}
_THRESHOLDS = (10_000, 5, 1000)  # of reference/airflow.md


@dataclass(frozen=True)
class Case:
    """Measurement of one start: the client, and the numbers of triggers and jobs.

    Attributes:
        client: a key of _CLIENTS.
        jobs: number of jobs with a trigger.
        first: number of triggers that wait already.
        finished: number of finished jobs without a trigger.
        thresholds: arguments of `gc.set_threshold`; empty means Python's defaults.
    """

    client: str
    jobs: int
    first: int = 0
    finished: int = 0
    thresholds: tuple = ()


_CASES = size(
    (
        *(Case(client, 1000) for client in _CLIENTS),
        Case("trainjob", 10_000),
        Case("trainjob", 10_000, first=1),
        Case("trainjob", 10_000, first=1, thresholds=_THRESHOLDS),
        Case("idle", 10_000),
        Case("trainjob", 200, finished=5000),
        Case("trainjob", 200, finished=5000, thresholds=_THRESHOLDS),
    ),
    (Case("trainjob", 3, first=1, finished=2, thresholds=_THRESHOLDS),),
)
_ENDS, _ENDS_EACH_SECOND = 30, 15
_CPU_SECONDS, _DELAY_MS = 5.0, 250.0


def measure():
    """Return the measured rows."""
    rows = []
    for case in _CASES:
        rows.append(_measure_one(case))
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _measure_one(case):
    kind = "jobs" if case.client.isdecimal() else "trainjobs"
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    os.environ.update(AIRFLOW_HOME=str(folder), AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING")
    try:
        with start_process(serve, kind, case.jobs + case.finished, folder) as server:
            url, uids = server.recv()
            configure_connection(folder, url)
            names = list(uids)
            if case.finished:
                server.send(("finish", names[: case.finished], 10_000))
                server.recv()
            awaited = {name: uids[name] for name in names[case.finished :]}
            run = partial(run_triggers, first=case.first, thresholds=case.thresholds)
            with start_process(run, case.client, awaited) as client:
                return {**asdict(case), **_measure_start(server, client, awaited)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure_start(server, client, awaited):
    """Measure the start of the triggers while jobs of the triggers that start first end."""
    client.recv()  # "starting"
    names = list(awaited)[1 :: max(1, len(awaited) // (3 * _ENDS))][:_ENDS]
    server.send(("finish", names, _ENDS_EACH_SECOND))
    written, start = server.recv(), client.recv()
    server.send(("counts",))
    requests, _ = server.recv()
    client.send(("events",))
    ended = client.recv()
    started = start.pop("started")
    delays = sorted(ended[name] - max(written[name], started[name]) for name in names if name in ended)
    return {
        **start,
        "requests": sum(requests.values()),
        "ends": len(delays),
        "p50_ms": percentile(delays, 50),
        "p99_ms": percentile(delays, 99),
    }


_TEXT = """## Starting to wait

A triggerer starts many triggers at once after its own start, or when it adopts those of another triggerer. The API
server and the jobs are the same as above. The start includes the import of the Kubernetes client and the first list,
unless a trigger waits already ("informer is running"). While the triggers start, {ends} jobs end, {each} each second.
In the last rows, 5,000 further TrainJobs have finished before, without triggers.

* A trigger that only waits shows what Python and Airflow's classes cost at least. It sends no request.
* Collections: the part of the CPU time in Python's garbage collector. A full collection visits all objects of the
  process, also those of Airflow, and stops all threads.
* Own stalls: the number of delays of the event loop of more than 50 ms in which this process itself computed for more
  than 50 ms, and how many of these the garbage collector alone caused.
* Besides: the longest of these delays without the time of the garbage collector.
* Delay: the time from the end of a job, or from the start of its trigger if that is later, until the trigger fires. If
  the informer is not running, this includes the rest of the first list.
* "collections are rare": `gc.set_threshold{thresholds}`, see
  [Thousands of deferred tasks](../reference/airflow.md#thousands-of-deferred-tasks).

{rows}"""


def section(rows):
    """Format the measured values as a Markdown section."""
    cells = [
        (
            _describe_jobs(row),
            _CLIENTS[row["client"]],
            f"{row['cpu']:.1f}",
            f"{row['collected']:.1f}",
            row["requests"],
            f"{row['worst_ms']:,.0f} ms",
            f"{row['own_stalls']}, {row['collection_stalls']} by collections",
            f"{max(0.0, row['worst_besides_ms']):,.0f} ms",
            *(f"{row[name]:,.0f} ms" if row["ends"] else "-" for name in ("p50_ms", "p99_ms")),
            row["ends"],
        )
        for row in rows
    ]
    head = ("Jobs", "Client", "CPU s", "Collections s", "Requests", "Longest stall", "Own stalls", "Besides")
    text = table((*head, "Delay p50", "Delay p99", "Events"), cells)
    return _TEXT.format(ends=_ENDS, each=_ENDS_EACH_SECOND, thresholds=_THRESHOLDS, rows=text)


def _describe_jobs(row):
    parts = [f"{row['jobs']:,}"]
    parts += [f"and {row['finished']:,} finished"] if row["finished"] else []
    parts += ["(informer is running)"] if row["first"] else []
    parts += ["(collections are rare)"] if row["thresholds"] else []
    return " ".join(parts)


def goals(rows):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    ours = [row for row in rows if row["client"] == "trainjob" and row["jobs"] != 1000]
    cpu = max(row["cpu"] for row in ours)
    yield f"10,000 triggers start with at most {_CPU_SECONDS:.0f} s of CPU time", cpu <= _CPU_SECONDS, f"{cpu:.1f} s"
    for row in ours:
        where = f"the start of triggers for {_describe_jobs(row)}"
        besides = row["own_stalls"] - row["collection_stalls"]
        yield f"{where} causes no stall over 50 ms besides garbage collections", not besides, besides
        if row["thresholds"]:
            yield f"{where} causes no stall over 50 ms", not row["own_stalls"], row["own_stalls"]
        if row["first"]:
            met = row["p99_ms"] <= _DELAY_MS
            goal = f"a trigger fires at most {_DELAY_MS:.0f} ms after the change (p99) during {where}"
            yield goal, met, f"{row['p99_ms']:.0f} ms"
