"""Live view of a namespace's TrainJobs.

It has one line for each step, with a progress bar of the training.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from trainjob.client import Cluster, LogFollower, LogLine, ObjectEvent
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict

__all__ = ["ChainView"]


@dataclass
class _Step:
    name: str
    progress_bar: TaskID
    logs: LogFollower
    log_parser: JobLogParser = field(default_factory=JobLogParser)
    began: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    shown_phase: str = ""
    shown_tenth: int = 0


class ChainView:
    """Context manager that shows the TrainJobs from the moment it is entered.

    Without a terminal, it prints plain lines.

    Args:
        cluster: client of the cluster.
        namespace: namespace of the TrainJobs.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._console = Console()
        self._bars = Progress(
            TextColumn("{task.description:<18}"),
            TextColumn("{task.fields[phase]:<22}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[step]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._steps: dict[str, _Step] = {}
        self._jobs: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._event_handlers: list[Any] = []

    def __enter__(self) -> ChainView:
        if self._console.is_terminal:
            self._bars.start()
        self._event_handlers = [
            self._cluster.trainjob_informer(self._namespace).add_event_handler(None, self._on_job),
            self._cluster.pod_informer(self._namespace).add_event_handler(None, self._on_pod),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for step in list(self._steps.values()):
            step.logs.finish(2.0)
        for handler in self._event_handlers:
            handler.close()
        if self._console.is_terminal:
            self._bars.stop()

    def find_claim(self) -> str | None:
        """Return the claim that the steps' pods mount as their workspace; None if none does."""
        for job in self._jobs.values():
            for pod in self._cluster.list_pods(job["metadata"]["name"], job["metadata"]["namespace"]):
                for volume in pod["spec"].get("volumes", ()):
                    if source := volume.get("persistentVolumeClaim"):
                        return str(source["claimName"])
        return None

    def wall_times(self) -> list[tuple[str, float]]:
        """Return (step, seconds from its creation to its end), in the order of creation."""
        return [(step.name, step.seconds) for step in self._steps.values() if step.seconds is not None]

    def _on_job(self, event: ObjectEvent) -> None:
        if event.object is None or event.deleted:
            return
        with self._lock:
            name, verdict = event.object["metadata"]["name"], derive_verdict(event.object)
            self._jobs[name] = event.object
            step = self._steps.get(name) or self._add(name, event.object)
            self._show(step, verdict.phase.value + (f" {verdict.reason}" if verdict.phase is Phase.FAILED else ""))
            if verdict.phase is Phase.COMPLETE:
                self._bars.update(step.progress_bar, completed=100)
            if verdict.phase.finished and step.seconds is None:
                step.seconds = time.monotonic() - step.began
                self._bars.stop_task(step.progress_bar)

    def _add(self, name: str, job: Any) -> _Step:
        title = (job["metadata"].get("labels") or {}).get(labels.TASK, name)
        bar = self._bars.add_task(title, total=100, phase="", step="")
        logs = LogFollower(self._cluster, self._namespace, lambda line: self._on_log(name, line))
        self._steps[name] = _Step(title, bar, logs)
        return self._steps[name]

    def _on_pod(self, event: ObjectEvent) -> None:
        if event.object is None:
            return
        with self._lock:
            step = self._steps.get(event.object["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"])
        if step:
            step.logs.observe(event)

    def _on_log(self, name: str, line: LogLine) -> None:
        with self._lock:
            step = self._steps[name]
            if progress := step.log_parser.feed(line.text):
                self._bars.update(step.progress_bar, completed=progress.percent or 0, step=str(progress))
                tenth = int((progress.percent or 0) // 10)
                if tenth > step.shown_tenth and not self._console.is_terminal:
                    step.shown_tenth = tenth
                    print(f"{step.name:<18} {progress}", flush=True)

    def _show(self, step: _Step, phase: str) -> None:
        self._bars.update(step.progress_bar, phase=phase)
        if phase != step.shown_phase and not self._console.is_terminal:
            print(f"{step.name:<18} {phase}", flush=True)
        step.shown_phase = phase
