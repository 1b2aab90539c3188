"""`trainjob migrate test`: run one converted job on a cluster, and delete it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console

from trainjob.cli import completion, terminal
from trainjob.cli.interruption import Interrupted, Interruption
from trainjob.cli.progress_output import ProgressOutput
from trainjob.cli.terminal import escape
from trainjob.client import Cluster
from trainjob.errors import (
    AdmissionRefused,
    ClusterError,
    Conflict,
    InvalidSpec,
    NotFound,
    PermissionDenied,
    Problem,
    QuotaExceeded,
    Unauthorized,
)
from trainjob.lifecycle import KillAction, Limits, RunKey, cancel, reference_to, run_key_of, wait_async
from trainjob.manifest import Dialect, detect_dialect, job_name, labels
from trainjob.spec.base_request import MAX_NAME_LENGTH
from trainjob.spec.durations import parse_duration
from trainjob.status import Outcome, derive_verdict
from trainjob_migrate import Launch, convert
from trainjob_migrate.cli import output, sources
from trainjob_migrate.report import ConvertedJob

__all__ = ["trial"]

_FILE = typer.Argument(metavar="FILE", help="File with one v1 job; - means standard input.", show_default=False)
_NAMESPACE = completion.create_namespace_option(
    "Namespace of the test. Default: that of the file, then that of the kubeconfig's context."
)
_KEEP = typer.Option("--keep", help="Retain the TrainJob and its TrainingRuntime at the end.", show_default=False)
_TIMEOUT = typer.Option(
    metavar="DURATION", help="Delete the TrainJob after this time, such as 30m or 12h.", show_default=False
)
_SUFFIX = "-test"
_TESTS = ("cli", "migrate-test")  # engine and workflow of the run keys
_TRAINJOB, _RUNTIME = "TrainJob", "TrainingRuntime"
# Retention of the objects of a killed test: `trainjob sweep` deletes them this long after their end.
_RETENTION = "1h"


def trial(
    file: Annotated[str, _FILE],
    namespace: Annotated[str, _NAMESPACE] = "",
    keep: Annotated[bool, _KEEP] = False,
    timeout: Annotated[str, _TIMEOUT] = "",
    launch: Annotated[Launch, sources.LAUNCH] = Launch.ENVIRONMENT,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Run one v1 job as a TrainJob under another name, and delete it afterwards.

    The test does the real work of the job on the cluster, with its volumes and secrets. Use a copy with little work,
    for example one epoch. The TrainJob has the name NAME-test-..., runs even if the job is suspended, and ends at the
    first container that fails. The command prints phases and logs. Ctrl-C and SIGTERM also delete the TrainJob. If the
    command is killed, `trainjob sweep` deletes it an hour after its end, or the next test of the same job deletes it.

    With --json: the outcome, as `trainjob wait` prints it.

    Example: trainjob migrate test jobs/bert-short.yaml -n team-a --timeout 30m
    """
    total = parse_duration(timeout, "--timeout", default_unit="s") if timeout else None
    source = _only_job(file, launch)
    console = terminal.error_console() if as_json else terminal.console()
    try:
        with terminal.open_cluster() as cluster:
            where = namespace or source.conversion.namespace or cluster.namespace
            tested = _TestObjects.from_job(source, where, detect_dialect(cluster.trainjob_spec_fields()), launch)
            outcome = asyncio.run(_TestRun(cluster, tested, keep, total, console).run())
    except Interrupted as stopped:
        raise typer.Exit(stopped.exit_code) from None
    if as_json:
        terminal.print_json(outcome.to_dict())
    outcome.raise_for_failure()
    console.print(f"[bold green]complete[/]: {escape(str(source))} runs as a TrainJob")


def _only_job(file: str, launch: Launch) -> ConvertedJob:
    report = sources.convert_sources([file], dialect=Dialect.V2_2, launch=launch)
    output.print_read_errors(terminal.error_console(), report)
    if len(report.jobs) != 1 or report.read_errors:
        raise InvalidSpec(Problem("FILE", repr(file), f"the file must have one job, but has {len(report.jobs)}"))
    return report.jobs[0]


