"""Waits for scripted TrainJobs: what their containers do meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from random import Random
from threading import Timer

from tests.chaos.logs.checker import Findings, Runs
from tests.chaos.logs.fault_proxy import FaultProxy
from tests.chaos.logs.fault_waits import LIMIT, EmittedLines, encode_run, random_runs, run_waits
from tests.chaos.logs.scenarios import Scenario
from tests.chaos.logs.scripted_jobs import ScriptedCluster

_SPREADS = (0.0, 0.0, 0.001, 0.3, 2.0)  # seconds between the times of two lines; 0 means the real time


class ScriptedWorkload:
    """A TrainJob with random containers, lines and pauses.

    Args:
        cluster: cluster of the TrainJob.
        scenario: what happens to the containers.
        random: generator of everything else.
        name: name of the TrainJob.
    """

    def __init__(self, cluster: ScriptedCluster, scenario: Scenario, random: Random, name: str) -> None:
        self._scenario, self._random = scenario, Random(random.random())  # noqa: S311 - play() has its own thread
        ranks, containers = random.choice((1, 1, 2, 4)), random.choice((["node"], ["node"], ["node", "side"]))
        if scenario.ranks == 1:
            ranks, containers = 1, ["node"]
        self._job = cluster.create_job(f"job-{name}", ranks, containers, random.choice(_SPREADS))
        self.reference = self._job.reference
        self._containers = {
            f"node-{rank}" + (f"/{container.name}" if len(containers) > 1 else ""): container
            for rank, pod in enumerate(self._job.containers.values())
            for container in pod
        }
        self._reporters: dict[str, Timer] = {}
        self.written: Mapping[str, Runs] = {source: random_runs(random, scenario) for source in self._containers}

    def play(self, emitted: EmittedLines) -> None:
        """Write the lines with random pauses, then end the containers and the TrainJob."""
        random, scenario = self._random, self._scenario
        active = {source: self._pieces(source) for source in self.written}
        while active:
            source = random.choice(list(active))
            container, piece = self._containers[source], next(active[source], None)
            if piece is None:
                del active[source]
                if scenario.containers not in ("delete", "fail") and random.random() < 0.5:
                    self._wait_for_status(source)
                    self._job.end_container(container)
            elif not piece:
                self._wait_for_status(source)
                self._job.restart(container)
                self._reporters[source] = Timer(scenario.status_delay, self._job.report, [container.pod])
                self._reporters[source].start()
            else:
                container.runs[-1].write(piece)
                if scenario.containers == "rotate" and random.random() < 0.2 and emitted.contain(source):
                    container.runs[-1].rotate()  # if a log was never read, nothing shows that it was rotated
            time.sleep(random.choice((0.0, 0.0, 0.01, 0.05)))
        for source in self._containers:
            self._wait_for_status(source)
        self._end()

    def _wait_for_status(self, source: str) -> None:
        """Wait until the container's last restart was reported."""
        if reporter := self._reporters.pop(source, None):
            reporter.join()

    def _pieces(self, source: str) -> Iterator[list[bytes]]:
        """Yield the lines of all runs; an empty piece is a restart."""
        for number, run in enumerate(self.written[source]):
            if number:
                yield []
            yield from encode_run(self._random, run)

    def _end(self) -> None:
        if self._scenario.containers == "fail":
            [container] = self._containers.values()
            self._job.restart(container)
            self._job.report(container.pod)
            self._job.delete_pods_after_job(LIMIT.total_seconds())
            return
        if self._scenario.containers == "delete":
            self._job.delete_pod(self._random.choice(list(self._job.containers)))
        for container in self._containers.values():
            if container.exit_code is None and container.pod in self._job.containers:
                self._job.end_container(container)
        self._job.finish()


def run_scripted_waits(scenario: Scenario, seed: str, count: int) -> Findings:
    """Run waits for scripted TrainJobs; see [run_waits][]."""
    with ScriptedCluster() as cluster, FaultProxy(cluster.url, token=cluster.token) as proxy:
        return run_waits(
            proxy,
            scenario,
            lambda random, name: ScriptedWorkload(cluster, scenario, random, name),
            seed=seed,
            count=count,
            threads=8,
        )
