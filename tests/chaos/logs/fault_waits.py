"""Waits under the faults of a scenario, and the comparison of their lines with what the containers wrote."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from datetime import timedelta
from random import Random
from typing import Any, Protocol

from tests.chaos.logs.checker import Findings, Runs, check_lines, numbered_line
from tests.chaos.logs.fault_proxy import FaultProxy
from tests.chaos.logs.scenarios import KUBELET_ERROR, Scenario
from trainjob.client import Cluster, Connection, LogLine
from trainjob.lifecycle import JobReference, Limits, Listener, wait

LIMIT = timedelta(minutes=4)
_SILENCE_SECONDS = 0.7
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

    def contain(self, source: str) -> bool:
        """Return whether a line of this source was emitted."""
        return any(line.source == source for line in list(self.lines))


class Workload(Protocol):
    """A running TrainJob whose containers write numbered lines.

    Attributes:
        reference: the TrainJob.
        written: the lines of each container's runs, by the source of its emitted lines.
    """

    reference: JobReference
    written: Mapping[str, Runs]

    def play(self, emitted: EmittedLines) -> None:
        """Do what the scenario requires during the wait, until the TrainJob has ended."""


def random_runs(random: Random, scenario: Scenario) -> list[list[str]]:
    """Return the lines of the runs of one container."""
    count = random.randint(1, 4) if scenario.containers == "restart" else 1
    return [_random_run(random, run, scenario.lines) for run in range(count)]


def _random_run(random: Random, run: int, most: int) -> list[str]:
    texts = ["x" * random.randrange(60) for _ in range(random.randint(1, most))]
    if random.random() < 0.1:
        texts[0] = "y" * random.choice(_LONG_LINES)
    return [numbered_line(run, number, text) for number, text in enumerate(texts)]


def encode_run(random: Random, run: Sequence[str]) -> Iterator[list[bytes]]:
    """Yield the lines of a run with their line ends, in pieces of random size.

    The last line may have no line end.
    """
    lines = [f"{line}\n".encode() for line in run]
    if random.random() < 0.2:
        lines[-1] = lines[-1][:-1]
    while lines:
        count = random.randint(1, len(lines))
        yield lines[:count]
        del lines[:count]


def run_waits(
    proxy: FaultProxy,
    scenario: Scenario,
    create: Callable[[Random, str], Workload],
    *,
    seed: str,
    count: int,
    threads: int,
) -> Findings:
    """Run waits at the same time, usually with one client, and return all findings.

    Args:
        proxy: running proxy to the cluster.
        scenario: what happens to each wait.
        create: creates the TrainJob of a wait from a generator of random numbers and a name.
        seed: number for random decisions; `SEED/N` runs only the wait N of that seed.
        count: number of waits.
        threads: number of waits that run at once.
    """
    seed, _, only = seed.partition("/")
    proxy.pods_delay = scenario.pods_delay

    def run(number: int) -> Findings:
        random = Random(f"{seed}/{scenario.name}/{number}")  # noqa: S311 - reproducible
        with nullcontext(shared) if not scenario.pods_delay else _open_cluster(proxy) as cluster:
            findings = _wait(cluster, proxy, scenario, random, create(random, f"{seed}-{number}"))
        findings.problems[:] = [f"LOG_SEED={seed}/{number}: {problem}" for problem in findings.problems]
        return findings

    with _open_cluster(proxy) as shared, ThreadPoolExecutor(threads) as executor:
        return sum(executor.map(run, [int(only)] if only else range(count)), Findings())


def _open_cluster(proxy: FaultProxy) -> closing[Cluster]:
    return closing(ImpatientCluster(Connection(server=proxy.url, namespace="default"), retry_seconds=8.0))


def _wait(cluster: Cluster, proxy: FaultProxy, scenario: Scenario, random: Random, workload: Workload) -> Findings:
    size = sum(len(line) + 32 for runs in workload.written.values() for run in runs for line in run)
    proxy.jobs[workload.reference.name] = scenario.faults(random, min(size, 100_000))
    emitted = EmittedLines(random, scenario.emit_seconds)
    player = threading.Thread(target=workload.play, args=(emitted,), daemon=True)
    player.start()
    limits = Limits(total=LIMIT, max_restarts=0 if scenario.containers == "fail" else None)
    wait(cluster, workload.reference, limits=limits, listener=Listener(on_log=emitted.add))
    player.join(LIMIT.total_seconds())
    findings = check_lines(workload.written, emitted.lines, {KUBELET_ERROR})
    if scenario.exact and findings.reported:
        findings.problems.append(f"{findings.reported} lines were reported as missing, but they could be read")
    return findings


def choose_seed() -> str:
    """Return a random seed, or the environment variable LOG_SEED, to repeat a failure."""
    return os.environ.get("LOG_SEED") or str(secrets.randbelow(1_000_000))


def assert_complete(scenario: Scenario, findings: Findings) -> None:
    """Check that no line was repeated or lost silently.

    In an exact scenario, each line must be emitted, and no notice.
    """
    problems = "\n".join(["repeat a wait with the environment variable in its line:", *findings.problems[:20]])
    assert (findings.repeated, findings.disordered, findings.lost) == (0, 0, 0), problems
    if scenario.exact:
        assert (findings.reported, findings.unneeded) == (0, 0), problems
