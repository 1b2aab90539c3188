"""Check whether TrainJobs can run in a namespace, with advice if they cannot.

Pure functions turn the facts about the platform into rows of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from trainjob.errors import AdmissionRefused, ClusterError, NotFound, PermissionDenied, QuotaExceeded
from trainjob.inspection.check_result import CheckResult, Grade, join_names
from trainjob.inspection.namespace_checks import (
    check_limits,
    check_nodes,
    check_pod_security,
    check_quotas,
    check_sidecars,
)
from trainjob.manifest import Dialect, detect_dialect, list_unsupported_features
from trainjob.spec.job import STOCK_RUNTIME
from trainjob.spec.resources import count_gpus
from trainjob.status.nested_fields import get_list, get_mapping, get_str
from trainjob.status.permissions import format_permissions
from trainjob.status.platform_facts import JOBSET, KUEUE, STORAGE, Objects, PlatformFacts
from trainjob.status.runtime_description import RuntimeDescription
from trainjob.trainjob_schema import find_schema

_NEWEST_DIALECT = list(Dialect)[-1]
_NO_STATUS_SECONDS = 60
_DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
_MODES_OF_MANY_NODES = {"ReadWriteMany", "ReadOnlyMany"}
_WEBHOOK_DENIAL = '.trainer.kubeflow.org" denied'
_LIST_TRAINER_PODS = "kubectl get pods -n kubeflow-system"


def check_namespace(platform: PlatformFacts, now: datetime) -> list[CheckResult]:
    """Return one row for each checked subject of a namespace.

    Args:
        platform: the facts about the cluster and the namespace.
        now: the current time; a TrainJob that is older than a minute must have a status.
    """
    results = [
        _check_api_server(platform),
        *_check_trainer(platform),
        _check_jobset(platform),
        _check_permissions(platform),
    ]
    if platform.spec_fields is not None:
        results += [*_check_admission(platform), *_check_controller(platform, now), _check_runtimes(platform)]
    return [
        *results,
        *_check_kueue(platform),
        *_check_storage(platform),
        *_check_claims(platform),
        *check_nodes(platform),
        *check_sidecars(platform),
        *check_pod_security(platform),
        *check_quotas(platform),
        *check_limits(platform),
    ]


def can_run_trainjobs(results: Sequence[CheckResult]) -> bool:
    """Return whether no check has failed; subjects that could not be checked do not count."""
    return all(row.grade is not Grade.FAILED for row in results)


def _check_api_server(platform: PlatformFacts) -> CheckResult:
    user = f"you are {platform.user}" if platform.user else "it does not report your user name"
    return CheckResult("api server", Grade.OK, f"{platform.server} is Kubernetes {platform.kubernetes_version}; {user}")


def _check_trainer(platform: PlatformFacts) -> Iterator[CheckResult]:
    name, fields = "trainer", platform.spec_fields
    if fields is None:
        wrong = "Kubeflow Trainer is not installed: the cluster does not serve TrainJobs"
        advice = "install Kubeflow Trainer 2.0 or later with its CRDs, or connect to the cluster that has it"
        yield CheckResult(name, Grade.FAILED, wrong, advice)
        return
    dialect = detect_dialect(fields)
    version = (
        platform.trainer_version.removeprefix("v")
        or f"{dialect.value}{' or later' if dialect is _NEWEST_DIALECT else ''}"
    )
    if not fields:
        yield CheckResult(
            name,
            Grade.UNKNOWN,
            f"the API server does not publish TrainJob's fields; Trainer {_NEWEST_DIALECT.value} or later is assumed",
        )
    elif dialect is _NEWEST_DIALECT:
        known = find_schema("spec")["properties"]
        new = ", ".join(sorted(fields - known.keys()))
        more = f"; only a manifest can have its fields {new}, which are newer than this release" if new else ""
        yield CheckResult(name, Grade.OK, f"Kubeflow Trainer {version}{more}")
    else:
        missing = f"Kubeflow Trainer {version} lacks these features (each with the first version that has it): "
        advice = f"upgrade to Trainer {_NEWEST_DIALECT.value} or later; until then TrainJobs that need them are refused"
        yield CheckResult(name, Grade.WARNING, missing + ", ".join(list_unsupported_features(dialect)), advice)


def _check_jobset(platform: PlatformFacts) -> CheckResult:
    if JOBSET in platform.api_groups:
        return CheckResult("jobset", Grade.OK, "JobSet is installed")
    wrong = "JobSet is not installed: TrainJobs are accepted, but never start"
    return CheckResult(
        "jobset", Grade.FAILED, wrong, "install the version of JobSet that the Trainer's own manifests name"
    )


def _check_permissions(platform: PlatformFacts) -> CheckResult:
    name, denied = "permissions", platform.denied_permissions
    if isinstance(denied, ClusterError):
        return CheckResult(name, Grade.UNKNOWN, f"they can't be checked: {denied.message}")
    if not denied:
        return CheckResult(name, Grade.OK, f"all required permissions are granted in namespace {platform.namespace}")
    without = "; ".join(dict.fromkeys(permission.consequence for permission in denied))
    grade = Grade.FAILED if any(permission.required for permission in denied) else Grade.WARNING
    folders = {"cluster" if permission.cluster_wide else "person" for permission in denied}
    commands = " and ".join(
        f"`kubectl apply {'' if folder == 'cluster' else f'-n {platform.namespace} '}-k manifests/{folder}`"
        for folder in sorted(folders, reverse=True)
    )
    advice = f"have an administrator run {commands}, or grant only the missing ones, listed below"
    return CheckResult(
        name, grade, f"you have no permission to {format_permissions(denied)}. Therefore: {without}", advice
    )


def _check_admission(platform: PlatformFacts) -> Iterator[CheckResult]:
    """Yield the rows of the webhook and of a trial TrainJob.

    If the webhook could not be tested, the trial failed for the same reason, so its row is omitted.
    """
    name, refusal = "webhook", platform.invalid_trial_error
    if refusal is None:
        wrong = (
            "an invalid TrainJob was accepted: the Trainer's webhook is not registered, so invalid TrainJobs never run"
        )
        yield CheckResult(name, Grade.WARNING, wrong, "reinstall the Trainer")
    elif not isinstance(refusal, AdmissionRefused):
        yield _failed_trial_result(name, refusal)
        return
    elif _WEBHOOK_DENIAL in refusal.message:
        yield CheckResult(name, Grade.OK, "the Trainer's webhook responds")
    else:
        yield CheckResult(
            name,
            Grade.UNKNOWN,
            f"another webhook or policy refused the request before the Trainer's webhook: {refusal.message}",
        )
    yield _check_trial(platform)


def _failed_trial_result(name: str, error: ClusterError) -> CheckResult:
    if isinstance(error, PermissionDenied):
        return CheckResult(name, Grade.UNKNOWN, "it can't be tested without the permission to create trainjobs")
    if isinstance(error, QuotaExceeded):
        return CheckResult(
            name,
            Grade.WARNING,
            error.message,
            "wait until other workloads end, or have an administrator raise the ResourceQuota",
        )
    if isinstance(error, NotFound):
        return CheckResult(
            name, Grade.FAILED, error.message, "create the namespace, or select another one with --namespace"
        )
    advice = f"no TrainJob can be created while it does not respond: check whether it runs, `{_LIST_TRAINER_PODS}`"
    return CheckResult(name, Grade.FAILED, error.message, advice if error.retryable else "")


def _check_trial(platform: PlatformFacts) -> CheckResult:
    name, trial = "trainjob", platform.trial_result
    if not isinstance(trial, ClusterError):
        return CheckResult(name, Grade.OK, f"a TrainJob on the runtime {STOCK_RUNTIME} would be accepted")
    if isinstance(trial, AdmissionRefused):
        missing = STOCK_RUNTIME in trial.message and "not found" in trial.message  # Trainer's or Kueue's webhook
        advice = "install the Trainer's runtimes, or select an existing one with runtime=..." if missing else ""
        return CheckResult(
            name,
            Grade.FAILED,
            trial.message,
            advice or "change the TrainJob as the message requires, or contact the owner of the webhook or policy",
        )
    return _failed_trial_result(name, trial)


def _check_controller(platform: PlatformFacts, now: datetime) -> Iterator[CheckResult]:
    """Yield a row on whether the Trainer's controller acts on TrainJobs.

    A TrainJob has a status within a second (Trainer 2.1 and later). If it has none after 60 s, the controller has not
    acted on it.
    """
    jobs = platform.jobs
    if isinstance(jobs, ClusterError) or not jobs or detect_dialect(platform.spec_fields or ()) is Dialect.V2_0:
        return
    before = (now - timedelta(seconds=_NO_STATUS_SECONDS)).strftime("%Y-%m-%dT%H:%M:%SZ")
    without_status = [
        get_str(job, "metadata", "name")
        for job in jobs
        if not get_mapping(job, "status") and get_str(job, "metadata", "creationTimestamp") < before
    ]
    if not without_status:
        yield CheckResult("controller", Grade.OK, f"the Trainer processes the TrainJobs of the namespace ({len(jobs)})")
        return
    wrong = f"the Trainer has not processed {join_names(without_status)} for more than {_NO_STATUS_SECONDS} s"
    advice = f"run `trainjob describe {without_status[0]}`, or check whether the Trainer runs, `{_LIST_TRAINER_PODS}`"
    yield CheckResult("controller", Grade.WARNING, wrong, advice)


def _check_runtimes(platform: PlatformFacts) -> CheckResult:
    name, found = "runtimes", platform.runtimes
    known = [runtime for listed in found.values() if not isinstance(listed, ClusterError) for runtime in listed]
    hidden = [kind for kind, listed in found.items() if isinstance(listed, ClusterError)]
    if not known:
        if hidden:
            return CheckResult(name, Grade.UNKNOWN, f"{' and '.join(hidden)}s can't be listed")
        return CheckResult(name, Grade.FAILED, "no runtimes exist", "install the Trainer's runtimes")
    parts = [join_names([runtime.name for runtime in known])]
    if old := [runtime.name for runtime in known if runtime.deprecated]:
        parts.append(f"deprecated: {join_names(old)}")
    if devices := [f"{runtime.name} ({_format_devices(runtime)})" for runtime in known if _format_devices(runtime)]:
        parts.append(f"requesting GPUs by default: {join_names(devices)}")
    if hidden:
        parts.append(f"{' and '.join(hidden)}s can't be listed")
    return CheckResult(name, Grade.OK, "; ".join(parts))


def _format_devices(runtime: RuntimeDescription) -> str:
    resources = runtime.trainer.resources if runtime.trainer else {}
    return ", ".join(f"{name}: {amount}" for name, amount in resources.items() if count_gpus({name: amount}))


def _check_kueue(platform: PlatformFacts) -> Iterator[CheckResult]:
    name, queues, namespace = "kueue", platform.queues, platform.namespace
    if KUEUE not in platform.api_groups:
        yield CheckResult(name, Grade.OK, "Kueue is not installed: TrainJobs start immediately and can't use a queue")
    elif isinstance(queues, ClusterError):
        yield CheckResult(name, Grade.UNKNOWN, f"the queues of namespace {namespace} can't be listed")
    elif not queues:
        advice = "use no queue, or have a LocalQueue created in this namespace"
        yield CheckResult(
            name,
            Grade.WARNING,
            f"namespace {namespace} has no LocalQueue: a TrainJob that names a queue never starts",
            advice,
        )
    elif platform.queued_trial_result is not None and not _is_suspended_by_kueue(platform.queued_trial_result):
        wrong = "Kueue does not suspend a TrainJob that names a queue: its integration for TrainJobs is disabled"
        advice = "add trainer.kubeflow.org/trainjob to integrations.frameworks of Kueue's configuration"
        yield CheckResult(name, Grade.WARNING, wrong, advice)
    else:
        yield _check_queues(queues, platform)


def _is_suspended_by_kueue(queued: Any) -> bool:
    """Return whether Kueue suspended the trial TrainJob in a queue, or the trial failed.

    Kueue's webhook suspends a TrainJob that names a queue. A failed trial proves nothing, so it counts as suspended.
    """
    return isinstance(queued, ClusterError) or get_mapping(queued, "spec").get("suspend") is True


def _check_queues(queues: Sequence[Any], platform: PlatformFacts) -> CheckResult:
    inactive = [
        f"{get_str(queue, 'metadata', 'name')}: {get_str(condition, 'message')}"
        for queue in queues
        for condition in get_list(queue, "status", "conditions")
        if (condition.get("type"), condition.get("status")) == ("Active", "False")
    ]
    if inactive:
        return CheckResult("kueue", Grade.WARNING, f"inactive: {'; '.join(inactive)}", "use an active queue, or wait")
    return CheckResult("kueue", Grade.OK, f"queues: {join_names([_describe_queue(each, platform) for each in queues])}")


def _describe_queue(queue: Mapping[str, Any], platform: PlatformFacts) -> str:
    """Return the name of a LocalQueue, with quota and topologies as far as they are known."""
    name, cluster_queue = _name_of(queue), _find(platform.cluster_queues, get_str(queue, "spec", "clusterQueue"))
    flavors = [
        _describe_flavor(flavor, platform)
        for group in get_list(cluster_queue, "spec", "resourceGroups")
        for flavor in get_list(group, "flavors")
    ]
    return f"{name} ({'; '.join(flavors)})" if flavors else name


def _describe_flavor(flavor: Mapping[str, Any], platform: PlatformFacts) -> str:
    name = get_str(flavor, "name")
    amounts = [f"{get_str(each, 'name')} {each.get('nominalQuota')}" for each in get_list(flavor, "resources")]
    topology = get_str(_find(platform.flavors, name), "spec", "topologyName")
    labels = [get_str(level, "nodeLabel") for level in get_list(_find(platform.topologies, topology), "spec", "levels")]
    levels = f", topology {topology}: {' > '.join(labels) or 'its levels are not known'}" if topology else ""
    return f"{name}: {', '.join(amounts)}{levels}"


def _find(objects: Objects | ClusterError, name: str) -> Mapping[str, Any]:
    """Return the object of this name; empty if it is not known."""
    known = () if isinstance(objects, ClusterError) else objects
    return next((each for each in known if name and _name_of(each) == name), {})


def _check_storage(platform: PlatformFacts) -> Iterator[CheckResult]:
    name, classes = "storage", platform.storage_classes
    if STORAGE not in platform.api_groups:
        yield CheckResult(name, Grade.UNKNOWN, "the API server does not serve storage classes")
    elif isinstance(classes, ClusterError):
        yield CheckResult(name, Grade.UNKNOWN, "storage classes can't be listed")
    elif defaults := [
        _name_of(each)
        for each in classes
        if get_str(each, "metadata", "annotations", _DEFAULT_CLASS_ANNOTATION) == "true"
    ]:
        others = [_name_of(each) for each in classes if _name_of(each) not in defaults]
        more = f"; others: {join_names(others)}" if others else ""
        yield CheckResult(name, Grade.OK, f"a PersistentVolumeClaim without a storage class gets {defaults[0]}{more}")
    else:
        existing = join_names([_name_of(each) for each in classes]) or "none"
        wrong = f"no storage class is the default (existing: {existing}): a PVC without one stays Pending"
        yield CheckResult(
            name, Grade.WARNING, wrong, "give workspaces a storage class, or have one marked as the default"
        )


def _check_claims(platform: PlatformFacts) -> Iterator[CheckResult]:
    name, claims = "claims", platform.claims
    if isinstance(claims, ClusterError):
        wrong = f"the PersistentVolumeClaims of namespace {platform.namespace} can't be listed"
        yield CheckResult(name, Grade.UNKNOWN, wrong)
        return
    stuck = [_format_claim(claim) for claim in claims if _is_stuck(claim, platform)]
    if stuck:
        advice = "`kubectl describe pvc` shows why one is Pending; one that is Lost has to be created again"
        yield CheckResult(name, Grade.WARNING, f"not usable: {join_names(stuck)}", advice)
    elif claims:
        single = [_name_of(claim) for claim in claims if not _MODES_OF_MANY_NODES & set(_access_modes(claim))]
        advice = f"on one node only: {join_names(single)}; pods on several nodes need ReadWriteMany"
        text = join_names([_format_claim(claim) for claim in claims])
        yield CheckResult(name, Grade.OK, text, advice if single else "")


def _is_stuck(claim: Any, platform: PlatformFacts) -> bool:
    """Return whether a claim is Lost, or Pending without a known reason.

    A claim whose storage class has `WaitForFirstConsumer` stays Pending until its first pod exists. If the storage
    classes are not known, a Pending claim may be such a claim.
    """
    phase, classes = get_str(claim, "status", "phase"), platform.storage_classes
    if phase != "Pending" or isinstance(classes, ClusterError) or STORAGE not in platform.api_groups:
        return phase == "Lost"
    own = (each for each in classes if _name_of(each) == get_str(claim, "spec", "storageClassName"))
    return all(get_str(each, "volumeBindingMode") != "WaitForFirstConsumer" for each in own)


def _format_claim(claim: Any) -> str:
    return f"{_name_of(claim)} ({', '.join((*_access_modes(claim), get_str(claim, 'status', 'phase')))})"


def _access_modes(claim: Any) -> list[str]:
    return [str(mode) for mode in get_mapping(claim, "spec").get("accessModes") or ()]


def _name_of(item: Any) -> str:
    return get_str(item, "metadata", "name")
