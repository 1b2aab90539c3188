"""TrainJob of a run key, prepared for its creation."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import InvalidSpec, NotFound, PermissionDenied, Problem
from trainjob.lifecycle.identity import RunKey, attempt_of
from trainjob.lifecycle.job_search import list_labelled_jobs
from trainjob.lifecycle.plan import plan_submission
from trainjob.lifecycle.resubmission import Resubmission
from trainjob.lifecycle.runtime_checks import check_runtime
from trainjob.manifest import (
    Dialect,
    adapt_manifest,
    add_env,
    build_trainjob,
    detect_dialect,
    get_required_claim,
    job_name,
    labels,
    requires_newest_dialect,
    spec_hash,
    to_trainjob,
    training_hash,
)
from trainjob.manifest.additions import avoid_nodes
from trainjob.manifest.code import describe_code, find_code
from trainjob.manifest.node_counts import find_range, find_shrinking
from trainjob.spec import Code, Step, TrainJob, TrainJobManifest
from trainjob.status import Phase, derive_verdict
from trainjob.status.nested_fields import get_int, get_mapping

_RESOURCE_FIELDS = ("image", "numNodes", "numProcPerNode", "resourcesPerNode")


@dataclass(frozen=True)
class PreparedJob:
    """Request of a run key, from which the manifest of every attempt is built.

    Attributes:
        request: the request.
        job: the request as a TrainJob or manifest, with the number of nodes of the next attempt.
        key: the run key.
        spec_hash: hash that distinguishes it from another request of the same run key.
        training_hash: hash of what it computes.
        namespace: namespace of the TrainJob.
        name_prefix: start of the TrainJob's name if the request sets no name.
        renewal: value of the renewal annotation; changes whenever a user requests that the work is done again.
        earlier: what follows from the earlier attempts of this try.
        variables: environment variables for the trainer that are not part of the request.
    """

    request: Step | TrainJob
    job: TrainJob | TrainJobManifest
    key: RunKey
    spec_hash: str
    training_hash: str
    namespace: str
    name_prefix: str = ""
    renewal: str = ""
    earlier: Resubmission = field(default_factory=Resubmission)
    variables: Mapping[str, str] = field(default_factory=dict)

    def resize(self, num_nodes: int | None) -> PreparedJob:
        """Return the request for an attempt with a number of nodes of its range."""
        if find_range(self.request) is None:
            return self  # without converting the request again
        earlier = replace(self.earlier, num_nodes=num_nodes)
        return replace(self, job=_build_job(self.request, self.key, earlier, self.variables), earlier=earlier)

    def build_metadata(self, attempt: int) -> dict[str, Any]:
        """Return the name, namespace, labels and annotations of the n-th TrainJob, from 1."""
        key, earlier = self.key, self.earlier
        shrinking = find_shrinking(self.request, earlier.num_nodes)
        given = {
            labels.RENEWAL: self.renewal,
            labels.INTERRUPTIONS: str(earlier.interruptions or ""),
            labels.FAILURES: str(earlier.failures or ""),
            labels.SHRINKING: shrinking.to_text() if shrinking else "",
            labels.HUNG_ON: ",".join(earlier.hung_on),
        }
        return {
            "name": job_name(self.job.name or self.name_prefix or key.task, key.digest, attempt),
            "namespace": self.namespace,
            "labels": labels.run_labels(key.to_dict(), key.digest, attempt),
            "annotations": {
                labels.RUN_KEY: key.canonical,
                labels.SPEC_HASH: self.spec_hash,
                labels.TRAINING_HASH: self.training_hash,
                **({labels.CODE: describe_code(code)} if (code := find_code(self.request)) else {}),
                **{name: text for name, text in given.items() if text},
            },
        }


def prepare_job(
    request: Step | TrainJob,
    key: RunKey,
    namespace: str,
    *,
    default_namespace: str = "default",
    name_prefix: str = "",
    variables: Mapping[str, str] | None = None,
    renewal: str = "",
    earlier: Resubmission | None = None,
) -> PreparedJob:
    """Prepare a request without access to the cluster; pack its code if it is not packed.

    `trainjob.lifecycle.submit` explains the arguments.

    Args:
        request: a step, a `TrainJob` or a `TrainJobManifest`.
        key: the run key.
        namespace: namespace of the TrainJob; empty means the manifest's own, or `default_namespace`.
        default_namespace: namespace if neither the caller nor the manifest names one.
        name_prefix: start of the TrainJob's name if the request sets no name.
        variables: environment variables for the trainer that are not part of the request.
        renewal: changes whenever a user requests that the work is done again.
        earlier: what follows from the earlier attempts of this try.

    Raises:
        InvalidSpec: the request cannot be expressed, its manifest names another namespace, or its code can't be packed.
    """
    earlier, request = earlier or Resubmission(), _pack_code(request)
    job = _build_job(request, key, earlier, variables or {})
    selected_namespace = _select_namespace(job, namespace) or default_namespace
    return PreparedJob(
        request,
        job,
        key,
        spec_hash(request),
        training_hash(request),
        selected_namespace,
        name_prefix,
        renewal,
        earlier,
        variables or {},
    )


def _pack_code(request: Step | TrainJob) -> Step | TrainJob:
    if not isinstance(request, TrainJob) or not isinstance(getattr(request.trainer, "code", None), Code):
        return request
    from trainjob.project_code import pack_request  # here: the launcher of a pipeline has no project to read

    return pack_request(request)


def _build_job(
    request: Step | TrainJob, key: RunKey, earlier: Resubmission, variables: Mapping[str, str]
) -> TrainJob | TrainJobManifest:
    workflow_run = labels.read_workflow_run({labels.RUN_KEY: key.canonical})
    job = to_trainjob(request, run=key.digest, run_name=key.run, num_nodes=earlier.num_nodes, workflow_run=workflow_run)
    return avoid_nodes(add_env(job, variables), earlier.hung_on)


def preview_manifest(cluster: Cluster, prepared: PreparedJob) -> dict[str, Any]:
    """Return the manifest that `trainjob.lifecycle.submit` would create now.

    If it would adopt a TrainJob, the manifest has the name and attempt of that TrainJob.

    Raises:
        InvalidSpec: the request cannot be expressed, needs another version of the Trainer, or does not fit its runtime.
        NotFound: a claim that the runtime needs does not exist.
        ClusterError: a request failed or was denied.
    """
    jobs = list_labelled_jobs(cluster, prepared.key, prepared.namespace)
    is_kept = partial(is_running_with_same_result, cluster, prepared)
    attempt = plan_submission(jobs, prepared.spec_hash, renewal=prepared.renewal, is_kept=is_kept).attempt
    return build_manifest(cluster, prepared.job, prepared.build_metadata(attempt), read_dialect=True)


def is_running_with_same_result(cluster: Cluster, prepared: PreparedJob, job: Mapping[str, Any]) -> bool:
    """Return whether a TrainJob runs, and has the result and the resources of a request.

    It is then not replaced, although other fields differ: a training would repeat the steps since its last checkpoint.

    Raises:
        InvalidSpec: the request cannot be expressed, or does not fit its runtime.
        NotFound: a claim that the runtime needs does not exist.
        ClusterError: a request failed or was denied.
    """
    is_same = labels.get_annotation(job, labels.TRAINING_HASH) == prepared.training_hash
    if not is_same or derive_verdict(job).phase is not Phase.RUNNING:
        return False
    sent = build_same_size(cluster, prepared, job)
    now, then = (get_mapping(each, "spec", "trainer") for each in (sent, job))
    return all(now.get(name) == then.get(name) for name in _RESOURCE_FIELDS)


def build_same_size(cluster: Cluster, prepared: PreparedJob, job: Mapping[str, Any]) -> dict[str, Any]:
    """Build the manifest that a request would have as this TrainJob, with as many nodes.

    Raises:
        InvalidSpec: the request cannot be expressed, or does not fit its runtime.
        NotFound: a claim that the runtime needs does not exist.
        ClusterError: a request failed or was denied.
    """
    resized = prepared.resize(get_int(job, "spec", "trainer", "numNodes") or None)
    return build_manifest(cluster, resized.job, resized.build_metadata(attempt_of(job)), read_dialect=True)


def build_manifest(
    cluster: Cluster, job: TrainJob | TrainJobManifest, metadata: Mapping[str, Any], *, read_dialect: bool
) -> dict[str, Any]:
    """Build the manifest in the dialect of the cluster's Trainer, and check it.

    Callers build it before they delete or create anything, so an invalid request changes nothing. The dialect follows
    from an OpenAPI document of 1 MB. If this process has not read the document yet and `read_dialect` is false, the
    newest dialect is assumed if that is harmless. An older cluster refuses the manifest because of an unknown field,
    and then the document is read.

    Args:
        cluster: the cluster of the TrainJob.
        job: the request.
        metadata: name, namespace, labels and annotations.
        read_dialect: whether the dialect must be read from the cluster.

    Raises:
        InvalidSpec: the request cannot be expressed, or does not fit its runtime.
        NotFound: a claim that the runtime needs does not exist.
        ClusterError: a request failed or was denied.
    """
    read_dialect = read_dialect or requires_newest_dialect(job)
    fields = cluster.trainjob_spec_fields() if read_dialect else cluster.known_spec_fields
    try:
        manifest = _build_for(fields, job, metadata)
    except InvalidSpec:  # the Trainer may have been upgraded since this process read its fields
        if (current := cluster.trainjob_spec_fields(fresh=True)) == fields:
            raise
        fields, manifest = current, _build_for(current, job, metadata)
    if claim := get_required_claim(job, detect_dialect(fields)):
        _check_claim(cluster, claim, metadata["namespace"], detect_dialect(fields))
    check_runtime(cluster, job, manifest)
    return manifest


def _build_for(
    fields: Collection[str], job: TrainJob | TrainJobManifest, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Build the manifest for the Trainer that has these fields; empty if they are not known.

    A manifest is then sent as written, and the API server refuses fields of other versions.
    """
    dialect = detect_dialect(fields)
    manifest = build_trainjob(job, **metadata, dialect=dialect)
    return adapt_manifest(manifest, dialect) if fields and isinstance(job, TrainJobManifest) else manifest


def _select_namespace(job: TrainJob | TrainJobManifest, requested: str) -> str:
    own = job.namespace if isinstance(job, TrainJobManifest) else ""
    if requested and own and requested != own:
        raise InvalidSpec(
            Problem(
                "manifest.metadata.namespace",
                repr(own),
                f"{requested!r} is requested as the namespace, too: remove one of them",
            )
        )
    return requested or own


def _check_claim(cluster: Cluster, claim: str, namespace: str, dialect: Dialect) -> None:
    """Raise an error if a claim does not exist, because the pods would stay pending.

    Without the permission to get claims nothing is checked, and the waiter reports the missing claim later.
    """
    with contextlib.suppress(PermissionDenied):
        if cluster.get_claim(claim, namespace) is None:
            raise NotFound(
                f"there is no PersistentVolumeClaim {claim} in namespace {namespace}: with Trainer {dialect.value} the "
                f"runtime {claim} stores the dataset, the model and the output on it",
                hint=f"create the PersistentVolumeClaim {claim}, train with your own workspace, or upgrade to Trainer "
                f"{Dialect.V2_2.value} or later, which creates one for each TrainJob",
            )
