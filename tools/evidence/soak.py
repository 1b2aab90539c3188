"""Soak test: jobs run for half an hour on a laptop cluster whose API server fails; each must end as expected.

It prints a line each minute. With --evidence DIR, it writes its figures for docs/evidence/reliability.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import urllib3

from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection, LogLine, LogNotice
from trainjob.errors import TrainJobError
from trainjob.lifecycle import Listener, cancel, submit, wait
from trainjob.status import Phase
from trainjob_local import LocalCluster

WORKERS = 6
_LINES = 200
_FAULT_SECONDS = 5.0
_FAULTS = (
    {"drop_watches": True},
    {"expire_watches": 2},
    {"error": {"code": 429, "times": 3, "retry_after": 1}},
    {"error": {"code": 503, "times": 3}},
    {"error": {"code": 500, "times": 2, "verb": "create", "resource": "trainjobs", "executed": True}},
    {"error": {"code": 504, "times": 2, "verb": "delete", "resource": "trainjobs", "executed": True}},
)
_PRINT_LINES = (
    f"read id < /proc/sys/kernel/random/uuid; i=0; while [ $i -lt {_LINES} ]; do echo $id $i; i=$((i+1)); done"
)
_LINE = re.compile(r"\[node-0\] (?P<container>[-0-9a-f]{36}) \d+")
# Kinds of jobs: the command of the container, and the phase with which the wait must end.
_KINDS = {
    "succeeds": (_PRINT_LINES, Phase.COMPLETE),
    "fails": (f"{_PRINT_LINES}; exit 3", Phase.FAILED),
    "is cancelled": ("echo begun; sleep 600", Phase.DELETED),
}


class Soak:
    """Jobs that run one after the other on each of several threads, with their results."""

    def __init__(self, laptop: LocalCluster) -> None:
        self.laptop = laptop
        self.cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
        self.is_over = threading.Event()
        self.ended_counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.lines = self.lost_lines = self.repeated_lines = self.reported_lines = 0
        self.notices: list[str] = []
        self._numbers, self._lock = itertools.count(), threading.Lock()

    def run_jobs(self) -> None:
        """Run one job after the other until the soak is over."""
        while not self.is_over.is_set():
            number = next(self._numbers)
            kind = random.choices(list(_KINDS), weights=(6, 2, 2))[0]  # noqa: S311 - no secret
            try:
                self._run_job(kind, RunKey("soak", "soak", "job", str(number)))
            except Exception as error:  # noqa: BLE001 - the soak test continues and prints it at the end
                self.errors.append(f"{kind}: {type(error).__name__}: {error}")
            with self._lock:
                self.ended_counts[kind] += 1

    def _run_job(self, kind: str, key: RunKey) -> None:
        command, expected = _KINDS[kind]
        trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", command])
        reference = submit(self.cluster, TrainJob(trainer=trainer, runtime="torch-distributed"), key)
        received: Counter[str] = Counter()
        notices: list[str] = []

        def on_log(line: LogLine) -> None:
            if isinstance(line, LogNotice):
                notices.append(f"{kind}: {line}")
                return
            received[str(line)] += 1
            if kind == "is cancelled" and len(received) == 1:
                threading.Thread(target=cancel, args=(self.cluster, reference), daemon=True).start()

        outcome = wait(self.cluster, reference, listener=Listener(on_log=on_log))
        if outcome.phase is not expected:
            self.errors.append(f"{kind}: {outcome.explain()}")
        if outcome.uid != reference.uid:
            self.errors.append(f"{kind}: the outcome is that of another job")
        if kind != "is cancelled":
            self._count_lines(received, notices)
            self.cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)

    def _count_lines(self, received: Counter[str], notices: Sequence[str]) -> None:
        """Add the missing and repeated lines of one job to the totals.

        Missing lines are lost unless a notice reports them. Only those of the first container count. If a container is
        restarted, its further output may be cut off because the job ends.
        """
        found = [(line, match["container"]) for line in received if (match := _LINE.fullmatch(line))]
        first = {line for line, container in found if container == found[0][1]}
        with self._lock:
            self.lines += _LINES
            if notices:
                self.reported_lines += _LINES - len(first)
                self.notices += notices
            elif len(first) < _LINES:
                self.lost_lines += _LINES - len(first)
                self.notices.append(f"{_LINES - len(first)} of {_LINES} lines are lost without a notice")
            self.repeated_lines += sum(received[line] - 1 for line, _ in found)

    def inject_faults(self) -> None:
        """Inject a fault into the API server every few seconds."""
        for fault in itertools.cycle(_FAULTS):
            if self.is_over.wait(_FAULT_SECONDS):
                return
            # Remove a fault that no request has met: several faults together would be an outage.
            self._send_fault_request("DELETE", None)
            self._send_fault_request("POST", fault)

    def _send_fault_request(self, method: str, fault: object) -> None:
        headers = {"Authorization": f"Bearer {self.laptop.token}"}
        with urllib3.PoolManager(ca_certs=str(self.laptop.ca_file)) as pool:
            pool.request(method, f"{self.laptop.server}/faults", body=json.dumps(fault), headers=headers, retries=5)

    def count_trainjobs(self) -> int:
        """Return the number of TrainJobs that still exist."""
        return len(self.cluster.list_trainjobs("default"))


def _measure_sizes(laptop: LocalCluster) -> dict[str, int]:
    """Return the sizes of this process and of the laptop cluster, by name."""
    return {
        "MB of the waiting process": _resident_megabytes(os.getpid()),
        "MB of the laptop cluster": _resident_megabytes(laptop.pid),
        "threads of the waiting process": threading.active_count(),
        "open files of the waiting process": len(list(Path("/proc/self/fd").iterdir())),
    }


def _resident_megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) // 1024


def run(minutes: float, warm_up_seconds: float = 60.0) -> dict[str, str | int | float]:
    """Run one soak test and return its figures.

    The figures start after the warm-up, when all modules are loaded.
    """
    with LocalCluster() as laptop:
        soak = Soak(laptop)
        threads = [threading.Thread(target=soak.run_jobs, daemon=True) for _ in range(WORKERS)]
        threads.append(threading.Thread(target=soak.inject_faults, daemon=True))
        for thread in threads:
            thread.start()
        time.sleep(warm_up_seconds)
        first, at_start, begun = sum(soak.ended_counts.values()), _measure_sizes(laptop), time.monotonic()
        sizes = at_start
        for minute in range(round(minutes)):
            time.sleep(max(0.0, begun + 60 * (minute + 1) - time.monotonic()))
            sizes = _measure_sizes(laptop)
            print(minute + 1, dict(soak.ended_counts), sizes, soak.errors[-1:], file=sys.stderr, flush=True)
        jobs, elapsed = sum(soak.ended_counts.values()) - first, (time.monotonic() - begun) / 60
        soak.is_over.set()
        for thread in threads:
            thread.join(120)
        hanging = sum(thread.is_alive() for thread in threads)
        row: dict[str, str | int | float] = {
            "minutes": round(elapsed),
            "jobs": jobs,
            "jobs per minute": round(jobs / elapsed),
            "jobs by kind": ", ".join(f"{count} {kind}" for kind, count in sorted(soak.ended_counts.items())),
            "unexpected results": len(soak.errors),
            "threads that did not end": hanging,
            "log lines": soak.lines,
            "missing lines that a notice reports": soak.reported_lines,
            "lost lines": soak.lost_lines,
            "repeated lines": soak.repeated_lines,
            "TrainJobs left": soak.count_trainjobs(),
            **{f"{name}, at the start": size for name, size in at_start.items()},
            **{f"{name}, at the end": size for name, size in sizes.items()},
        }
        for text in [*soak.errors[:20], *soak.notices[:20]]:
            print(text, file=sys.stderr)
        soak.cluster.close()
        return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--evidence", type=Path)
    options = parser.parse_args()
    try:
        found = run(options.minutes)
    except TrainJobError as error:
        sys.exit(str(error))
    print(json.dumps(found, indent=1))
    if options.evidence:
        options.evidence.mkdir(parents=True, exist_ok=True)
        (options.evidence / "soak.jsonl").write_text(json.dumps(found) + "\n")
    bad = ("unexpected results", "threads that did not end", "lost lines", "repeated lines")
    sys.exit(any(found[name] for name in bad))
