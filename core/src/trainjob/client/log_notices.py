"""Notices about missing output: the one wording for all of them.

A notice names the container, from which time its output is missing, why, and where to read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.client.log_lines import LogNotice, LogTime, format_time
from trainjob.status.pods import JOBSET_LABEL

POD_IS_GONE = "the pod is gone, and its log with it"
ONE_PREVIOUS_LOG = "Kubernetes keeps the log of one earlier run only"


@dataclass(frozen=True, slots=True)
class LoggedContainer:
    """A container whose log is read.

    Attributes:
        source: source of its lines, as in [LogLine][].
        namespace: namespace of the pod.
        pod: name of the pod.
        uid: uid of the pod.
        container: name of the container.
    """

    source: str
    namespace: str
    pod: str
    uid: str
    container: str

    @property
    def key(self) -> tuple[str, str]:
        """The pod's uid and the container's name."""
        return self.uid, self.container

    def command(self, *, previous: bool = False, after: LogTime | None = None) -> str:
        """Return the kubectl command that prints the log.

        Args:
            previous: print the log of the run before the last restart.
            after: time from which it prints the log; None for the whole log.
        """
        since = f" --since-time={format_time(after)}" if after else ""
        return (
            f"kubectl logs {self.pod} -c {self.container} -n {self.namespace}{' --previous' if previous else ''}{since}"
        )

    def notice(self, text: str) -> LogNotice:
        """Return a notice about this container."""
        return LogNotice(self.source, text, log=self)

    def missing(
        self,
        reason: str,
        *,
        after: LogTime | None = None,
        where: str = "",
        previous: bool = False,
        run: int = 0,
        skipped_runs: int = 0,
    ) -> LogNotice:
        """Return the notice that output of the container is missing until its end.

        Args:
            reason: why it is missing.
            after: time of the last line that was received; None if none was.
            where: where to read it; empty for the kubectl command.
            previous: whether the output is that of the run before the last restart.
            run: number of restarts before the run whose output is missing.
            skipped_runs: number of earlier runs, if all output of several runs is missing.
        """
        whose = f"run {run + 1} of " if run else ""
        if skipped_runs:
            whose = f"{skipped_runs} earlier run{'s' * (skipped_runs > 1)} of "
        extent = f"after {format_time(after)}" if after else "from its beginning"
        where = where or f"while the pod exists, read it with: {self.command(previous=previous, after=after)}"
        text = (
            f"output of {whose}container {self.container} of pod {self.pod} may be missing {extent}: {reason}; {where}"
        )
        return self.notice(text)

    def rotated(self, after: LogTime, until: LogTime) -> LogNotice:
        """Return the notice that lines between two times may be in a rotated log file."""
        folder = f"/var/log/pods/{self.namespace}_{self.pod}_{self.uid}/{self.container}"
        return self.notice(
            f"output of container {self.container} of pod {self.pod} may be missing between {format_time(after)} and "
            f"{format_time(until)}: the kubelet rotated the log file while no stream was open, and serves the newest "
            f"file only; while the pod exists, its node has the rotated files in {folder}"
        )


def pods_are_unknown(trainjob: str, namespace: str, reason: str) -> LogNotice:
    """Return the notice that output of any container of a TrainJob may be missing."""
    selector = f"{JOBSET_LABEL}={trainjob}"
    return LogNotice(
        "",
        f"output of TrainJob {namespace}/{trainjob} may be missing from its beginning: {reason}; while its pods exist, "
        f"read it with: kubectl logs -l {selector} -n {namespace} --all-containers --prefix --tail=-1",
    )


def pods_are_not_watched(trainjob: str, namespace: str, reason: str) -> LogNotice:
    """Return the notice that the watch of a TrainJob's pods has failed."""
    return LogNotice(
        "",
        f"the pods of TrainJob {namespace}/{trainjob} can't be watched: {reason}; until the watch succeeds, which is "
        "tried again every few minutes, new log lines are missing, and restarts and the reasons of failing starts are "
        "not seen",
    )
