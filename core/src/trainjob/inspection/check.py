"""Check whether TrainJobs can run in a namespace, with advice if they cannot.

Pure functions turn the facts about the platform into rows of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from trainjob.errors import AdmissionRefused, ClusterError, NotFound, PermissionDenied, QuotaExceeded
from trainjob.manifest import Dialect, dialect_of, missing_from
from trainjob.spec.job import STOCK_RUNTIME
from trainjob.spec.resources import gpus
from trainjob.status.platform import JOBSET, KUEUE, STORAGE, Platform
from trainjob.status.reading import rows, table, text
from trainjob.status.rights import in_words
from trainjob.status.runtimes import RuntimeDescription

_NEWEST = list(Dialect)[-1]
_SILENT_SECONDS = 60
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_WEBHOOK = '.trainer.kubeflow.org" denied'
_MOST_NAMED = 12
_PODS_OF_TRAINER = "kubectl get pods -n kubeflow-system"


class Grade(str, Enum):
    """Grade of one row of the check."""

    OK = "ok"
    WARNING = "warning"
    """TrainJobs run, but some features do not work."""
    FAILED = "failed"
    """No TrainJob runs."""
    UNKNOWN = "unknown"
    """It could not be checked."""


@dataclass(frozen=True)
class Row:
    """Result of the check of one subject.

    Attributes:
        name: the subject, such as `permissions`.
        grade: the grade.
        text: what was found, or what is wrong and its effect.
        advice: the remedy; empty if there is nothing to do.
    """

    name: str
    grade: Grade
    text: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {**asdict(self), "grade": self.grade.value}


def check_up(platform: Platform, now: datetime) -> list[Row]:
    """Return one row for each checked subject of a namespace.

    Args:
        platform: the facts about the cluster and the namespace.
        now: the current time; a TrainJob that is older than a minute must have a status.
    """
    found = [_api(platform), *_trainer(platform), _jobset(platform), _permissions(platform)]
    if platform.spec_fields is not None:
        found += [*_admission(platform), *_controller(platform, now), _runtimes(platform)]
    return [*found, *_kueue(platform), *_storage(platform), *_claims(platform)]


def can_run(found: Sequence[Row]) -> bool:
    """Return whether TrainJobs can run; subjects that could not be checked do not count."""
    return all(row.grade is not Grade.FAILED for row in found)


def _api(platform: Platform) -> Row:
    who = f"you are {platform.user}" if platform.user else "it does not tell who you are"
    return Row("api server", Grade.OK, f"{platform.server} is Kubernetes {platform.version}; {who}")


def _trainer(platform: Platform) -> Iterator[Row]:
    name, fields = "trainer", platform.spec_fields
    if fields is None:
        wrong = "Kubeflow Trainer is not installed: no TrainJobs are served"
        advice = "install Kubeflow Trainer 2.0 or later with its CRDs, or connect to the cluster that has it"
        yield Row(name, Grade.FAILED, wrong, advice)
        return
    dialect = dialect_of(fields)
    version = platform.trainer.removeprefix("v") or f"{dialect.value}{' or later' if dialect is _NEWEST else ''}"
    if not fields:
        yield Row(name, Grade.UNKNOWN, f"its API is not told: it is taken for that of Trainer {_NEWEST.value} or later")
    elif dialect is _NEWEST:
        yield Row(name, Grade.OK, f"Kubeflow Trainer {version}")
    else:
        lacking = f"Kubeflow Trainer {version}, which is old; each with the version that has it: "
        advice = f"upgrade Kubeflow Trainer to {_NEWEST.value} or later; until then what needs one of these is refused"
        yield Row(name, Grade.WARNING, lacking + ", ".join(missing_from(dialect)), advice)


def _jobset(platform: Platform) -> Row:
    if JOBSET in platform.groups:
        return Row("jobset", Grade.OK, "JobSet is installed")
    wrong = "JobSet is not installed: TrainJobs are accepted, and nothing runs"
    return Row("jobset", Grade.FAILED, wrong, "install the version of JobSet that the Trainer's own manifests name")


def _permissions(platform: Platform) -> Row:
    name, denied = "permissions", platform.denied
    if isinstance(denied, ClusterError):
        return Row(name, Grade.UNKNOWN, f"they can't be asked: {denied.message}")
    if not denied:
        return Row(name, Grade.OK, f"all that is needed in namespace {platform.namespace}")
    without = "; ".join(dict.fromkeys(right.without for right in denied))
    grade = Grade.FAILED if any(right.needed for right in denied) else Grade.WARNING
    wheres = {"cluster" if right.cluster_wide else "person" for right in denied}
    given = " and ".join(
        f"`kubectl apply {'' if where == 'cluster' else f'-n {platform.namespace} '}-k manifests/{where}`"
        for where in sorted(wheres, reverse=True)
    )
    advice = f"have it granted: {given}, or only what is missing, as below"
    return Row(name, grade, f"you may not {in_words(denied)}. So: {without}", advice)


def _admission(platform: Platform) -> Iterator[Row]:
    """Yield the rows of the webhook and of a trial TrainJob.

    If the webhook could not be tried, the trial failed for the same reason and is left out.
    """
    name, refusal = "webhook", platform.refusal
    if refusal is None:
        wrong = "a TrainJob that is wrong was accepted: the Trainer's webhook is not registered, and such a one hangs"
        yield Row(name, Grade.WARNING, wrong, "install the Trainer anew")
    elif not isinstance(refusal, AdmissionRefused):
        yield _failed_to_try(name, refusal)
        return
    elif _WEBHOOK in refusal.message:
        yield Row(name, Grade.OK, "the Trainer's webhook answers")
    else:
        yield Row(name, Grade.UNKNOWN, f"another rule came before the Trainer's webhook: {refusal.message}")
    yield _tried(platform)


def _failed_to_try(name: str, error: ClusterError) -> Row:
    if isinstance(error, PermissionDenied):
        return Row(name, Grade.UNKNOWN, "it can't be tried without the right to create trainjobs")
    if isinstance(error, QuotaExceeded):
        return Row(name, Grade.WARNING, error.message, "wait for others to end, or have the quota raised")
    if isinstance(error, NotFound):
        return Row(name, Grade.FAILED, error.message, "create the namespace, or name another one with --namespace")
    advice = f"no TrainJob can be created while it does not answer: see whether it runs, `{_PODS_OF_TRAINER}`"
    return Row(name, Grade.FAILED, error.message, advice if error.retryable else "")


def _tried(platform: Platform) -> Row:
    name, trial = "trainjob", platform.trial
    if not isinstance(trial, ClusterError):
        return Row(name, Grade.OK, f"one on the runtime {STOCK_RUNTIME} would be accepted")
    if isinstance(trial, AdmissionRefused):
        missing = STOCK_RUNTIME in trial.message and "not found" in trial.message  # Trainer's or Kueue's webhook
        advice = "install the Trainer's runtimes, or name one that is there: runtime=..." if missing else ""
        return Row(name, Grade.FAILED, trial.message, advice or "ask who set this rule up what it wants of a TrainJob")
    return _failed_to_try(name, trial)


def _controller(platform: Platform, now: datetime) -> Iterator[Row]:
    """Yield a row on whether the Trainer's controller acts on TrainJobs.

    A TrainJob has a status within a second (Trainer 2.1 and later). If one older than 60 s has none, the controller has
    not acted on it.
    """
    jobs = platform.jobs
    if isinstance(jobs, ClusterError) or not jobs or dialect_of(platform.spec_fields or ()) is Dialect.V2_0:
        return
    before = (now - timedelta(seconds=_SILENT_SECONDS)).strftime("%Y-%m-%dT%H:%M:%SZ")
    silent = [
        text(job, "metadata", "name")
        for job in jobs
        if not table(job, "status") and text(job, "metadata", "creationTimestamp") < before
    ]
    if not silent:
        yield Row("controller", Grade.OK, f"the TrainJobs of the namespace have a status: {len(jobs)}")
        return
    wrong = f"nothing has become of {_named(silent)} in more than {_SILENT_SECONDS} s"
    advice = f"`trainjob describe {silent[0]}` says why, or see whether the Trainer runs, `{_PODS_OF_TRAINER}`"
    yield Row("controller", Grade.WARNING, wrong, advice)


def _runtimes(platform: Platform) -> Row:
    name, found = "runtimes", platform.runtimes
    known = [runtime for some in found.values() if not isinstance(some, ClusterError) for runtime in some]
    hidden = [kind for kind, some in found.items() if isinstance(some, ClusterError)]
    if not known:
        if hidden:
            return Row(name, Grade.UNKNOWN, f"{' and '.join(hidden)}s can't be listed")
        return Row(name, Grade.FAILED, "there are none", "install the Trainer's runtimes")
    parts = [_named([runtime.name for runtime in known])]
    if old := [runtime.name for runtime in known if runtime.deprecated]:
        parts.append(f"deprecated: {_named(old)}")
    if devices := [f"{runtime.name} ({_devices(runtime)})" for runtime in known if _devices(runtime)]:
        parts.append(f"with GPUs unless told otherwise: {_named(devices)}")
    if hidden:
        parts.append(f"{' and '.join(hidden)}s can't be listed")
    return Row(name, Grade.OK, "; ".join(parts))


def _devices(runtime: RuntimeDescription) -> str:
    resources = runtime.trainer.resources if runtime.trainer else {}
    return ", ".join(f"{name}: {amount}" for name, amount in resources.items() if gpus({name: amount}))


def _kueue(platform: Platform) -> Iterator[Row]:
    name, queues, namespace = "kueue", platform.queues, platform.namespace
    if KUEUE not in platform.groups:
        yield Row(name, Grade.OK, "Kueue is not installed: TrainJobs start at once, and name no queue")
    elif isinstance(queues, ClusterError):
        yield Row(name, Grade.UNKNOWN, f"the queues of namespace {namespace} can't be listed")
    elif not queues:
        advice = "name no queue, or have a LocalQueue made in this namespace"
        yield Row(name, Grade.WARNING, f"namespace {namespace} has no LocalQueue: who names one waits for ever", advice)
    elif platform.queued is not None and not _is_held(platform.queued):
        wrong = "Kueue lets a TrainJob that names a queue start at once: its integration for TrainJobs is off"
        advice = "add trainer.kubeflow.org/trainjob to integrations.frameworks of Kueue's configuration"
        yield Row(name, Grade.WARNING, wrong, advice)
    else:
        yield _queues(queues)


def _is_held(queued: Any) -> bool:
    """Return whether Kueue suspended the trial TrainJob in a queue, or the trial failed.

    Kueue's webhook suspends a TrainJob that names a queue. A failed trial proves nothing, so it counts as suspended.
    """
    return isinstance(queued, ClusterError) or table(queued, "spec").get("suspend") is True


def _queues(queues: Sequence[Any]) -> Row:
    inactive = [
        f"{text(queue, 'metadata', 'name')}: {text(condition, 'message')}"
        for queue in queues
        for condition in rows(queue, "status", "conditions")
        if (condition.get("type"), condition.get("status")) == ("Active", "False")
    ]
    if inactive:
        return Row("kueue", Grade.WARNING, f"inactive: {'; '.join(inactive)}", "name a queue that is active, or wait")
    return Row("kueue", Grade.OK, f"queues: {_named([text(queue, 'metadata', 'name') for queue in queues])}")


def _storage(platform: Platform) -> Iterator[Row]:
    name, classes = "storage", platform.classes
    if STORAGE not in platform.groups:
        yield Row(name, Grade.UNKNOWN, "the cluster tells no storage classes")
    elif isinstance(classes, ClusterError):
        yield Row(name, Grade.UNKNOWN, "storage classes can't be listed")
    elif usual := [_name(one) for one in classes if text(one, "metadata", "annotations", _DEFAULT_CLASS) == "true"]:
        others = [_name(one) for one in classes if _name(one) not in usual]
        more = f"; others: {_named(others)}" if others else ""
        yield Row(name, Grade.OK, f"a claim that names no storage class gets {usual[0]}{more}")
    else:
        there = _named([_name(one) for one in classes]) or "none"
        wrong = f"no storage class is the default (there are: {there}): a claim that names none stays Pending"
        yield Row(name, Grade.WARNING, wrong, "give workspaces a storage class, or have one marked as the default")


def _claims(platform: Platform) -> Iterator[Row]:
    name, claims = "claims", platform.claims
    if isinstance(claims, ClusterError):
        yield Row(name, Grade.UNKNOWN, f"those of namespace {platform.namespace} can't be listed")
        return
    stuck = [_described(claim) for claim in claims if _is_stuck(claim, platform)]
    if stuck:
        advice = "`kubectl describe pvc` says why a claim is Pending; one whose volume is Lost has to be made anew"
        yield Row(name, Grade.WARNING, f"not usable: {_named(stuck)}", advice)
    elif claims:
        yield Row(name, Grade.OK, _named([_described(claim) for claim in claims]))


def _is_stuck(claim: Any, platform: Platform) -> bool:
    """Return whether a claim is Lost, or Pending without a known reason.

    A claim whose storage class has `WaitForFirstConsumer` stays Pending until its first pod exists. If the storage
    classes are not known, a Pending claim may be such a claim.
    """
    phase, classes = text(claim, "status", "phase"), platform.classes
    if phase != "Pending" or isinstance(classes, ClusterError) or STORAGE not in platform.groups:
        return phase == "Lost"
    own = (one for one in classes if _name(one) == text(claim, "spec", "storageClassName"))
    return all(text(one, "volumeBindingMode") != "WaitForFirstConsumer" for one in own)


def _described(claim: Any) -> str:
    modes = table(claim, "spec").get("accessModes") or ()
    return f"{_name(claim)} ({', '.join(map(str, (*modes, text(claim, 'status', 'phase'))))})"


def _name(found: Any) -> str:
    return text(found, "metadata", "name")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
