"""What is said of a cluster's facts, and what is advised."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import shipped_manifests
from trainjob.errors import AdmissionRefused, NotFound, PermissionDenied, QuotaExceeded, ServerUnavailable
from trainjob.inspection.check import Grade, can_run_trainjobs, check_namespace
from trainjob.manifest import Dialect, detect_dialect
from trainjob.status.permissions import PERMISSIONS, build_roles, format_permissions
from trainjob.status.platform_facts import PlatformFacts
from trainjob.status.runtime_description import RuntimeDescription, RuntimeStep

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
GROUPS = frozenset({"trainer.kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io", "storage.k8s.io"})
FIELDS = {Dialect.V2_0: "podSpecOverrides", Dialect.V2_1: "podTemplateOverrides", Dialect.V2_2: "runtimePatches"}
FORBIDDEN = PermissionDenied("no permission")
REFUSED = AdmissionRefused('admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: no')
DEFAULT = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


def object_named(name, **parts):
    return {**parts, "metadata": {"name": name, **parts.get("metadata", {})}}


def runtime(name, devices=None, *, deprecated=False):
    step = RuntimeStep("node", "trainer", ("node",), "image", devices or {})
    return RuntimeDescription(name, "ClusterTrainingRuntime", "", "torch", "torch", 1, deprecated, "", (step,))


QUEUE = object_named("gpu", status={"conditions": [{"type": "Active", "status": "True", "message": "Can submit"}]})
SERVER = "https://cluster:6443"
HEALTHY_PLATFORM = PlatformFacts(
    server=SERVER,
    namespace="team",
    kubernetes_version="v1.36.3",
    user="ann",
    api_groups=GROUPS,
    trainer_version="v2.3.0",
    spec_fields=frozenset({"runtimePatches"}),
    invalid_trial_error=REFUSED,
    trial_result={"spec": {}},
    queued_trial_result={"spec": {"suspend": True}},
    runtimes={"ClusterTrainingRuntime": [runtime("torch-distributed")], "TrainingRuntime": []},
    jobs=[object_named("tune", status={"jobsStatus": []})],
    queues=[QUEUE],
    storage_classes=[
        object_named("fast", metadata=DEFAULT),
        object_named("slow", volumeBindingMode="WaitForFirstConsumer"),
    ],
    claims=[object_named("w", spec={"accessModes": ["ReadWriteMany"]}, status={"phase": "Bound"})],
)


def check_rows(platform):
    return {row.name: (row.grade.value, row.text, row.advice) for row in check_namespace(platform, NOW)}


def test_a_whole_platform():
    assert check_rows(HEALTHY_PLATFORM) == {
        "api server": ("ok", "https://cluster:6443 is Kubernetes v1.36.3; you are ann", ""),
        "trainer": ("ok", "Kubeflow Trainer 2.3.0", ""),
        "jobset": ("ok", "JobSet is installed", ""),
        "permissions": ("ok", "all that is needed in namespace team", ""),
        "webhook": ("ok", "the Trainer's webhook answers", ""),
        "trainjob": ("ok", "one on the runtime torch-distributed would be accepted", ""),
        "controller": ("ok", "the TrainJobs of the namespace have a status: 1", ""),
        "runtimes": ("ok", "torch-distributed", ""),
        "kueue": ("ok", "queues: gpu", ""),
        "storage": ("ok", "a claim that names no storage class gets fast; others: slow", ""),
        "claims": ("ok", "w (ReadWriteMany, Bound)", ""),
    }
    assert can_run_trainjobs(check_namespace(HEALTHY_PLATFORM, NOW))


NAMESPACE_MISSING = NotFound('can\'t create trainjobs in namespace team: namespaces "team" not found')
WEBHOOK_DOWN = ServerUnavailable(
    "https://cluster:6443 can't create trainjobs in namespace team now (500): failed calling webhook"
)
QUOTA_EXCEEDED = QuotaExceeded("can't create trainjobs in namespace team now: exceeded quota: few")
NO_RUNTIME = AdmissionRefused('refused: ClusterTrainingRuntime.trainer.kubeflow.org "torch-distributed" not found: x')
LATER = "upgrade Kubeflow Trainer to 2.2 or later; until then what needs one of these is refused"
PODS_ADVICE = "see whether it runs, `kubectl get pods -n kubeflow-system`"
GPUS = "with GPUs unless told otherwise"
WEBHOOK_MISSING = "a TrainJob that is wrong was accepted: the Trainer's webhook is not registered, and such a one hangs"
OTHER = AdmissionRefused('admission webhook "other" denied the request: no')
OLD_CLAIM = object_named("old", spec={"storageClassName": "fast"}, status={"phase": "Pending"})
FRESH = object_named("new", metadata={"creationTimestamp": "2026-01-01T11:59:30Z"})
SILENT = object_named("mute", metadata={"creationTimestamp": "2026-01-01T11:50:00Z"})
HELD = object_named("held", status={"conditions": [{"type": "Active", "status": "False", "message": "it is stopped"}]})
CASES = {
    "no name": ("api server", {"user": ""}, "ok", f"{SERVER} is Kubernetes v1.36.3; it does not tell who you are", ""),
    "version untold": ("trainer", {"trainer": ""}, "ok", "Kubeflow Trainer 2.2 or later", ""),
    "API untold": (
        "trainer",
        {"spec_fields": frozenset()},
        "unknown",
        "its API is not told: it is taken for that of Trainer 2.2 or later",
        "",
    ),
    "Trainer 2.1": (
        "trainer",
        {"trainer": "", "spec_fields": frozenset({"podTemplateOverrides"})},
        "warning",
        "Kubeflow Trainer 2.1, which is old; each with the version that has it: deadline (activeDeadlineSeconds): 2.2",
        LATER,
    ),
    "no JobSet": (
        "jobset",
        {"groups": GROUPS - {"jobset.x-k8s.io"}},
        "failed",
        "JobSet is not installed: TrainJobs are accepted, and nothing runs",
        "install the version of JobSet that the Trainer's own manifests name",
    ),
    "rights untold": ("permissions", {"denied": FORBIDDEN}, "unknown", "they can't be asked: no permission", ""),
    "no webhook": (
        "webhook",
        {"refusal": None},
        "warning",
        WEBHOOK_MISSING,
        "install the Trainer anew",
    ),
    "another webhook": (
        "webhook",
        {"refusal": OTHER},
        "unknown",
        f"another rule came before the Trainer's webhook: {OTHER.message}",
        "",
    ),
    "webhook down": (
        "webhook",
        {"refusal": WEBHOOK_DOWN},
        "failed",
        WEBHOOK_DOWN.message,
        f"no TrainJob can be created while it does not answer: {PODS_ADVICE}",
    ),
    "may not create": (
        "webhook",
        {"refusal": FORBIDDEN},
        "unknown",
        "it can't be tried without the right to create trainjobs",
        "",
    ),
    "no namespace": (
        "webhook",
        {"refusal": NAMESPACE_MISSING},
        "failed",
        NAMESPACE_MISSING.message,
        "create the namespace, or name another one with --namespace",
    ),
    "quota": (
        "trainjob",
        {"trial": QUOTA_EXCEEDED},
        "warning",
        QUOTA_EXCEEDED.message,
        "wait for others to end, or have the quota raised",
    ),
    "no stock runtime": (
        "trainjob",
        {"trial": NO_RUNTIME},
        "failed",
        NO_RUNTIME.message,
        "install the Trainer's runtimes, or name one that is there: runtime=...",
    ),
    "a policy": (
        "trainjob",
        {"trial": AdmissionRefused("policy: no")},
        "failed",
        "policy: no",
        "ask who set this rule up what it wants of a TrainJob",
    ),
    "silence": (
        "controller",
        {"jobs": [FRESH, SILENT]},
        "warning",
        "nothing has become of mute in more than 60 s",
        "`trainjob describe mute` says why, or see whether the Trainer runs, `kubectl get pods -n kubeflow-system`",
    ),
    "no runtimes": (
        "runtimes",
        {"runtimes": {"ClusterTrainingRuntime": []}},
        "failed",
        "there are none",
        "install the Trainer's runtimes",
    ),
    "runtimes hidden": (
        "runtimes",
        {"runtimes": {"ClusterTrainingRuntime": FORBIDDEN, "TrainingRuntime": []}},
        "unknown",
        "ClusterTrainingRuntimes can't be listed",
        "",
    ),
    "runtimes in words": (
        "runtimes",
        {
            "runtimes": {
                "ClusterTrainingRuntime": FORBIDDEN,
                "TrainingRuntime": [runtime("a", {"cpu": "2", "nvidia.com/gpu": "4"}), runtime("b", deprecated=True)],
            }
        },
        "ok",
        f"a, b; deprecated: b; {GPUS}: a (nvidia.com/gpu: 4); ClusterTrainingRuntimes can't be listed",
        "",
    ),
    "no Kueue": (
        "kueue",
        {"groups": GROUPS - {"kueue.x-k8s.io"}},
        "ok",
        "Kueue is not installed: TrainJobs start at once, and name no queue",
        "",
    ),
    "queues hidden": ("kueue", {"queues": FORBIDDEN}, "unknown", "the queues of namespace team can't be listed", ""),
    "no queue": (
        "kueue",
        {"queues": []},
        "warning",
        "namespace team has no LocalQueue: who names one waits for ever",
        "name no queue, or have a LocalQueue made in this namespace",
    ),
    "integration off": (
        "kueue",
        {"queued": {"spec": {}}},
        "warning",
        "Kueue lets a TrainJob that names a queue start at once: its integration for TrainJobs is off",
        "add trainer.kubeflow.org/trainjob to integrations.frameworks of Kueue's configuration",
    ),
    "queued untried": ("kueue", {"queued": REFUSED}, "ok", "queues: gpu", ""),
    "queue held": (
        "kueue",
        {"queues": [QUEUE, HELD]},
        "warning",
        "inactive: held: it is stopped",
        "name a queue that is active, or wait",
    ),
    "no storage told": (
        "storage",
        {"groups": GROUPS - {"storage.k8s.io"}},
        "unknown",
        "the cluster tells no storage classes",
        "",
    ),
    "storage hidden": ("storage", {"classes": FORBIDDEN}, "unknown", "storage classes can't be listed", ""),
    "no default": (
        "storage",
        {"classes": [object_named("slow")]},
        "warning",
        "no storage class is the default (there are: slow): a claim that names none stays Pending",
        "give workspaces a storage class, or have one marked as the default",
    ),
    "claims hidden": ("claims", {"claims": FORBIDDEN}, "unknown", "those of namespace team can't be listed", ""),
    "claims in trouble": (
        "claims",
        {"claims": [OLD_CLAIM, object_named("gone", status={"phase": "Lost"})]},
        "warning",
        "not usable: old (Pending), gone (Lost)",
        "`kubectl describe pvc` says why a claim is Pending; one whose volume is Lost has to be made anew",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_thing_is_wrong(case):
    name, change, *expected = case
    platform = replace(HEALTHY_PLATFORM, **change)
    assert check_rows(platform)[name] == tuple(expected)
    assert can_run_trainjobs(check_namespace(platform, NOW)) == (expected[0] != "failed")


@pytest.mark.parametrize(
    "change", [{}, {"classes": FORBIDDEN}, {"groups": GROUPS - {"storage.k8s.io"}}], ids=["patient", "hidden", "untold"]
)
def test_a_claim_that_may_wait_for_its_first_pod_is_as_it_should_be(change):
    claim = object_named(
        "w", spec={"storageClassName": "slow", "accessModes": ["ReadWriteOnce"]}, status={"phase": "Pending"}
    )
    assert check_rows(replace(HEALTHY_PLATFORM, claims=[claim], **change))["claims"] == (
        "ok",
        "w (ReadWriteOnce, Pending)",
        "",
    )


def test_what_is_asked_of_a_trainer_is_not_told_without_one():
    platform = replace(HEALTHY_PLATFORM, spec_fields=None)
    found = check_rows(platform)
    assert found["trainer"] == (
        "failed",
        "Kubeflow Trainer is not installed: no TrainJobs are served",
        "install Kubeflow Trainer 2.0 or later with its CRDs, or connect to the cluster that has it",
    )
    assert found.keys() == {"api server", "trainer", "jobset", "permissions", "kueue", "storage", "claims"}


def test_where_the_webhook_is_down_the_trial_says_no_more():
    assert "trainjob" not in check_rows(replace(HEALTHY_PLATFORM, refusal=WEBHOOK_DOWN, trial=WEBHOOK_DOWN))


def test_a_trainer_without_a_status_is_not_suspected():
    """2.0 tells none before the end."""
    old = replace(HEALTHY_PLATFORM, jobs=[SILENT], spec_fields=frozenset({"podSpecOverrides"}))
    assert "controller" not in check_rows(old)


@pytest.mark.parametrize(("dialect", "field"), FIELDS.items())
def test_what_each_dialect_has_not_got(dialect, field):
    assert detect_dialect({field}) is dialect
    grade, text, _ = check_rows(replace(HEALTHY_PLATFORM, trainer="", spec_fields=frozenset({field})))["trainer"]
    assert (grade, "deadline (activeDeadlineSeconds): 2.2" in text) == (
        ("ok", False) if dialect is Dialect.V2_2 else ("warning", True)
    )
    assert ("placement.affinity (affinity of pods): 2.1" in text) == (dialect is Dialect.V2_0)


# -- rights ------------------------------------------------------------------------------------------------------------


def test_the_table_is_what_the_manifests_grant():
    within = {(right.group, right.resource, right.verb) for right in PERMISSIONS if not right.cluster_wide}
    beyond = {(right.group, right.resource, right.verb) for right in PERMISSIONS if right.cluster_wide}
    assert within == shipped_manifests.granted_rights("person")
    assert beyond == shipped_manifests.granted_rights("cluster", "ClusterRole")
    assert len(PERMISSIONS) == len(within) + len(beyond)


@given(st.lists(st.sampled_from(PERMISSIONS), unique=True, min_size=1))
def test_what_is_denied_is_told_with_what_it_costs_and_granted(denied):
    denied = [right for right in PERMISSIONS if right in denied]
    grade, text, advice = check_rows(replace(HEALTHY_PLATFORM, denied=denied))["permissions"]
    assert grade == (Grade.FAILED if any(right.required for right in denied) else Grade.WARNING).value
    assert text.startswith(f"you may not {format_permissions(denied)}. So: ")
    assert all(right.consequence in text for right in denied)
    assert ("manifests/person" in advice) == any(not right.cluster_wide for right in denied)
    assert ("manifests/cluster" in advice) == any(right.cluster_wide for right in denied)
    granted = {
        (group, resource, verb, role["kind"] == "ClusterRole")
        for role in build_roles(denied, "ann", "team")
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {(right.group, right.resource, right.verb, right.cluster_wide) for right in denied}


def test_a_service_account_is_bound_as_one():
    role, binding = build_roles(PERMISSIONS[:1], "system:serviceaccount:airflow:worker", "team")
    assert role["metadata"] == binding["metadata"] == {"name": "trainjob-missing", "namespace": "team"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "worker", "namespace": "airflow"}]
    (_, binding) = build_roles(PERMISSIONS[-1:], "ann", "team")
    assert (binding["kind"], binding["metadata"]) == ("ClusterRoleBinding", {"name": "trainjob-missing"})
    assert binding["subjects"] == [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}]
