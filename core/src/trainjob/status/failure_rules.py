"""Categories of a TrainJob's problems, and the table of rules for each category.

[find_category][] maps a reason and its message to a category. [RULES][] has the rule of each category: after how long
the wait ends, the error to raise, whether a retry can help, and what to do.

Airflow's KubernetesPodOperator (provider 10.25, `utils/pod_manager.py`) gives up at once if an image is missing. Tekton
does, too (`default-imagepullbackoff-timeout`, 0 by default). A training has often waited for hours by then, and the
missing object may appear a moment later. Examples are an image that is still being pushed, and a Secret that a
controller copies. So the wait continues for one minute if the object can still appear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from trainjob.errors import (
    CommandFailed,
    DeadlineExceeded,
    Diverged,
    Hung,
    ImageUnavailable,
    InstallationFailed,
    Interrupted,
    JobDeleted,
    JobFailed,
    NeverStarted,
    OutOfMemory,
    StorageFull,
)
from trainjob.installation import INSTALLATION_PAGE

EARLIER_JOBSET = "EndOfEarlierJobSet"
NO_RESERVATION = "NoReservation"  # of an attempt that is followed by one with fewer nodes
"""Reason of this project for a TrainJob that reports the end of another TrainJob's JobSet."""
_ONE_MINUTE_GRACE, _NO_GRACE = 60.0, 0.0
_FIVE_MINUTES_GRACE = 300.0  # an administrator, or a controller that signs images, may act in this time
_MAX_SEARCHED = 4000  # characters of a message that are searched


class Category(str, Enum):
    """Category of a problem; it determines the person or system that has to act.

    `RULES` has the consequences.
    """

    SUCCEEDED = "Succeeded"
    """The TrainJob is complete."""
    APPLICATION = "Application"
    """The step's own command ended with an error."""
    INITIALIZER = "Initializer"
    """A dataset or model initializer ended with an error, before the training."""
    INSTALLATION = "Installation"
    """The packages of the training could not be installed in its pod."""
    DIVERGED = "Diverged"
    """Loss and gradients of the training were not finite numbers."""
    HUNG = "Hung"
    """The watchdog of the training has ended it, because it made no step."""
    PROGRAM = "Program"
    """The image contains no `trainjob`, or that of another version."""
    OUT_OF_MEMORY = "OutOfMemory"
    """A container exceeded its memory limit, or the kernel probably ended one of its processes for that."""
    STORAGE_FULL = "StorageFull"
    """The workspace, or another disk that the step writes to, is full."""
    INFRASTRUCTURE = "Infrastructure"
    """The pod was evicted, preempted, refused by its node, or lost with it."""
    DEADLINE = "Deadline"
    """The TrainJob was active for longer than its deadline."""
    POLICY = "Policy"
    """A rule of the runtime's failure policies made this failure final."""
    DELETED = "Deleted"
    """The TrainJob was deleted during the wait."""
    UNKNOWN = "Unknown"
    """No condition, event or container status has a known reason."""
    # Reasons why a job does not start.
    IMAGE = "Image"
    """The registry does not have the image, or refuses it to these pods."""
    OWN_IMAGE = "OwnImage"
    """An image of this project can't be pulled; before the first release, none of them is public."""
    IMAGE_NAME = "ImageName"
    """The image's name is not valid."""
    REGISTRY_TRUST = "RegistryTrust"
    """The nodes do not trust the certificate of the registry, or it does not serve HTTPS."""
    IMAGE_POLICY = "ImagePolicy"
    """A policy of the cluster does not allow the image: its registry, its tag or its signature."""
    PULL = "Pull"
    """The image can't be pulled now: network, rate limit, a registry that is down."""
    PULLING = "Pulling"
    """The image is being pulled: the laptop cluster creates the environment that replaces it."""
    ENVIRONMENT = "Environment"
    """The laptop cluster has no usable environment that replaces the image."""
    CONFIGURATION = "Configuration"
    """A Secret or a ConfigMap, or a key in it, is missing."""
    COMMAND = "Command"
    """The container can't be started with this command, directory or mount."""
    GPU_DRIVER = "GpuDriver"
    """The driver of the node's GPUs is too old for the image."""
    DEVICE = "Device"
    """The node can't give the container its GPUs: driver, container toolkit or runtime."""
    SANDBOX = "Sandbox"
    """The pod's sandbox can't be created: the network plugin fails, or has no free IP addresses."""
    CLAIM = "Claim"
    """A PersistentVolumeClaim does not exist."""
    VOLUME = "Volume"
    """A volume is not ready yet: unbound, attached elsewhere, in another zone, not mounted."""
    UNSCHEDULABLE = "Unschedulable"
    """No node has enough free resources, or the labels and tolerations that the pods need."""
    QUOTA = "Quota"
    """A ResourceQuota of the namespace is used up, or its use is not counted yet."""
    RESOURCES = "Resources"
    """The requests and limits of a container break a LimitRange, a ResourceQuota or a rule of Kubernetes."""
    POD_SECURITY = "PodSecurity"
    """The pods break the namespace's Pod Security level, or every security context constraint."""
    WEBHOOK = "Webhook"
    """A required webhook does not respond."""
    REFUSED = "Refused"
    """Admission refuses the pods, Jobs or JobSet for another reason: a policy, a missing service account."""
    INVALID = "Invalid"
    """An object of the job can't be created: a name is too long, a patch has no target."""
    GANG = "Gang"
    """The runtime needs a gang scheduler that the cluster does not have."""
    SIDECAR = "Sidecar"
    """The step's own container has succeeded, and another container of its pod does not end."""
    CRASH_LOOP = "CrashLoop"
    """A container fails repeatedly, and the kubelet restarts it."""
    QUEUED = "Queued"
    """Kueue holds the job until there is quota."""
    NO_QUEUE = "NoQueue"
    """The job's Kueue queue does not exist or is stopped."""
    BEYOND_QUEUE = "BeyondQueue"
    """The job's Kueue queue could not provide the request even without other jobs."""
    NO_WORKLOAD = "NoWorkload"
    """Kueue has not created a Workload for the job."""
    NOT_RESUMED = "NotResumed"
    """Kueue has admitted the job, but its TrainJob stays suspended."""
    DEACTIVATED = "Deactivated"
    """Kueue or a user has deactivated the job's Workload."""