@dataclass(frozen=True)
class _TestObjects:
    """The objects that a test creates.

    Attributes:
        train_job: the TrainJob.
        runtime: the TrainingRuntime that the TrainJob needs; None if a stock runtime is enough.
        key: the run key; each test of a job is a run of its own.
    """

    train_job: Mapping[str, Any]
    runtime: Mapping[str, Any] | None
    key: RunKey

    @classmethod
    def from_job(cls, source: ConvertedJob, namespace: str, dialect: Dialect, launch: Launch) -> _TestObjects:
        """Convert the job under the name of the test.

        The name is set before the conversion, so that a generated TrainingRuntime has it, too.

        Raises:
            InvalidSpec: the job is refused.
        """
        old, key = source.conversion, RunKey(*_TESTS, source.conversion.name, uuid.uuid4().hex)
        name = job_name(f"{old.name[: MAX_NAME_LENGTH - len(_SUFFIX)]}{_SUFFIX}", key.digest, 1)
        metadata = {**old.source["metadata"], "name": name, "namespace": namespace}
        new = convert({**old.source, "metadata": metadata}, dialect=dialect, launch=launch)
        if new.train_job is None:
            problems = [Problem(record.path, record.given, record.reason) for record in new.blockers]
            raise InvalidSpec(problems, hint="change the job; `trainjob migrate report` shows all of its fields")
        spec = {field: value for field, value in new.train_job["spec"].items() if field != "suspend"}
        return cls(
            _add_run_metadata(new.train_job, key) | {"spec": spec},
            new.runtime and _add_run_metadata(new.runtime, key),
            key,
        )

    @property
    def name(self) -> str:
        """Name of the TrainJob and of its TrainingRuntime."""
        return str(self.train_job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the TrainJob and of its TrainingRuntime."""
        return str(self.train_job["metadata"]["namespace"])


def _add_run_metadata(manifest: Mapping[str, Any], key: RunKey) -> dict[str, Any]:
    """Return the object with the labels and annotations of its run key and its retention."""
    metadata = manifest["metadata"]
    additions = {
        "labels": labels.run_labels(key.to_dict(), key.digest, 1),
        "annotations": {
            labels.RUN_KEY: key.canonical,
            labels.TTL_AFTER_SUCCESS: _RETENTION,
            labels.TTL_AFTER_FAILURE: _RETENTION,
        },
    }
    return {
        **manifest,
        "metadata": {**metadata, **{part: {**metadata.get(part, {}), **additions[part]} for part in additions}},
    }


@dataclass(frozen=True)
class _TestRun:
    """One running test.

    Attributes:
        cluster: the cluster on which it runs.
        objects: the objects that it creates.
        keep: whether to retain the objects at the end.
        timeout: longest duration of the wait; None for no limit.
        console: console for phases and logs.
    """

    cluster: Cluster
    objects: _TestObjects
    keep: bool
    timeout: timedelta | None
    console: Console

    async def run(self) -> Outcome:
        """Create the objects, wait until the TrainJob ends, and delete the objects in any case.

        With `keep`, the objects are retained.
        """
        interruption, objects = Interruption(), self.objects
        interruption.handle_signals(
            lambda: terminal.error_console().print("[yellow]interrupted: deleting the created objects[/]")
        )
        kill_action = KillAction.KEEP if self.keep else KillAction.DELETE
        limits = Limits(total=self.timeout, on_failure=kill_action, on_timeout=kill_action)
        may_exist: set[str] = set()
        try:
            with ProgressOutput(self.console, interruption) as progress_output:
                await asyncio.to_thread(self._delete_earlier)
                created = await asyncio.to_thread(self._create, may_exist)
                reference = reference_to(created, adopted=False)
                progress_output.print_line(
                    f"TrainJob {reference}: created" + (" with its TrainingRuntime" if objects.runtime else "")
                )
                return await interruption.run(
                    wait_async(
                        self.cluster, reference, limits=limits, listener=progress_output.create_listener(reference)
                    )
                )
        finally:
            if self.keep and _TRAINJOB in may_exist:
                place = f"{objects.namespace}/{objects.name}"
                terminal.error_console().print(
                    f"retained: TrainJob {place}; `trainjob sweep` deletes it an hour after its end"
                )
            else:
                await asyncio.to_thread(self._delete_objects, may_exist)

    def _create(self, may_exist: set[str]) -> dict[str, Any]:
        """Create the TrainingRuntime and the TrainJob, which then owns the TrainingRuntime.

        Deleting the TrainJob deletes the TrainingRuntime too.

        Args:
            may_exist: set to which the kinds of the created objects are added.
        """
        runtime = None
        if self.objects.runtime:
            with _record_creation(_RUNTIME, may_exist):
                runtime = self.cluster.runtimes.create(self.objects.runtime)
        with _record_creation(_TRAINJOB, may_exist):
            created = self.cluster.create_trainjob(self.objects.train_job)
        if runtime:
            self.cluster.runtimes.set_owner(runtime, created)
        return created

    def _delete_earlier(self) -> None:
        """Delete the finished TrainJobs of earlier tests of the same job, and report running ones.

        A running TrainJob may belong to another user's test.
        """
        task = self.objects.key.task
        selector = f"{labels.WORKFLOW}={_TESTS[1]},{labels.TASK}={labels.label_value(task)}"
        for job in self.cluster.list_trainjobs(self.objects.namespace, selector):
            key = run_key_of(job)
            if key is None or (key.engine, key.workflow, key.task) != (*_TESTS, task):
                continue
            reference, phase = reference_to(job, adopted=True), derive_verdict(job).phase
            if phase.finished:
                cancel(self.cluster, reference, ignore_end=True)
            else:
                warning = f"TrainJob {reference} of another test is {phase.value}; `trainjob cancel` deletes it"
                terminal.error_console().print(f"[yellow]{escape(warning)}[/]")

    def _delete_objects(self, may_exist: set[str]) -> None:
        """Delete the TrainJob and the TrainingRuntime by their unique name, if they may exist.

        The name is used because the response to the creation may be lost.
        """
        name, namespace = self.objects.name, self.objects.namespace
        deletions = {
            _TRAINJOB: partial(self.cluster.delete_trainjob, name, namespace, None),
            _RUNTIME: partial(self.cluster.runtimes.delete, name, namespace),
        }
        for kind, delete in deletions.items():
            if kind not in may_exist:
                continue
            try:
                delete()
            except ClusterError as error:
                place = escape(f"{kind} {namespace}/{name}")
                terminal.error_console().print(f"[bold red]{place} could not be deleted:[/] {escape(str(error))}")


@contextlib.contextmanager
def _record_creation(kind: str, may_exist: set[str]) -> Iterator[None]:
    """Add the kind of an object that the block creates, unless the object is refused.

    Without a response, the object may exist.
    """
    may_exist.add(kind)
    try:
        yield
    except (AdmissionRefused, Conflict, NotFound, PermissionDenied, QuotaExceeded, Unauthorized):
        may_exist.discard(kind)
        raise
