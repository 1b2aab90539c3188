"""Waits for scripted TrainJobs under the faults of a scenario, and their comparison with what was written."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Any

from tests.chaos.logs.checker import Findings, check_lines, numbered_line
from tests.chaos.logs.fault_proxy import FaultProxy
from tests.chaos.logs.scenarios import KUBELET_ERROR, Scenario
from tests.chaos.logs.scripted_jobs import ScriptedCluster, ScriptedContainer, ScriptedJob
from trainjob.client import Cluster, Connection, LogLine
from trainjob.lifecycle import Limits, Listener, wait

THREADS = 12
_SILENCE_SECONDS = 0.7
_LIMIT = timedelta(minutes=3)
_LONG_LINES = (20_000, 60_000, 300_000)  # characters: more than a record, a read and a piece


class ImpatientCluster(Cluster):
    """A client that takes a log stream for broken after a short silence."""

    def open_log(self, *arguments: Any, **options: Any) -> Any:
        """Open a log; see [Cluster.open_log][]."""
        return super().open_log(*arguments, **{**options, "read_seconds": _SILENCE_SECONDS})


class EmittedLines:
    """The lines of one wait; `add` may take some time for each line."""

    def __init__(self, random: Random, seconds: float = 0.0) -> None:
        self.lines: list[LogLine] = []
        self._random, self._seconds = random, seconds

    def add(self, line: LogLine) -> None:
        if self._seconds and self._random.random() < 0.2:
            time.sleep(self._random.random() * self._seconds)
        self.lines.append(line)


def random_run(random: Random, run: int, most: int) -> list[str]:
    """Return the lines of one run of a container."""
    texts = ("x" * random.randrange(60) for _ in range(random.randint(1, most)))
    long = {0: random.choice(_LONG_LINES)} if random.random() < 0.1 else {}
    return [
        numbered_line(run, number, "y" * long[number] if number in long else text) for number, text in enumerate(texts)
    ]


class ScriptedWait:
    """One wait for a TrainJob with random containers, lines and pauses.

    Args:
        scripted: cluster of the TrainJob.
        scenario: what happens.
        random: generator of everything else.
        name: name of the TrainJob.
    """

    def __init__(self, scripted: ScriptedCluster, scenario: Scenario, random: Random, name: str) -> None:
        self._scenario, self._random = scenario, random
        ranks, containers = random.choice((1, 1, 2, 4)), random.choice((["node"], ["node"], ["node", "side"]))
        if scenario.ranks == 1:
            ranks, containers = 1, ["node"]
        self.job = scripted.create_job(name, ranks, containers, random.choice((0.0, 0.0, 0.001, 0.3, 2.0)))
        self._emitted = EmittedLines(random, scenario.emit_seconds)
        self.written = {
            source: [random_run(random, run, scenario.lines) for run in range(self._count_runs())]
            for source in self._containers()
        }

    def _containers(self) -> dict[str, ScriptedContainer]:
        return {
            f"node-{rank}" + (f"/{container.name}" if len(containers) > 1 else ""): container
            for rank, containers in enumerate(self.job.containers.values())
            for container in containers
        }

    def _count_runs(self) -> int:
        return self._random.randint(1, 4) if self._scenario.containers == "restart" else 1

    def check(self, cluster: Cluster, proxy: FaultProxy) -> Findings:
        """Wait, let the containers write meanwhile, and compare."""
        size = sum(len(line) + 31 for runs in self.written.values() for run in runs for line in run)
        proxy.jobs[self.job.reference.name] = self._scenario.faults(self._random, min(size, 100_000))
        player = threading.Thread(target=self._play, name=f"player of {self.job.reference.name}", daemon=True)
        player.start()
        restarts = 0 if self._scenario.containers == "fail" else None
        listener = Listener(on_log=self._emitted.add)
        wait(cluster, self.job.reference, limits=Limits(total=_LIMIT, max_restarts=restarts), listener=listener)
        player.join(_LIMIT.total_seconds())
        findings = check_lines(self.written, self._emitted.lines, {KUBELET_ERROR})
        if self._scenario.exact and findings.reported:
            findings.problems.append(f"{findings.reported} lines were reported as missing, but could be read")
        return findings

    def _play(self) -> None:
        """Write the lines, in random pieces and with random pauses, then end the containers and the TrainJob."""
        random, containers = self._random_of_player(), self._containers()
        active = {source: _pieces(random, runs) for source, runs in self.written.items()}
        while active:
            source = random.choice(list(active))
            piece = next(active[source], None)
            if piece is None:
                del active[source]
                if self._scenario.containers not in ("delete", "fail") and random.random() < 0.5:
                    self.job.end_container(containers[source])
            elif piece == []:
                self.job.restart(containers[source])
            else:
                containers[source].runs[-1].write(piece)
                if self._scenario.containers == "rotate" and random.random() < 0.2 and self._was_read(source):
                    containers[source].runs[-1].rotate()
            time.sleep(random.choice((0.0, 0.0, 0.01, 0.05)))
        self._end(random, containers)

    def _random_of_player(self) -> Random:
        return Random(self._random.random())  # noqa: S311 - of its own, because the threads take turns at random

    def _was_read(self, source: str) -> bool:
        """Return whether lines were emitted; a log that was never read does not show that it was rotated."""
        return any(line.source == source for line in self._emitted.lines)

    def _end(self, random: Random, containers: dict[str, ScriptedContainer]) -> None:
        if self._scenario.containers == "fail":
            self.job.restart(*containers.values())
            self.job.delete_pods_after_job(_LIMIT.total_seconds())
            return
        if self._scenario.containers == "delete":
            self.job.cluster.delete_pod(random.choice(list(self.job.containers)))
        for container in containers.values():
            if container.exit_code is None and (container.pod, container.name) in self.job.cluster.containers:
                self.job.end_container(container)
        self.job.finish()


def _pieces(random: Random, runs: list[list[str]]) -> Iterator[list[bytes]]:
    """Yield the lines of the runs in pieces of random size; an empty piece is a restart."""
    for number, run in enumerate(runs):
        if number:
            yield []
        lines = [f"{line}\n".encode() for line in run]
        if random.random() < 0.2:
            lines[-1] = lines[-1][:-1]
        while lines:
            count = random.randint(1, max(1, len(lines)))
            yield lines[:count]
            del lines[:count]


def run_scripted_waits(scenario: Scenario, seed: str, count: int) -> Findings:
    """Run waits at the same time with one client, and return all findings.

    Args:
        scenario: what happens to each wait.
        seed: number for random decisions; `SEED/N` runs only the wait N of that seed.
        count: number of waits.
    """
    seed, _, only = seed.partition("/")
    numbers = [int(only)] if only else range(count)
    with (
        ScriptedCluster() as scripted,
        FaultProxy(scripted.url, token=scripted.token) as proxy,
        _open(proxy) as cluster,
    ):

        def run(number: int) -> Findings:
            random = Random(f"{seed}/{scenario.name}/{number}")  # noqa: S311 - reproducible
            findings = ScriptedWait(scripted, scenario, random, f"job-{number}").check(cluster, proxy)
            findings.problems[:] = [f"LOG_SEED={seed}/{number}: {problem}" for problem in findings.problems]
            return findings

        with _delayed_pods(proxy, scenario.pods), ThreadPoolExecutor(THREADS) as threads:
            return sum(threads.map(run, numbers), Findings())


@contextmanager
def _open(proxy: FaultProxy) -> Iterator[Cluster]:
    cluster = ImpatientCluster(Connection(server=proxy.url, namespace="default"), retry_seconds=2.0)
    try:
        yield cluster
    finally:
        cluster.close()


@contextmanager
def _delayed_pods(proxy: FaultProxy, pods: str) -> Iterator[None]:
    if pods != "at once":
        proxy.pods_are_visible.clear()
    timer = threading.Timer(1.0, proxy.pods_are_visible.set)
    if pods == "late":
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        proxy.pods_are_visible.set()