@dataclass(frozen=True)
class Rule:
    """Consequences of a category of problems.

    Attributes:
        retryable: whether the same step may succeed without any change by a person.
        advice: what to do, as one sentence.
        error: class of the error to raise once the job has ended for this reason.
        grace: seconds that the problem may last while the job does not start. After them, the wait ends, and the job is
            deleted or suspended. None means that the problem is shown and the wait continues.
        delay: seconds that the problem has to last before it is shown, because it is normal for a moment.
    """

    retryable: bool
    advice: str
    error: type[JobFailed] = JobFailed
    grace: float | None = None
    delay: float = 0.0


RULES: Mapping[Category, Rule] = {
    Category.SUCCEEDED: Rule(False, ""),
    Category.APPLICATION: Rule(
        False, "read the step's last log lines above; the command itself ended with an error", CommandFailed
    ),
    Category.INITIALIZER: Rule(
        False,
        "read the initializer's last log lines above; check the address, the credentials and the volume's free space",
        CommandFailed,
    ),
    Category.INSTALLATION: Rule(
        True,
        "read pip's lines above; give an image that contains the packages, an index that the pods reach, or wheels",
        InstallationFailed,
    ),
    Category.DIVERGED: Rule(
        False, "lower the learning rate, set max_grad_norm, or correct the rows of the dataset", Diverged
    ),
    Category.HUNG: Rule(
        False, "read the stacks above; correct the code at that place, or avoid the node of the rank that hung", Hung
    ),
    Category.PROGRAM: Rule(
        False,
        "give an image with the version of trainjob that the command names, or program='packed' for any image",
        CommandFailed,
    ),
    Category.OUT_OF_MEMORY: Rule(
        False, "give the step more memory (resources_per_node), or use smaller batches or a smaller model", OutOfMemory
    ),
    Category.STORAGE_FULL: Rule(
        False,
        "free space in the workspace, or use a larger PersistentVolumeClaim; the last complete checkpoint is kept, so "
        "a training continues from it",
        StorageFull,
    ),
    Category.INFRASTRUCTURE: Rule(
        True, "the node or the scheduler ended the pod; a retry starts a new attempt", Interrupted
    ),
    Category.DEADLINE: Rule(False, "raise the deadline, or find out why the step is slow", DeadlineExceeded),
    Category.POLICY: Rule(
        False,
        "a failure policy of the runtime ended the TrainJob: correct the cause, or change the rule in the runtime",
        CommandFailed,
    ),
    Category.DELETED: Rule(True, "somebody deleted the TrainJob; a retry starts a new attempt", JobDeleted),
    Category.UNKNOWN: Rule(
        True, "run `kubectl describe` on the TrainJob and its JobSet; their events may have the reason"
    ),
    Category.IMAGE: Rule(
        False,
        "correct the image's name and tag, or give the pods an image pull secret for its registry (in placement)",
        ImageUnavailable,
        _ONE_MINUTE_GRACE,
    ),
    Category.OWN_IMAGE: Rule(
        False,
        f"images of this project are not public yet: build and push your own, and name it; see {INSTALLATION_PAGE}",
        ImageUnavailable,
        _ONE_MINUTE_GRACE,
    ),
    Category.IMAGE_NAME: Rule(
        False, "correct the image's name: it is not a valid image name", ImageUnavailable, _NO_GRACE
    ),
    Category.REGISTRY_TRUST: Rule(
        False,
        "have an administrator make the nodes trust the registry: its certificate, or plain HTTP, belongs into the "
        "configuration of their container runtime",
        ImageUnavailable,
        _FIVE_MINUTES_GRACE,
    ),
    Category.IMAGE_POLICY: Rule(
        False,
        "use an image that the policy allows (registry, tag, signature), or have an administrator change the policy",
        ImageUnavailable,
        _FIVE_MINUTES_GRACE,
    ),
    Category.PULL: Rule(
        True, "the kubelet retries the pull; check that the nodes can reach the registry", ImageUnavailable
    ),
    Category.PULLING: Rule(
        True, "wait until the image is pulled, or raise the limit on the starting time", NeverStarted
    ),
    Category.ENVIRONMENT: Rule(
        False,
        "follow the message, or start the laptop cluster with another environment: --environment NAME=DIR",
        ImageUnavailable,
        _ONE_MINUTE_GRACE,
    ),
    Category.CONFIGURATION: Rule(
        False,
        "create the Secret or ConfigMap in the job's namespace, or correct its name or key",
        NeverStarted,
        _ONE_MINUTE_GRACE,
    ),
    Category.COMMAND: Rule(
        False, "correct the command, its working directory or the image", NeverStarted, _ONE_MINUTE_GRACE
    ),
    Category.GPU_DRIVER: Rule(
        False,
        "use an image with a CUDA version that the node's driver supports, or nodes with a newer driver (placement)",
        NeverStarted,
        _ONE_MINUTE_GRACE,
    ),
    Category.DEVICE: Rule(
        True,
        "have an administrator check the GPU driver and container toolkit of the node; a retry may get another node",
        NeverStarted,
    ),
    Category.SANDBOX: Rule(
        True,
        "wait, because the kubelet tries again; have an administrator check the network plugin of the node, and its "
        "free IP addresses",
        NeverStarted,
    ),
    Category.CLAIM: Rule(
        False,
        "create the PersistentVolumeClaim in the job's namespace, or correct its name",
        NeverStarted,
        _ONE_MINUTE_GRACE,
    ),
    Category.VOLUME: Rule(
        True,
        "read the events of the PersistentVolumeClaim; a ReadWriteOnce volume can be used on one node only, and some "
        "volumes in one zone only",
        NeverStarted,
    ),
    Category.UNSCHEDULABLE: Rule(
        True, "request fewer resources, correct node selectors and tolerations, or wait for a free node", NeverStarted
    ),
    Category.QUOTA: Rule(
        True,
        "wait until other jobs end, request fewer resources, or have an administrator raise the ResourceQuota",
        NeverStarted,
    ),
    Category.WEBHOOK: Rule(True, "have a cluster administrator restore the webhook", NeverStarted),
    Category.RESOURCES: Rule(
        False,
        "set resources_per_node to what the message requires; each other container of the runtime needs requests and "
        "limits, too, and GPUs need a limit that is equal to the request",
        NeverStarted,
        _ONE_MINUTE_GRACE,
    ),
    Category.POD_SECURITY: Rule(
        False,
        "set security_context and container_security_context in placement as the message requires, or use a namespace "
        "that allows these pods",
        NeverStarted,
        _ONE_MINUTE_GRACE,
    ),
    Category.REFUSED: Rule(
        False,
        "correct what the message names, or have an administrator change the policy",
        NeverStarted,
        _ONE_MINUTE_GRACE,
    ),
    Category.INVALID: Rule(
        False,
        "correct what the message names, such as a long name, a patch without a target, or a claim policy without a "
        "retentionPolicy",
        NeverStarted,
        _NO_GRACE,
    ),
    Category.GANG: Rule(
        False,
        "install the gang scheduler of the runtime's podGroupPolicy with its CRDs, or use another runtime",
        NeverStarted,
        _NO_GRACE,
    ),
    # A sidecar may need some seconds to see that the step has ended.
    Category.SIDECAR: Rule(
        False,
        "keep the sidecar out of the step's pods, for Istio with labels={'sidecar.istio.io/inject': 'false'}, or make "
        "it an init container with restartPolicy Always, which Kubernetes ends",
        DeadlineExceeded,
        delay=60.0,
    ),
    Category.CRASH_LOOP: Rule(False, "read the container's last log lines", CommandFailed),
    Category.QUEUED: Rule(
        True, "wait until other jobs end, request fewer resources, or use another queue", NeverStarted
    ),
    Category.NO_QUEUE: Rule(
        False,
        "use an active LocalQueue of the job's namespace, or have an administrator create or activate this one",
        NeverStarted,
    ),
    Category.BEYOND_QUEUE: Rule(
        False,
        "request at most what the queue's flavors have, or use another queue; waiting for other jobs does not help",
        NeverStarted,
    ),
    Category.NO_WORKLOAD: Rule(
        False,
        "correct the priority class's name, or have Kueue's integration trainer.kubeflow.org/trainjob enabled",
        NeverStarted,
    ),
    # Kueue 0.17 resumes a TrainJob within 0.2 s of its admission.
    Category.NOT_RESUMED: Rule(
        False,
        "have an administrator read the log of Kueue's controller: Kueue 0.17 and later need Trainer 2.2 or later, and "
        "an admission policy or webhook may refuse Kueue's update of the TrainJob",
        NeverStarted,
        delay=20.0,
    ),
    Category.DEACTIVATED: Rule(
        False, "set spec.active of its Workload to true, or submit the TrainJob again", NeverStarted
    ),
}

