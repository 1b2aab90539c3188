"""Waits for TrainJobs whose containers are processes, on the laptop cluster or a real control plane."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from random import Random

from tests.chaos.logs.checker import Findings, Runs
from tests.chaos.logs.fault_proxy import FaultProxy
from tests.chaos.logs.fault_waits import EmittedLines, encode_run, random_runs, run_waits
from tests.chaos.logs.scenarios import Scenario
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster
from trainjob.lifecycle import submit

# Print the pieces of this run's lines, then fail if another run follows. In a run without lines, wait for the end.
_SCRIPT = """
cd {folder}/$JOB_COMPLETION_INDEX; run=0
while [ -e $run.done ]; do run=$((run + 1)); done
[ -e $run.0 ] || exec sleep 600
piece=0; while [ -e $run.$piece ]; do cat $run.$piece; sleep 0.0$((piece % 3 * 4)); piece=$((piece + 1)); done
touch $run.done; [ {last_run} = $run ]
"""


class ProcessWorkload:
    """A TrainJob whose ranks print files.

    Args:
        cluster: direct connection to the cluster.
        scenario: what happens to the containers: nothing, restarts, or a failure.
        random: generator of everything else.
        name: name for the run key.
        folder: folder for the files.
    """

    def __init__(self, cluster: Cluster, scenario: Scenario, random: Random, name: str, folder: Path) -> None:
        ranks = 1 if scenario.ranks == 1 else random.choice((1, 1, 1, 2))
        runs = {f"node-{rank}": random_runs(random, scenario) for rank in range(ranks)}
        self.written: Mapping[str, Runs] = runs
        for rank, lines in enumerate(runs.values()):
            (folder / str(rank)).mkdir(parents=True)
            for run, texts in enumerate(lines):
                for piece, content in enumerate(encode_run(random, texts)):
                    (folder / str(rank) / f"{run}.{piece}").write_bytes(b"".join(content))
        last_run = "never" if scenario.containers == "fail" else "$(ls | sed -n 's/[.]0$//p' | sort -n | tail -1)"
        script = _SCRIPT.format(folder=shlex.quote(str(folder)), last_run=last_run)
        trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", script], num_nodes=ranks)
        self.reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "logs", scenario.name, name))

    def play(self, emitted: EmittedLines) -> None:
        """Do nothing, because the processes run by themselves."""


def run_process_waits(
    proxy: FaultProxy, cluster: Cluster, folder: Path, scenario: Scenario, *, seed: str, count: int
) -> Findings:
    """Run waits for TrainJobs whose containers are processes; see [run_waits][]."""
    return run_waits(
        proxy,
        scenario,
        lambda random, name: ProcessWorkload(cluster, scenario, random, name, folder / name),
        seed=seed,
        count=count,
        threads=6,
    )
