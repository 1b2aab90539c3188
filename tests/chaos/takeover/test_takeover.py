"""Waiter processes are handed over in order and killed at random moments, while a job prints numbered lines.

No line is lost. After a hand-over, lines of the last second are repeated; after a SIGKILL, also those since the last
stored snapshot. They follow a notice.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.polling import wait_until
from trainjob.lifecycle import RunKey, submit
from trainjob.spec import TrainJob

pytestmark = pytest.mark.timeout(1500)
WAITER = Path(__file__).with_name("waiter.py")
SECONDS = 0.3  # between two stored snapshots
NODES = 2
LINES_OF_A_SECOND = 11  # at most, because the job sleeps for 0.1 s after each
LINE = re.compile(r"\[(?P<source>node-\d)\] line (?P<number>\d+)")
ENDS = {"orderly hand-over": signal.SIGTERM, "SIGKILL": signal.SIGKILL}


class CountingJob:
    """A TrainJob that prints numbered lines until a file exists, and its waiters' log."""

    def __init__(self, laptop, cluster, folder):
        self._kubeconfig, self._folder = str(laptop.kubeconfig), folder
        self._end = folder / "end"
        count = f"n=0; while [ ! -e {self._end} ]; do n=$((n+1)); echo line $n; sleep 0.1; done; printf 'last %d' $n"
        job = TrainJob(trainer={"image": "busybox", "command": ["sh", "-c", count], "num_nodes": NODES})
        self._reference = submit(cluster, job, RunKey("test", "takeover", "count", uuid.uuid4().hex))
        self.output = folder / "output"
        self.output.touch()

    def start_waiter(self):
        arguments = [self._kubeconfig, json.dumps(self._reference.to_dict()), self._folder / "store", self.output]
        return subprocess.Popen([sys.executable, WAITER, *map(str, arguments), str(SECONDS)])

    def wait_for_new_lines(self, process):
        """Wait until a new waiter has written lines of all pods."""
        written = self.output.stat().st_size
        try:
            wait_until(lambda: has_all_pods(self.output.read_bytes()[written:]) or process.poll() is not None, 120)
            assert process.poll() is None
        except AssertionError:
            process.kill()
            raise

    def end(self):
        self._end.touch()
        assert self.start_waiter().wait(120) == 0


def has_all_pods(data):
    return all(f"[node-{rank}] line".encode() in data for rank in range(NODES))


def count_lines(text):
    """Return counts of a log, and the lines that are repeated although they were stored."""
    counts = dict.fromkeys(("lines", "lost", "repeated", "marked"), 0)
    seen, stored, too_old = set(), set(), []
    written, snapshot = [], 0  # lines of the current waiter, and how many of them its last snapshot contains
    marked = dict.fromkeys([f"node-{rank}" for rank in range(NODES)], False)
    for line in text.splitlines():
        if line == "# started":  # it does not know the lines that the last waiter wrote after its last stored snapshot
            written, snapshot = [], 0
        elif line == "# snapshot":
            snapshot = max(0, len(written) - NODES)  # each pod's last line may be between its write and its record
        elif line == "# stored":
            stored.update(written[:snapshot])
        elif "another process has written its log until here" in line:
            marked = dict.fromkeys(marked, True)
        elif found := LINE.fullmatch(line):
            key = (found["source"], int(found["number"]))
            if key in seen:
                counts["repeated"] += 1
                counts["marked"] += marked[key[0]]
                too_old += [key] * ((key[0], key[1] + LINES_OF_A_SECOND) in stored)
            marked[key[0]] = marked[key[0]] and key in seen  # until the first new line
            seen.add(key)
            written.append(key)
    for source in marked:
        numbers = {number for name, number in seen if name == source}
        counts["lost"] += max(numbers) - len(numbers)
        counts["lost"] += f"[{source}] last {max(numbers)}" not in text
        counts["repeated"] += max(0, text.count(f"[{source}] last ") - 1)
    counts["lines"] = len(seen)
    return counts, too_old


def run_waiters(laptop, cluster, folder, ends, random_numbers):
    folder.mkdir()
    job = CountingJob(laptop, cluster, folder)
    try:
        for end in ends:
            with job.start_waiter() as process:
                job.wait_for_new_lines(process)
                time.sleep(random_numbers.uniform(0.0, 3 * SECONDS))  # the moment of the end is random
                process.send_signal(ENDS[end])
                assert process.wait(60) == (0 if end == "orderly hand-over" else -signal.SIGKILL)
    finally:
        job.end()
    return count_lines(job.output.read_text())


def check(end, runs, results, evidence):
    counts = {name: sum(result[name] for result, _ in results) for name in results[0][0]}
    print(end, runs, counts)
    evidence("takeover", process="trainjob.lifecycle.wait", end=end, runs=runs, **counts)
    assert counts["lost"] == 0
    assert counts["repeated"] == counts["marked"]
    assert [key for _, too_old in results for key in too_old] == []
    if end == "orderly hand-over":
        assert counts["repeated"] <= runs * NODES * LINES_OF_A_SECOND


def test_the_log_continues(laptop, cluster, tmp_path, random_numbers, evidence):
    result = run_waiters(laptop, cluster, tmp_path / "job", ["SIGKILL"] * 2, random_numbers)
    check("SIGKILL", 2, [result], evidence)


@pytest.mark.slow
@pytest.mark.parametrize("end", [*ENDS, "either"])
def test_the_log_continues_over_a_hundred_waiters(laptop, cluster, tmp_path, random_numbers, evidence, end):
    jobs, waiters = 3, 35
    choices = [*ENDS] if end == "either" else [end]
    plans = [random_numbers.choices(choices, k=waiters) for _ in range(jobs)]

    def run(number):
        return run_waiters(laptop, cluster, tmp_path / str(number), plans[number], random_numbers)

    with ThreadPoolExecutor(jobs) as threads:
        results = list(threads.map(run, range(jobs)))
    check(end, jobs * waiters, results, evidence)
