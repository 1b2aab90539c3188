"""Reconcilers that read the children of TrainJobs, JobSets and Jobs.

The pure functions of `trainjobs`, `jobsets` and `jobs` make the decisions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from trainjob_local.controllers import jobs, jobsets, trainjobs
from trainjob_local.controllers.composition import build_jobset
from trainjob_local.controllers.controller_manager import Key
from trainjob_local.controllers.job_pods import TRACKING_FINALIZER
from trainjob_local.controllers.object_lister import ObjectLister
from trainjob_local.controllers.writes import Create, Decision, Write
from trainjob_local.objects import Json, controller_of

__all__ = ["JobReconciler", "JobSetReconciler", "TrainJobReconciler"]

_CONTROLLER_NAME = "trainer.kubeflow.org/trainjob-controller"
_RETRY_SECONDS = 1.0  # seconds until a missing runtime is looked up again
_RESOURCES = {"TrainingRuntime": "trainingruntimes", "ClusterTrainingRuntime": "clustertrainingruntimes"}


class TrainJobReconciler:
    """Reconciler for TrainJobs."""

    def __init__(self, lister: ObjectLister) -> None:
        self._lister = lister

    def reconcile(self, key: Key, now: datetime) -> Decision:
        """Decide which writes one TrainJob needs."""
        namespace, name = key
        job = self._lister.find("trainjobs", name, namespace)
        if job is None or job["spec"].get("managedBy", _CONTROLLER_NAME) != _CONTROLLER_NAME:
            return Decision()
        jobset = self._lister.find("jobsets", name, namespace)
        if trainjobs.is_finished(job):
            return trainjobs.decide(job, None, jobset, now)
        runtime, writes = self._find_runtime(job)
        if isinstance(runtime, str):
            status = trainjobs.decide(job, None, jobset, now)
            return Decision([*status.writes, trainjobs.creation_failed_event(job, runtime)], _RETRY_SECONDS)
        decision = trainjobs.decide(job, build_jobset(job, runtime), jobset, now)
        return Decision([*writes, *decision.writes], decision.requeue_after)

    def _find_runtime(self, job: Json) -> tuple[Json | str, Sequence[Write]]:
        """Return the runtime as it was when the TrainJob started.

        Returns:
            The runtime and the writes that store its snapshot; or the error text and no writes.
        """
        meta, ref = job["metadata"], job["spec"]["runtimeRef"]
        snapshot = self._lister.find("configmaps", trainjobs.snapshot_name(meta["name"]), meta["namespace"])
        if snapshot is not None:
            if controller_of(snapshot).get("uid") != meta["uid"]:
                problem = "a snapshot configmap exists but is owned by another object"
                return f"unable to get runtime snapshot: invalid runtime snapshot: {problem}", ()
            runtime: Json = json.loads(snapshot["data"][trainjobs.SNAPSHOT_KEY])
            return runtime, ()
        kind = ref.get("kind", "ClusterTrainingRuntime")
        namespace = meta["namespace"] if kind == "TrainingRuntime" else ""
        found = self._lister.find(_RESOURCES[kind], ref["name"], namespace) if kind in _RESOURCES else None
        if found is None:
            missing = f'{kind}.trainer.kubeflow.org "{ref["name"]}" not found'
            return f"not found {kind} specified in TrainJob: {missing}", ()
        return found, [Create("configmaps", trainjobs.build_snapshot(job, found), may_exist=True)]


class JobSetReconciler:
    """Reconciler for JobSets."""

    def __init__(self, lister: ObjectLister) -> None:
        self._lister = lister

    def reconcile(self, key: Key, now: datetime) -> Decision:
        """Decide which writes one JobSet needs."""
        namespace, name = key
        jobset = self._lister.find("jobsets", name, namespace)
        return jobsets.decide(jobset, self._lister.list_owned("jobs", jobset), now) if jobset else Decision()


class JobReconciler:
    """Reconciler for Jobs."""

    def __init__(self, lister: ObjectLister, backoff: jobs.Backoff) -> None:
        self._lister, self._backoff = lister, backoff

    def reconcile(self, key: Key, now: datetime) -> Decision:
        """Decide which writes one Job needs.

        Pods of a deleted Job, or of an earlier Job of the same name, lose their tracking finalizer.
        """
        namespace, name = key
        job = self._lister.find("jobs", name, namespace)
        uid = job["metadata"]["uid"] if job else ""
        pods = self._lister.list_objects("pods", namespace, f"batch.kubernetes.io/job-name={name}")
        orphans = [pod for pod in pods if controller_of(pod).get("uid") != uid]
        tracked = [pod for pod in orphans if TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or [])]
        freed: list[Write] = [jobs.remove_tracking_finalizer(pod) for pod in tracked]
        if job is None:
            return Decision(freed)
        own = [pod for pod in pods if controller_of(pod).get("uid") == uid]
        decision = jobs.decide(job, own, now, self._backoff)
        return Decision([*freed, *decision.writes], decision.requeue_after)
