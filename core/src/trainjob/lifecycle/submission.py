"""Submission or adoption of the TrainJob of a run key.

One run key has one valid TrainJob, whatever crashed or was lost before. All state is in the cluster. Every TrainJob
carries its run key and the hash of its request. Its name contains the run key's digest and the attempt's number, so two
concurrent callers try to create the same name. Such callers are a retry beside a slow first try, or a request that is
repeated because its response was lost. The caller that loses this race reads the TrainJob of the other caller and
adopts it.

Labels may be removed by users, tools and admission policies. So the label with the run key is only the fast way to the
TrainJobs of a run key:

* Before a creation, the TrainJobs of the namespace without this label are listed, too, and those with the run key's
  annotation count. A first submission skips this request.
* If the name of a new attempt exists, the TrainJob of that name counts by its annotation, whatever its labels are.
* The number of an attempt without its label follows from its name.
* An adoption writes the labels again.

A TrainJob counts only if its name follows from the run key ([is_attempt_of][]). A copy under another name, which has
the same labels and annotations, is left alone. A TrainJob of the name without the run key belongs to nobody; its name
is refused with an error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from trainjob.client import Backoff, Cluster
from trainjob.errors import (
    AdmissionRefused,
    ClusterError,
    Conflict,
    OwnershipConflict,
    PermissionDenied,
    ServerUnavailable,
    WaitTimeout,
)
from trainjob.lifecycle.adoption import adopt
from trainjob.lifecycle.cancellation import cancel
from trainjob.lifecycle.cluster_check import check_cluster_of_missing
from trainjob.lifecycle.code_transfer import check_shared_config_map, provide_config_map, store_code
from trainjob.lifecycle.identity import JobReference, RunKey, attempt_of, is_attempt_of
from trainjob.lifecycle.job_search import list_labelled_jobs, list_unlabelled_jobs
from trainjob.lifecycle.own_metadata import restore_metadata
from trainjob.lifecycle.plan import Plan, plan_submission
from trainjob.lifecycle.prepared_job import (
    PreparedJob,
    build_manifest,
    build_same_size,
    is_running_with_same_result,
    prepare_job,
)
from trainjob.lifecycle.resubmission import Resubmission
from trainjob.lifecycle.runtime_checks import check_runtime
from trainjob.manifest import labels
from trainjob.manifest.node_counts import describe_node_count, read_shrinking
from trainjob.spec import FineTune, Step, TrainJob, TrainJobManifest
from trainjob.status import derive_verdict
from trainjob.status.nested_fields import contains, get_int, get_mapping, get_str

# Creation times have whole seconds. With this pause, a TrainJob that continues a deleted one of the same name is
# younger than all pods of the deleted one, so a waiter whose informer still has these pods can distinguish them.
_CREATION_TIME_STEP = 1.0
_KUEUE = "kueue.x-k8s.io/"
# Part of the error of strict field validation (k8s.io/apimachinery, runtime.NewStrictDecodingError).
_UNKNOWN_FIELD = "unknown field"
# End of the error of the Trainer's webhook (2.0 to 2.3, pkg/runtime/core/clustertrainingruntime.go).
_UNKNOWN_RUNTIME = "must be created before the TrainJob is created"


def submit(
    cluster: Cluster,
    request: Step | TrainJob,
    key: RunKey,
    *,
    namespace: str = "",
    name_prefix: str = "",
    since: datetime | None = None,
    variables: Mapping[str, str] | None = None,
    renewal: str = "",
    earlier: Resubmission | None = None,
    known: JobReference | None = None,
    timeout: float = 120.0,
    before_create: Callable[[str, str], None] | None = None,
    owner: Mapping[str, Any] | None = None,
    first_submission: bool = False,
    adopt_undelivered: bool = False,
    on_submitted: Callable[[Mapping[str, Any]], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> JobReference:
    """Adopt the earlier TrainJob of this run key if it is valid, or create a new attempt.

    Args:
        cluster: the cluster of the TrainJob.
        request: a step such as `FineTune`, any `TrainJob`, or a `TrainJobManifest`.
        key: the run key of the caller; the same over retries.
        namespace: namespace of the TrainJob; empty means the manifest's own, or the connection's.
        name_prefix: start of the TrainJob's name if the request sets no name; empty means the key's task.
        since: start time of the workflow's run, with a time zone. A TrainJob that was created earlier and succeeded is
            not adopted, because it belongs to an earlier run of the same name.
        variables: environment variables for the trainer that are not part of the request, such as the name of the user
            who started it. Other values do not prevent the adoption of an earlier TrainJob.
        renewal: changes whenever a user requests that the work is done again. A TrainJob that succeeded under another
            value is not adopted, even if the new try is killed several times before it creates its own.
        earlier: result of [plan_resubmission][] for the last attempt of this try; None for the first one. A created
            TrainJob carries the counts as annotations, and has the number of nodes. An adopted one keeps its own.
        known: reference to an earlier TrainJob of this key that the caller stored. It counts even if it does not carry
            the key, because the key or the namespace has changed since then. If it names another cluster, nothing is
            created here; give None if the user has moved the step to this cluster.
        timeout: seconds to keep trying while requests fail or an earlier TrainJob is still being deleted, in addition
            to the request's own `termination_grace_period_seconds`.
        before_create: called with name and namespace right before each request that creates a TrainJob is sent. After
            this call a TrainJob may exist, whatever happens. An exception that it raises ends the submission.
        owner: an ownerReference for the created TrainJob, such as the workflow. Kubernetes deletes the TrainJob after
            its owner is deleted.
        first_submission: whether the caller knows that this run key was never submitted before, except by callers that
            submit it at the same time. Then a deleted TrainJob can't have left a JobSet or pods, and the two requests
            that look for them are not sent, unless a TrainJob of the key is found. The default is always safe.
        adopt_undelivered: whether to adopt a TrainJob that has succeeded and is not marked as delivered
            ([mark_delivered][]), also after a change of `renewal`, or of fields that do not change its result
            ([trainjob.manifest.training_hash][]).
        on_submitted: called with the adopted or created TrainJob, as the API server returned it.
        on_notice: called with a log line that says why such a TrainJob is adopted, with one for each TrainJob that has
            the label of the run key but was not created for it, such as a copy, and with one for each default of a
            created training that differs from its framework's.

    Returns:
        Reference to the adopted or created TrainJob.

    Raises:
        InvalidSpec: the request cannot be expressed, needs another version of the Trainer, or does not fit its runtime;
            nothing was created.
        AdmissionRefused: the API server or a webhook refuses the TrainJob.
        NotFound: Kubeflow Trainer is not installed, or a claim that the runtime needs or the ConfigMap that the code
            names does not exist.
        OwnershipConflict: a TrainJob of the same name exists and does not belong to this run key.
        WrongCluster: `known` belongs to another cluster.
        WaitTimeout: an earlier TrainJob was not deleted in time.
        ClusterError: a request failed or was denied.
    """
    prepared = prepare_job(
        request,
        key,
        namespace,
        default_namespace=cluster.namespace,
        name_prefix=name_prefix,
        variables=variables,
        renewal=renewal,
        earlier=earlier,
    )
    job, namespace, build_metadata = prepared.job, prepared.namespace, prepared.build_metadata
    timer = _RetryTimer(timeout + _get_grace_period(job))
    send = _make_send_function(cluster, before_create, owner)
    error: ClusterError | None = None
    known_jobs = [known] if known else []
    notices = _Notices(on_notice, on_submitted, known_jobs)
    submit_code = partial(submit, cluster, namespace=namespace, owner=owner, on_notice=on_notice)
    used_names = {(each.name, each.namespace) for each in known_jobs}
    while True:
        jobs = _add_known_jobs(cluster, list_labelled_jobs(cluster, key, namespace, notices.report_other), known_jobs)
        first_submission = first_submission and not jobs
        plan = _make_plan(cluster, prepared, jobs, since, adopt_undelivered=adopt_undelivered)
        if plan.adopt is None and not first_submission:
            jobs = _add_jobs(jobs, list_unlabelled_jobs(cluster, key, namespace))
            plan = _make_plan(cluster, prepared, jobs, since, adopt_undelivered=adopt_undelivered)
        used_names |= set(map(_name_of, jobs))
        if plan.adopt is not None:
            _delete(cluster, plan.delete)
            if adopted := _adopt(cluster, prepared, plan.adopt, plan.attempt):
                reference = reference_to(adopted, adopted=True)
                provide_config_map(cluster, job, adopted, reference)
                notices.report(plan.notice)
                notices.report_submitted(request, adopted)
                return replace(reference, cluster=cluster.identity)
            timer.pause([plan.adopt])
            continue
        manifest = build_manifest(cluster, job, build_metadata(plan.attempt), read_dialect=bool(plan.delete))
        check_shared_config_map(cluster, job, namespace)
        _delete(cluster, plan.delete)
        used_names |= set() if first_submission else {_name_of(manifest)}
        is_terminating = plan.delete or plan.terminating or _has_terminating_dependents(cluster, used_names, jobs)
        if not is_terminating:
            timer.raise_if_expired(error)
            store_code(cluster, job, namespace, submit_code, notices.report)
            if earlier or cluster.was_just_deleted(*_name_of(manifest), _CREATION_TIME_STEP):
                time.sleep(_CREATION_TIME_STEP)
            try:
                created = restore_metadata(cluster, _create(cluster, job, manifest, send), manifest["metadata"])
                reference = reference_to(created, adopted=False)
                provide_config_map(cluster, job, created, reference)
                notices.report_defaults(request, created)
                notices.report_submitted(request, created)
                return replace(reference, cluster=cluster.identity)
            except Conflict as conflict:  # the name exists: it is our TrainJob, or another owner has the name
                error = conflict
                known_jobs += _get_own_jobs(cluster, manifest["metadata"]["name"], namespace, key)
            except ClusterError as failure:  # the TrainJob may exist although the response was lost, so list again
                error = failure
                if not failure.retryable:
                    raise
        first_submission = False  # after a failed creation, a TrainJob may have been created and deleted
        timer.pause([*plan.terminating, *plan.delete] or [manifest], None if is_terminating else error)


def _adopt(cluster: Cluster, prepared: PreparedJob, job: Mapping[str, Any], attempt: int) -> Mapping[str, Any] | None:
    """Adopt a TrainJob with the labels and annotations of the request, which may be new."""
    metadata, request = prepared.build_metadata(attempt), prepared.job
    annotations = labels.retention_annotations(request)
    if isinstance(request, TrainJob):
        # Kueue refuses another queue for a TrainJob that runs.
        given = {name: text for name, text in request.labels.items() if not name.startswith(_KUEUE)}
        metadata["labels"] = {**given, **metadata["labels"]}
        annotations = {**request.annotations, **annotations}
    return adopt(cluster, job, metadata, annotations)


def _make_plan(
    cluster: Cluster,
    prepared: PreparedJob,
    jobs: Iterable[dict[str, Any]],
    since: datetime | None,
    *,
    adopt_undelivered: bool,
) -> Plan:
    """Return the plan of a submission.

    It adopts no undelivered work whose workspace is gone.
    """
    identified = [_restore_spec_hash(cluster, prepared, job) for job in jobs]

    def plan(training_hash: str) -> Plan:
        is_kept = partial(is_running_with_same_result, cluster, prepared)
        start, renewal = _to_api_time(since), prepared.renewal
        return plan_submission(identified, prepared.spec_hash, start, renewal, training_hash, is_kept)

    found = plan(prepared.training_hash if adopt_undelivered else "")
    is_finished = found.adopt is not None and derive_verdict(found.adopt).phase.finished
    if found.notice and found.adopt is not None and is_finished and _has_new_claim(cluster, prepared.job, found.adopt):
        return plan("")
    return found


def _restore_spec_hash(cluster: Cluster, prepared: PreparedJob, job: dict[str, Any]) -> dict[str, Any]:
    """Return an active TrainJob with the spec hash if it has lost it and has the spec to send.

    Otherwise a TrainJob whose annotations were removed would be deleted while it runs.
    """
    is_other = get_str(job, "metadata", "labels", labels.RUN_KEY) != prepared.key.digest
    if is_other or labels.get_annotation(job, labels.SPEC_HASH) or derive_verdict(job).phase.finished:
        return job
    sent = build_same_size(cluster, prepared, job)
    if not contains(job["spec"], sent["spec"]):
        return job
    annotations = {**get_mapping(job, "metadata", "annotations"), labels.SPEC_HASH: prepared.spec_hash}
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}


def _get_grace_period(job: TrainJob | TrainJobManifest) -> int:
    """Return the seconds for which the pods of an earlier attempt may continue to save."""
    placement = job.placement if isinstance(job, TrainJob) else None
    return (placement and placement.termination_grace_period_seconds) or 0


class _RetryTimer:
    """Pauses of one submission, which end after `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        self._backoff, self._timeout, self._deadline = Backoff(max_delay=5.0), timeout, time.monotonic() + timeout

    def pause(self, jobs: Sequence[Mapping[str, Any]], error: ClusterError | None = None) -> None:
        """Sleep until the TrainJobs should be listed again.

        A failed creation never causes a timeout here, because the TrainJob may exist. The next list shows it.

        Args:
            jobs: TrainJobs whose deletion or creation is awaited; the error names them.
            error: error of the last creation; None if none failed.

        Raises:
            WaitTimeout: the timeout is over and the last creation did not fail.
        """
        if error is None and time.monotonic() > self._deadline:
            finalizers = sorted({name for job in jobs for name in _get_finalizers(job)})
            raise WaitTimeout(
                f"the earlier TrainJob {_join_names(jobs)} of this step, its JobSet or its pods are still being "
                f"deleted after {self._timeout:.0f} s",
                hint=f"the TrainJob has metadata.finalizers {', '.join(finalizers)}: their owners have to remove them"
                if finalizers
                else "list its pods with kubectl; a pod on an unreachable node stays in the state 'Terminating'",
            )
        time.sleep(self._backoff.next(error))

    def raise_if_expired(self, error: ClusterError | None) -> None:
        """Raise the error of the previous creation if the timeout is over.

        Raises:
            ClusterError: the given error.
        """
        if error is not None and time.monotonic() > self._deadline:
            raise error


def _add_known_jobs(
    cluster: Cluster, listed: Iterable[dict[str, Any]], known: Iterable[JobReference]
) -> list[dict[str, Any]]:
    jobs = {job["metadata"]["uid"]: job for job in listed}
    for each in known:
        if each.uid in jobs:
            continue
        found = cluster.get_trainjob(each.name, each.namespace)
        if found is not None and found["metadata"]["uid"] == each.uid:
            jobs[each.uid] = found
        else:
            check_cluster_of_missing(cluster, each, may_be_deleted=True)
    return list(jobs.values())


def _add_jobs(jobs: Iterable[dict[str, Any]], others: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all jobs, those in both lists once."""
    return list({job["metadata"]["uid"]: job for job in [*jobs, *others]}.values())


def _has_terminating_dependents(
    cluster: Cluster, names: Iterable[tuple[str, str]], jobs: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether a JobSet or pods of a deleted TrainJob still exist.

    The Trainer finds a JobSet by its name only (2.0 to 2.3), so a new TrainJob of the name would report the end of the
    old JobSet. Whatever its name is, it would also write to the same workspace as pods that are still terminating.

    Args:
        cluster: the cluster of the TrainJobs.
        names: name and namespace of each TrainJob of the run key that may have been deleted.
        jobs: the TrainJobs that existed a moment ago, which are left out.
    """
    missing = sorted(set(names) - set(map(_name_of, jobs)))
    return any(cluster.has_dependents(*each) and cluster.get_trainjob(*each) is None for each in missing)


class _Notices:
    """Reports of one submission to its caller; a TrainJob of another one is reported once."""

    def __init__(
        self,
        on_notice: Callable[[str], None] | None,
        on_submitted: Callable[[Mapping[str, Any]], None] | None,
        known: Iterable[JobReference],
    ) -> None:
        self._on_notice, self._on_submitted = on_notice, on_submitted
        self._reported = {each.uid for each in known}

    def report(self, text: str) -> None:
        if text and self._on_notice:
            self._on_notice(text)

    def report_defaults(self, request: Step | TrainJob, created: Mapping[str, Any]) -> None:
        """Report the defaults of a training that differ from its framework's."""
        for note in request.config.notes if isinstance(request, FineTune) else ():
            self.report(f"TrainJob {'/'.join(reversed(_name_of(created)))}: {note}")

    def report_submitted(self, request: Step | TrainJob, job: Mapping[str, Any]) -> None:
        """Report the TrainJob, and its number of nodes if the request has a range of them."""
        if self._on_submitted:
            self._on_submitted(job)
        name, namespace = _name_of(job)
        if text := describe_node_count(request, get_int(job, "spec", "trainer", "numNodes")):
            self.report(f"TrainJob {namespace}/{name} {text}")

    def report_other(self, job: Mapping[str, Any]) -> None:
        """Report a TrainJob with the label of the run key that was not created for it."""
        if job["metadata"]["uid"] in self._reported:
            return
        self._reported.add(job["metadata"]["uid"])
        name, namespace = _name_of(job)
        self.report(
            f"TrainJob {namespace}/{name} has the label {labels.RUN_KEY} of this step, but was not created by it: its "
            "name or its run key is another one. It may be a copy, and is left alone"
        )


def _has_new_claim(cluster: Cluster, job: TrainJob | TrainJobManifest, adopted: Mapping[str, Any]) -> bool:
    """Return whether the workspace was deleted or created again after a TrainJob.

    It then does not have the output of the TrainJob. Without the permission to get claims, the function returns False.
    """
    if not isinstance(job, TrainJob) or job.workspace is None or not job.workspace.claim:
        return False
    with contextlib.suppress(PermissionDenied):
        claim = cluster.get_claim(job.workspace.claim, adopted["metadata"]["namespace"])
        created = get_str(claim or {}, "metadata", "creationTimestamp")
        return claim is None or created > get_str(adopted, "metadata", "creationTimestamp")
    return False


def _name_of(job: Mapping[str, Any]) -> tuple[str, str]:
    return job["metadata"]["name"], job["metadata"]["namespace"]


def _delete(cluster: Cluster, jobs: Sequence[Mapping[str, Any]]) -> None:
    for job in jobs:
        cancel(cluster, reference_to(job, adopted=True))  # one that has finished since the list is planned anew


_SendFunction = Callable[[dict[str, Any]], dict[str, Any]]


def _make_send_function(
    cluster: Cluster, before_create: Callable[[str, str], None] | None, owner: Mapping[str, Any] | None
) -> _SendFunction:
    """Return a function that calls `before_create` and creates a TrainJob with the owner."""

    def send(manifest: dict[str, Any]) -> dict[str, Any]:
        meta = manifest["metadata"]
        if owner:
            manifest = {**manifest, "metadata": {**meta, "ownerReferences": [dict(owner)]}}
        if before_create:
            before_create(meta["name"], meta["namespace"])
        return cluster.create_trainjob(manifest)

    return send


def _create(
    cluster: Cluster, job: TrainJob | TrainJobManifest, manifest: dict[str, Any], send: _SendFunction
) -> dict[str, Any]:
    """Create the TrainJob, and retry once if the manifest was built for the wrong dialect.

    The dialect is wrong if it was assumed, or if the Trainer was upgraded or downgraded after this process read it.
    """
    try:
        return send(manifest)
    except AdmissionRefused as error:
        if _UNKNOWN_FIELD not in error.message:
            with contextlib.suppress(ClusterError):
                check_runtime(cluster, job, manifest, fresh=True)
            if _is_new_runtime(cluster, job, manifest, error):
                raise ServerUnavailable(
                    error.message, hint=error.hint, status=error.status, reason=error.reason
                ) from error
            raise
        cluster.trainjob_spec_fields(fresh=True)
        if (current := build_manifest(cluster, job, manifest["metadata"], read_dialect=True)) == manifest:
            raise
    return send(current)


def _is_new_runtime(
    cluster: Cluster, job: TrainJob | TrainJobManifest, manifest: Mapping[str, Any], error: AdmissionRefused
) -> bool:
    """Return whether the Trainer's webhook did not find a runtime that exists.

    The webhook reads runtimes from a cache, which lags behind the API server for a moment (Trainer 2.0 to 2.3).
    """
    if _UNKNOWN_RUNTIME not in error.message:
        return False
    runtime = job.runtime
    try:
        return cluster.runtimes.find(runtime.name, runtime.kind, manifest["metadata"]["namespace"]) is not None
    except ClusterError:
        return False


def _get_own_jobs(cluster: Cluster, name: str, namespace: str, key: RunKey) -> list[JobReference]:
    """Return the TrainJob of a name, in a list that is empty if it does not exist any more.

    Raises:
        OwnershipConflict: it was not created for the run key.
    """
    if (existing := cluster.get_trainjob(name, namespace)) is None:
        return []
    if is_attempt_of(existing, key):
        return [reference_to(existing, adopted=True)]
    raise OwnershipConflict(
        f"the TrainJob {namespace}/{name} already exists and does not belong to this step",
        hint="delete it, or give the step another name",
    )


def reference_to(job: Mapping[str, Any], *, adopted: bool) -> JobReference:
    """Return the reference to a TrainJob; without an attempt label it has attempt 1.

    Args:
        job: the TrainJob as the API server returns it.
        adopted: whether it existed before this process submitted it.
    """
    meta = job["metadata"]
    attempt, adopted_at = max(attempt_of(job), 1), labels.get_adoption_time(job) if adopted else ""
    shrinking = read_shrinking(job)
    return JobReference(
        meta["name"],
        meta["namespace"],
        meta["uid"],
        attempt,
        adopted,
        adopted_at,
        interruptions=labels.get_interruptions(job),
        failures=labels.get_failures(job),
        num_nodes=get_int(job, "spec", "trainer", "numNodes") or None,
        fewer_nodes=shrinking.num_nodes if shrinking else None,
        hung_on=labels.list_hung_on(job),
    )


def _to_api_time(moment: datetime | None) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""


def _get_finalizers(job: Mapping[str, Any]) -> list[str]:
    """Return what delays the deletion of a TrainJob that is being deleted."""
    metadata = job["metadata"]
    return list(metadata.get("finalizers") or []) if metadata.get("deletionTimestamp") else []


def _join_names(jobs: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(str(job["metadata"]["name"]) for job in jobs)
