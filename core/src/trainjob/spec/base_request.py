"""Fields of every request: its name, labels and placement, and the settings of the wait for its TrainJob."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.durations import Duration
from trainjob.spec.metadata import Annotations, Labels
from trainjob.spec.queue import QueueField
from trainjob.spec.resources import Placement
from trainjob.spec.runtime_patches import RuntimePatches
from trainjob.spec.volumes import Volumes

# A TrainJob's name may have 33 characters, because JobSet names pods NAME-dataset-initializer-0-0-abcde, and they may
# have 63 (JobSet 0.12 webhook). A hash that makes the name unique takes 9 of the 33.
MAX_NAME_LENGTH = 24
# The Trainer counts nanoseconds in 64 bits. A longer deadline overflows and is over at once (seen on Trainer 2.3.0).
_LONGEST_DEADLINE = timedelta(days=292 * 365)
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def _validate_name(name: Any) -> Any:
    if isinstance(name, str) and (len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name)):
        rule = f"at most {MAX_NAME_LENGTH} characters: lower case letters, digits and -, beginning with a letter"
        raise invalid_field(
            "", name, f"{rule}; a hash is appended, and JobSet needs the rest of a pod name's 63 characters"
        )
    return name


def _validate_deadline(deadline: timedelta) -> timedelta:
    if deadline < timedelta(seconds=1):
        raise invalid_field("", f"{deadline.total_seconds():g} s", "it must be at least one second")
    if deadline > _LONGEST_DEADLINE:
        raise invalid_field("", str(deadline), f"it must be at most {_LONGEST_DEADLINE.days} days")
    return deadline


def _validate_ttl(ttl: timedelta) -> timedelta:
    if ttl < timedelta(0):
        raise invalid_field("", f"{ttl.total_seconds():g} s", "it must not be negative")
    return ttl


JobName = Annotated[str, BeforeValidator(_validate_name)]
Deadline = Annotated[Duration, AfterValidator(_validate_deadline)]
TimeToLive = Annotated[Duration, AfterValidator(_validate_ttl)]
ManagedBy = Literal["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"]
"""Controller that acts on a TrainJob (Trainer 2.3 pkg/apis/trainer/v1alpha1/trainjob_types.go)."""
EndAction = Literal["delete", "suspend", "keep"]
"""Action on a TrainJob when its wait ends before the TrainJob has finished."""
STEP_ALIASES = {
    **dict.fromkeys(("deadline_seconds", "timeout", "active_deadline_seconds", "execution_timeout"), "deadline"),
    **dict.fromkeys(("queue_name", "local_queue"), "queue"),
    "on_kill_action": "on_kill",
    "on_failure_action": "on_failure",
    **dict.fromkeys(("ttl", "ttl_seconds_after_finished"), "ttl_after_success"),
    **dict.fromkeys(("service_account", "serviceAccountName"), "placement.service_account_name"),
    **dict.fromkeys(("hf_token", "token", "secret_name"), "secret"),
}
"""Fields of every step by other names: those of other surfaces, of Kubernetes and of Airflow."""


class WaitSettings(Spec):
    """Settings of the wait for a TrainJob, and of what happens at its end.

    They do not change the TrainJob itself, so a request with other settings adopts the same TrainJob.

    Attributes:
        queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times, such
            as `8h`; by default there is no limit.
        start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
        interruption_retries: how often another attempt starts after the infrastructure has interrupted the TrainJob,
            for example by an eviction, a preemption or a drain. These attempts do not count as retries of the workflow
            engine. With 0, an interruption is a failure.
        on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
            pods are deleted; a later submission of the same request resumes it) or `keep`.
        on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
            `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods are
            retained until the next try). A TrainJob that the cluster itself ends is always retained.
        ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
            deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
        ttl_after_failure: the same time after it has failed.
    """

    queue_timeout: Duration | None = None
    start_timeout: Duration | None = None
    interruption_retries: int = Field(default=3, ge=0)
    on_kill: EndAction = "delete"
    on_failure: EndAction = "delete"
    ttl_after_success: TimeToLive | None = None
    ttl_after_failure: TimeToLive | None = None


class BaseRequest(WaitSettings):
    """Base class of the requests from which a TrainJob is built.

    Attributes:
        name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
        labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request: a
            later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
        annotations: annotations of the TrainJob and of its pods, in the same way.
        deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then the
            cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
        queue: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority class or
            a topology.
        placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
        volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
        managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
            `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3, because
            an older one also runs it on this cluster.
        suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
        runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
            applied after those of the other fields. Trainer 2.2 and later.
    """

    field_aliases: ClassVar[Mapping[str, str]] = STEP_ALIASES

    name: JobName | None = None
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    deadline: Deadline | None = None
    queue: QueueField | None = None
    placement: Placement | None = None
    volumes: Volumes = ()
    managed_by: ManagedBy | None = None
    suspend: bool = False
    runtime_patches: RuntimePatches = ()
