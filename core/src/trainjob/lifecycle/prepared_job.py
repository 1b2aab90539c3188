"""The TrainJob of a run key as it will be sent, before it is."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import InvalidSpec, NotFound, PermissionDenied, Problem
from trainjob.lifecycle.identity import RunKey
from trainjob.lifecycle.plan import plan
from trainjob.lifecycle.runtime_checks import check_runtime
from trainjob.manifest import (
    Dialect,
    build,
    dialect_of,
    job_name,
    labels,
    needed_claim,
    needs_the_dialect,
    spec_hash,
    train_job,
    with_variables,
)
from trainjob.spec import Step, TrainJob, TrainJobManifest


@dataclass(frozen=True)
class PreparedJob:
    """What a run key asks for; its attempts differ in their names only.

    Attributes:
        job: the general request.
        key: who asks.
        spec_hash: what tells it from another request of the same key.
        namespace: where.
        prefix: begins the TrainJob's name where the request does not say.
        renewal: which of a person's wishes to have the work done again it is.
    """

    job: TrainJob | TrainJobManifest
    key: RunKey
    spec_hash: str
    namespace: str
    prefix: str = ""
    renewal: str = ""

    def metadata(self, attempt: int) -> dict[str, Any]:
        """What the n-th TrainJob is called, and carries to be found by."""
        key, renewed = self.key, {labels.RENEWAL: self.renewal} if self.renewal else {}
        return {
            "name": job_name(self.job.name or self.prefix or key.task, key.digest, attempt),
            "namespace": self.namespace,
            "labels": labels.run_labels(key.to_dict(), key.digest, attempt),
            "annotations": {labels.RUN_KEY: key.canonical, labels.SPEC_HASH: self.spec_hash} | renewed,
        }


def prepare(
    request: Step | TrainJob,
    key: RunKey,
    namespace: str,
    *,
    otherwise: str = "default",
    prefix: str = "",
    variables: Mapping[str, str] | None = None,
    renewal: str = "",
) -> PreparedJob:
    """What is asked for, as far as it can be told without a cluster; see `trainjob.lifecycle.submit` for the arguments.

    Args:
        request: a step, a `TrainJob` or a `TrainJobManifest`.
        key: who asks.
        namespace: where; empty means the manifest's own, or `otherwise`.
        otherwise: the namespace where nobody names one.
        prefix: begins the name.
        variables: environment variables for the trainer that are no part of the request.
        renewal: which wish to have it done again.

    Raises:
        InvalidSpec: the request can't be expressed.
    """
    wanted = spec_hash(request)
    job = with_variables(train_job(request, run=f"{key.digest}-{wanted}"), variables or {})
    return PreparedJob(job, key, wanted, _namespace(job, namespace) or otherwise, prefix, renewal)


def preview(cluster: Cluster, drafted: PreparedJob) -> dict[str, Any]:
    """The TrainJob that `trainjob.lifecycle.submit` would send now; where it would take one over, that one's.

    Raises:
        InvalidSpec: it can't be expressed, not for the cluster's Trainer, or does not fit its runtime.
        ClusterError: the cluster can't be asked.
    """
    jobs = cluster.list_trainjobs(drafted.namespace, f"{labels.RUN_KEY}={drafted.key.digest}")
    attempt = plan(jobs, drafted.spec_hash, renewal=drafted.renewal).attempt
    return manifest_of(cluster, drafted.job, drafted.metadata(attempt), certain=True)


def manifest_of(
    cluster: Cluster, job: TrainJob | TrainJobManifest, metadata: Mapping[str, Any], *, certain: bool
) -> dict[str, Any]:
    """The TrainJob in the cluster's dialect; what it can't express is said before anything is deleted or created.

    The document that tells the dialect is 1 MB. Unless `certain`, the newest is guessed where that is harmless: an
    older cluster refuses it for an unknown field, and then the document is read.

    Raises:
        InvalidSpec: it can't be expressed, or does not fit its runtime.
        NotFound: a claim that its runtime needs is missing.
        ClusterError: the cluster can't be asked.
    """
    certain = certain or needs_the_dialect(job)
    fields = cluster.trainjob_spec_fields() if certain else cluster.known_spec_fields
    try:
        manifest = build(job, **metadata, dialect=dialect_of(fields))
    except InvalidSpec:  # unless somebody has upgraded the Trainer since this process read them
        if (current := cluster.trainjob_spec_fields(fresh=True)) == fields:
            raise
        fields, manifest = current, build(job, **metadata, dialect=dialect_of(current))
    if claim := needed_claim(job, dialect_of(fields)):
        _check_claim(cluster, claim, metadata["namespace"], dialect_of(fields))
    check_runtime(cluster, job, manifest)
    return manifest


def _namespace(job: TrainJob | TrainJobManifest, asked: str) -> str:
    own = job.namespace if isinstance(job, TrainJobManifest) else ""
    if asked and own and asked != own:
        raise InvalidSpec(Problem("manifest.metadata.namespace", repr(own), f"{asked!r} is asked for: leave one out"))
    return asked or own


def _check_claim(cluster: Cluster, claim: str, namespace: str, dialect: Dialect) -> None:
    """Without it the pods would wait for ever; who may not look at claims is told by the waiting."""
    with contextlib.suppress(PermissionDenied):
        if cluster.get_claim(claim, namespace) is None:
            raise NotFound(
                f"there is no PersistentVolumeClaim {claim} in namespace {namespace}: with Trainer {dialect.value} the "
                f"runtime {claim} keeps data set, model and output on it",
                hint=f"create the claim {claim}, train over a workspace of your own, or upgrade to Trainer "
                f"{Dialect.V2_2.value} or later, which makes one for each TrainJob",
            )