# The reasons of events about objects that could not be created, from the controllers of Jobs (Kubernetes 1.36
# pkg/controller/job), JobSets (JobSet 0.12 pkg/constants) and TrainJobs (Trainer 2.3 pkg/controller).
_CREATION_REASONS = "FailedCreate|JobCreationFailed|TrainJobResourcesCreationFailed"
# Kubernetes 1.36 pkg/kubelet/images/types.go; "Failed" is the event's reason.
_PULL_REASONS = "ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable|Failed"
_START_REASONS = "CreateContainerError|RunContainerError|StartError|ContainerCannotRun"
_SANDBOX_REASONS = "FailedCreatePodSandBox|NetworkNotReady"
_SCHEDULING_REASONS = "Unschedulable|FailedScheduling"
# The messages of containerd 2, CRI-O 1.36 and registries. A single word could be part of an image's name. Image names
# have no blanks, so each pattern contains a blank, or stands between a blank and the end.
_TEMPORARY_PULL_ERRORS = (
    r"\b429 |too many requests|toomanyrequests: |rate limit |QPS exceeded|i/o timeout|deadline exceeded|timed out|"
    r"TLS handshake timeout|connection (?:refused|reset)|no such host|server misbehaving|\b50[0-9] [A-Z]|: EOF\b|"
    r"network is unreachable|temporarily unavailable|no space left|registry is unavailable"
)
_PERMANENT_PULL_ERRORS = (
    r": not found\b|manifest unknown|name unknown|no match for platform|no matching manifest|does not exist|"
    r"pull access denied|access to the resource is denied|: denied\b|\b401 Unauthorized|: unauthorized\b|"
    r"\b403 Forbidden|authentication required|authorization failed|invalid username/password|"
    r"from registry 40[134] \(|no basic auth credentials|no image found in manifest list"
)
_TRUST_ERRORS = r"\bx509: |server gave HTTP response to HTTPS client"
_START_ERRORS = (
    r"executable file not found|no such file or directory|no command specified|permission denied|not a directory|"
    r"exec format error"
)
# The messages of the NVIDIA container toolkit and of containerd 2, also for a RuntimeClass such as `nvidia`.
_GPU_DRIVER_ERRORS = r"requirement error: unsatisfied condition"
_DEVICE_ERRORS = r'nvidia-container-cli: |unresolvable CDI devices|no runtime for "'
# The messages of ResourceQuota, LimitRange and the validation of pods in Kubernetes 1.36, and of policies.
_RESOURCE_ERRORS = (
    r"must specify (?:limits\.|requests\.|cpu|memory)|(?:maximum|minimum) \S+ usage per |limit to request ratio per |"
    r"must be (?:less than or )?equal to \S+ limit|Limit must be set for non overcommitable|: must be an integer|"
    r"has no (?:cpu|memory) limit|requests and (?:memory )?limits are required"
)
# The messages of ImagePolicyWebhook, and of usual policies of Gatekeeper and Kyverno.
_IMAGE_POLICY_ERRORS = (
    r"image policy webhook|invalid image repo|failed to verify (?:image|signature)|authorized repository|\bimage tag\b"
)
_VOLUME_ERRORS = (
    r"persistent ?volume|pvc\(s\)|volume node affinity conflict|max volume count|available volume zone|"
    r"enough free storage|binding volumes"
)
# The messages of the laptop cluster and of uv (0.13), with which it creates the environments.
_ENVIRONMENT_ERRORS = (
    r"the environment \S+ .*(?:has no folder bin|no interpreter found|no solution found|hash mismatch)"
)
_MISSING_CONFIG_ERRORS = (
    r"(?:secret|configmap) \S+ not found|couldn't find key |references non-existent|runAsNonRoot|non-numeric user"
)
# The reasons of pods that their kubelet, the scheduler or a controller ended, and those of the condition
# DisruptionTarget (Kubernetes 1.36: pkg/kubelet/{eviction,nodeshutdown,preemption,lifecycle}, pkg/util/node,
# pkg/controller/{podgc,tainteviction}, pkg/scheduler/framework/preemption, pkg/registry/core/pod/storage/eviction.go).
_DISRUPTION_REASONS = (
    "Evicted|Preempting|NodeLost|NodeShutdown|Shutdown|Terminated|UnexpectedAdmissionError|NodeAffinity|"
    "ContainerStatusUnknown|TopologyAffinityError|OutOf[a-z].*|PreemptionByScheduler|DeletionByTaintManager|DeletionByPodGC|"
    "EvictionByEvictionAPI|TerminationByKubelet|DeletionByDeviceTaintManager"
)
# The reasons of a Workload's conditions (Kueue 0.17 apis/kueue/v1beta2/workload_types.go).
_NO_QUOTA_REASONS, _QUEUE_STOPPED_REASONS = "Pending|Inadmissible", "(?:Local|Cluster)QueueStopped"
# The reasons and messages of each category; the first entry that matches counts.
_CATEGORY_PATTERNS: tuple[tuple[Category, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (category, re.compile(reasons), re.compile(messages, re.IGNORECASE))
    for category, reasons, messages in (
        (Category.QUOTA, _CREATION_REASONS, r"exceeded quota: |status unknown for quota: "),
        (Category.WEBHOOK, _CREATION_REASONS, r"failed calling webhook|failed to call webhook"),
        (Category.GANG, _CREATION_REASONS, r'no matches for kind "PodGroup"'),
        (Category.RESOURCES, _CREATION_REASONS, _RESOURCE_ERRORS),
        (Category.IMAGE_POLICY, _CREATION_REASONS, _IMAGE_POLICY_ERRORS),
        (Category.POD_SECURITY, _CREATION_REASONS, r"violates PodSecurity |security context constraint"),
        (Category.INVALID, _CREATION_REASONS, r" is invalid: |name is too long|no more than 63 characters"),
        (Category.REFUSED, _CREATION_REASONS, r" is forbidden: |denied the request"),
        (Category.PULLING, "ContainerCreating|PodInitializing", "."),
        (Category.ENVIRONMENT, f"{_PULL_REASONS}|{_START_REASONS}", _ENVIRONMENT_ERRORS),
        (Category.REGISTRY_TRUST, _PULL_REASONS, _TRUST_ERRORS),
        (Category.IMAGE_POLICY, _PULL_REASONS, r"Source image rejected: "),
        (Category.PULL, _PULL_REASONS, _TEMPORARY_PULL_ERRORS),
        (Category.OWN_IMAGE, _PULL_REASONS, rf"\bghcr\.io/trainjob/.*(?:{_PERMANENT_PULL_ERRORS})"),
        (Category.IMAGE, _PULL_REASONS, _PERMANENT_PULL_ERRORS),
        (Category.PULL, "ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable", ""),
        (Category.IMAGE, "ErrImageNeverPull", ""),
        (Category.IMAGE_POLICY, "SignatureValidationFailed", ""),
        (Category.IMAGE_NAME, "InvalidImageName", ""),
        (Category.CONFIGURATION, "CreateContainerConfigError|FailedMount", _MISSING_CONFIG_ERRORS),
        (Category.GPU_DRIVER, _START_REASONS, _GPU_DRIVER_ERRORS),
        (Category.DEVICE, f"{_START_REASONS}|{_SANDBOX_REASONS}", _DEVICE_ERRORS),
        (Category.SANDBOX, _SANDBOX_REASONS, ""),
        (Category.COMMAND, _START_REASONS, _START_ERRORS),
        (Category.CLAIM, _SCHEDULING_REASONS, r'persistentvolumeclaim "[^"]*" not found'),
        (Category.VOLUME, _SCHEDULING_REASONS, _VOLUME_ERRORS),
        (Category.UNSCHEDULABLE, f"{_SCHEDULING_REASONS}|SchedulingGated|SchedulerError|{NO_RESERVATION}", ""),
        (Category.VOLUME, "FailedMount|FailedMapVolume|FailedAttachVolume|FailedBinding|ProvisioningFailed", ""),
        (Category.CRASH_LOOP, "CrashLoopBackOff", ""),
        (Category.OUT_OF_MEMORY, "OOMKilled", ""),
        (Category.INFRASTRUCTURE, f"{_DISRUPTION_REASONS}|{EARLIER_JOBSET}", ""),
        (Category.DEADLINE, "DeadlineExceeded", ""),
        # The reasons of a JobSet (0.12 pkg/constants) and a Job (Kubernetes 1.36, batch/v1) for their own rules.
        (Category.POLICY, "FailJobSetFailurePolicyAction|PodFailurePolicy", ""),
        (Category.NO_QUEUE, _NO_QUOTA_REASONS, r"(?:Local|Cluster)Queue \S+ (?:doesn't exist|is inactive)"),
        (Category.NO_QUEUE, _QUEUE_STOPPED_REASONS, ""),
        (Category.BEYOND_QUEUE, _NO_QUOTA_REASONS, r" > maximum capacity \(|^couldn't .* unavailable in ClusterQueue"),
        (Category.DEACTIVATED, "Deactivated.*", ""),
    )
)


def find_category(reason: str, message: str = "") -> Category | None:
    """Return the category of a Kubernetes reason and its message, or None if unknown.

    Args:
        reason: reason of a condition, an event, or a container's state.
        message: message that belongs to the reason.
    """
    searched = message[:_MAX_SEARCHED]
    return next(
        (
            category
            for category, reasons, messages in _CATEGORY_PATTERNS
            if reasons.fullmatch(reason) and messages.search(searched)
        ),
        None,
    )
