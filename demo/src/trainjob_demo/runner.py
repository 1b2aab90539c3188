"""The demo: hub, laptop cluster, workflow and score."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from trainjob.client import Cluster, Connection
from trainjob.local import LocalCluster
from trainjob_demo.chain import find_export_folder, run_chain
from trainjob_demo.engines import ENGINES
from trainjob_demo.errors import DemoError
from trainjob_demo.next_steps import format_next_steps
from trainjob_demo.paths import display_path
from trainjob_demo.tickets_hub import BASE_MODEL, Scorer, serve_hub
from trainjob_local.running_clusters import list_clusters

__all__ = ["WORKFLOWS", "handle_signals", "remove_cluster", "run_demo"]

WORKFLOWS = {"torchtune": "tickets_llm", "trl": "trl_sft"}
"""Name of the DAG and the pipeline of each framework."""

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def handle_signals() -> None:
    """Let the signals that end this process run its clean-up first."""
    for number in _ENDING_SIGNALS:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore SIGINT


def remove_cluster(state: Path) -> None:
    """Delete the files of the cluster of the previous demo.

    Args:
        state: folder of the cluster.

    Raises:
        DemoError: the cluster is running, because the user has started it again.
    """
    if any(Path(cluster.state).resolve() == state.resolve() for cluster in list_clusters()):
        raise DemoError(
            f"the laptop cluster of the previous demo is running, and the demo would delete its files: {state}",
            hint=f"stop it: {shlex.join(['trainjob', 'local', 'down', '--state', str(state)])}",
        )
    shutil.rmtree(state, ignore_errors=True)


def run_demo(
    engine_name: str, framework: str, environments: Mapping[str, Path], folder: Path, workflow: Path | None = None
) -> None:
    """Run the chain on a new laptop cluster, and print the scores of both models.

    Args:
        engine_name: one of `ENGINES`.
        framework: one of `WORKFLOWS`.
        environments: folders of the Python environments `initializer`, and of the framework and the engine; others
            replace images, as in [trainjob_local.LocalCluster][].
        folder: the demo's folder, whose lock this process holds.
        workflow: file of the DAG or the pipeline; None means the demo's own.

    Raises:
        ClusterError: the laptop cluster did not start, or does not answer.
        DemoError: a program or the workflow failed.
    """
    engine = ENGINES[engine_name](environments[engine_name], folder)
    workflow = workflow or engine.workflows / f"{WORKFLOWS[framework]}.py"
    training = environments[framework]
    state = folder / f"cluster-{engine_name}"
    remove_cluster(state)
    with serve_hub(training) as (hub, hub_url), contextlib.ExitStack() as stack:
        scorer = Scorer(hub, training)
        stack.callback(scorer.stop)
        images = {name: path for name, path in environments.items() if name not in ENGINES}
        laptop = stack.enter_context(LocalCluster(state, environments=images, pod_env={"HF_ENDPOINT": hub_url}))
        cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
        stack.callback(cluster.close)
        stack.callback(signal.signal, signal.SIGINT, signal.SIG_IGN)  # first: Ctrl-C does not stop the clean-up
        begun = time.monotonic()
        view = run_chain(engine, workflow, cluster, laptop.kubeconfig)
        seconds = time.monotonic() - begun
        export = find_export_folder(cluster, view, state)
        for name, taken in view.wall_times():
            print(f"{name:<18} {taken:5.1f} s")
        print(f"{'chain':<18} {seconds:5.1f} s")
        if export is not None:
            print(f"export: {display_path(export)}")
            print("right answers to 60 tickets that were not in the training data, before and after the training:")
            before = scorer.exact_match(hub / BASE_MODEL)
            print(f"exact match: {before} -> {scorer.exact_match(export)}")
        else:
            print("no score: the workflow left no model in the folder export of its workspace")
    print(format_next_steps(export, workflow, state), flush=True)
