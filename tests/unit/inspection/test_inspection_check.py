"""Tests of the rows and the advice of `trainjob check` for the facts about a platform."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import shipped_manifests
from trainjob.errors import AdmissionRefused, NotFound, PermissionDenied, QuotaExceeded, ServerUnavailable
from trainjob.inspection.check import can_run_trainjobs, check_namespace
from trainjob.inspection.check_result import Grade
from trainjob.lifecycle import Resubmission, RunKey
from trainjob.lifecycle.prepared_job import prepare_job
from trainjob.manifest import Dialect, detect_dialect
from trainjob.spec import Placement, TrainJob
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


def test_a_healthy_platform_has_only_ok_rows():
    assert check_rows(HEALTHY_PLATFORM) == {
        "api server": ("ok", "https://cluster:6443 is Kubernetes v1.36.3; you are ann", ""),
        "trainer": ("ok", "Kubeflow Trainer 2.3.0", ""),
        "jobset": ("ok", "JobSet is installed", ""),
        "permissions": ("ok", "all required permissions are granted in namespace team", ""),
        "webhook": ("ok", "the Trainer's webhook responds", ""),
        "trainjob": ("ok", "a TrainJob on the runtime torch-distributed would be accepted", ""),
        "controller": ("ok", "the Trainer processes the TrainJobs of the namespace (1)", ""),
        "runtimes": ("ok", "torch-distributed", ""),
        "kueue": ("ok", "queues: gpu", ""),
        "storage": ("ok", "a PersistentVolumeClaim without a storage class gets fast; others: slow", ""),
        "claims": ("ok", "w (ReadWriteMany, Bound)", ""),
    }
    assert can_run_trainjobs(check_namespace(HEALTHY_PLATFORM, NOW))


NAMESPACE_MISSING = NotFound('can\'t create trainjobs in namespace team: namespaces "team" not found')
WEBHOOK_DOWN = ServerUnavailable(
    "https://cluster:6443 can't create trainjobs in namespace team now (500): failed calling webhook"
)
QUOTA_EXCEEDED = QuotaExceeded("can't create trainjobs in namespace team now: exceeded quota: few")
NO_RUNTIME = AdmissionRefused('refused: ClusterTrainingRuntime.trainer.kubeflow.org "torch-distributed" not found: x')
LACKS_FEATURES = "Kubeflow Trainer 2.1 lacks these features (each with the first version that has it): "
FEATURES_OF_2_2 = (
    "deadline (activeDeadlineSeconds): 2.2, placement.security_context (a security context of pods): 2.2, "
    "placement.container_security_context (a security context of containers): 2.2, "
    "runtime_patches (runtimePatches): 2.2"
)
LATER = "upgrade to Trainer 2.2 or later; until then TrainJobs that need them are refused"
PODS_ADVICE = "check whether it runs, `kubectl get pods -n kubeflow-system`"
GPUS = "requesting GPUs by default"
WEBHOOK_MISSING = (
    "an invalid TrainJob was accepted: the Trainer's webhook is not registered, so invalid TrainJobs never run"
)
OTHER = AdmissionRefused('admission webhook "other" denied the request: no')
OLD_CLAIM = object_named("old", spec={"storageClassName": "fast"}, status={"phase": "Pending"})
NEW_JOB = object_named("new", metadata={"creationTimestamp": "2026-01-01T11:59:30Z"})
JOB_WITHOUT_STATUS = object_named("stuck", metadata={"creationTimestamp": "2026-01-01T11:50:00Z"})
INACTIVE_QUEUE = object_named(
    "held", status={"conditions": [{"type": "Active", "status": "False", "message": "it is stopped"}]}
)
CASES = {
    "no user name": (
        "api server",
        {"user": ""},
        "ok",
        f"{SERVER} is Kubernetes v1.36.3; it does not report your user name",
        "",
    ),
    "no version published": ("trainer", {"trainer_version": ""}, "ok", "Kubeflow Trainer 2.2 or later", ""),
    "no fields published": (
        "trainer",
        {"spec_fields": frozenset()},
        "unknown",
        "the API server does not publish TrainJob's fields; Trainer 2.2 or later is assumed",
        "",
    ),
    "a later Trainer": (
        "trainer",
        {"trainer_version": "v2.4.0", "spec_fields": frozenset({"runtimePatches", "trainer", "scheduling"})},
        "ok",
        "Kubeflow Trainer 2.4.0; only a manifest can have its fields scheduling, which are newer than this release",
        "",
    ),
    "Trainer 2.1": (
        "trainer",
        {"trainer_version": "", "spec_fields": frozenset({"podTemplateOverrides"})},
        "warning",
        f"{LACKS_FEATURES}{FEATURES_OF_2_2}",
        LATER,
    ),
    "no JobSet": (
        "jobset",
        {"api_groups": GROUPS - {"jobset.x-k8s.io"}},
        "failed",
        "JobSet is not installed: TrainJobs are accepted, but never start",
        "install the version of JobSet that the Trainer's own manifests name",
    ),
    "permissions unknown": (
        "permissions",
        {"denied_permissions": FORBIDDEN},
        "unknown",
        "they can't be checked: no permission",
        "",
    ),
    "no webhook": (
        "webhook",
        {"invalid_trial_error": None},
        "warning",
        WEBHOOK_MISSING,
        "reinstall the Trainer",
    ),
    "another webhook": (
        "webhook",
        {"invalid_trial_error": OTHER},
        "unknown",
        f"another webhook or policy refused the request before the Trainer's webhook: {OTHER.message}",
        "",
    ),
    "webhook down": (
        "webhook",
        {"invalid_trial_error": WEBHOOK_DOWN},
        "failed",
        WEBHOOK_DOWN.message,
        f"no TrainJob can be created while it does not respond: {PODS_ADVICE}",
    ),
    "no permission to create": (
        "webhook",
        {"invalid_trial_error": FORBIDDEN},
        "unknown",
        "it can't be tested without the permission to create trainjobs",
        "",
    ),
    "no namespace": (
        "webhook",
        {"invalid_trial_error": NAMESPACE_MISSING},
        "failed",
        NAMESPACE_MISSING.message,
        "create the namespace, or select another one with --namespace",
    ),
    "quota": (
        "trainjob",
        {"trial_result": QUOTA_EXCEEDED},
        "warning",
        QUOTA_EXCEEDED.message,
        "wait until other workloads end, or have an administrator raise the ResourceQuota",
    ),
    "no stock runtime": (
        "trainjob",
        {"trial_result": NO_RUNTIME},
        "failed",
        NO_RUNTIME.message,
        "install the Trainer's runtimes, or select an existing one with runtime=...",
    ),
    "a policy": (
        "trainjob",
        {"trial_result": AdmissionRefused("policy: no")},
        "failed",
        "policy: no",
        "change the TrainJob as the message requires, or contact the owner of the webhook or policy",
    ),
    "no status": (
        "controller",
        {"jobs": [NEW_JOB, JOB_WITHOUT_STATUS]},
        "warning",
        "the Trainer has not processed stuck for more than 60 s",
        "run `trainjob describe stuck`, or check whether the Trainer runs, `kubectl get pods -n kubeflow-system`",
    ),
    "no runtimes": (
        "runtimes",
        {"runtimes": {"ClusterTrainingRuntime": []}},
        "failed",
        "no runtimes exist",
        "install the Trainer's runtimes",
    ),
    "runtimes hidden": (
        "runtimes",
        {"runtimes": {"ClusterTrainingRuntime": FORBIDDEN, "TrainingRuntime": []}},
        "unknown",
        "ClusterTrainingRuntimes can't be listed",
        "",
    ),
    "runtimes with details": (
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
        {"api_groups": GROUPS - {"kueue.x-k8s.io"}},
        "ok",
        "Kueue is not installed: TrainJobs start immediately and can't use a queue",
        "",
    ),
    "queues hidden": ("kueue", {"queues": FORBIDDEN}, "unknown", "the queues of namespace team can't be listed", ""),
    "no queue": (
        "kueue",
        {"queues": []},
        "warning",
        "namespace team has no LocalQueue: a TrainJob that names a queue never starts",
        "use no queue, or have a LocalQueue created in this namespace",
    ),
    "integration off": (
        "kueue",
        {"queued_trial_result": {"spec": {}}},
        "warning",
        "Kueue does not suspend a TrainJob that names a queue: its integration for TrainJobs is disabled",
        "add trainer.kubeflow.org/trainjob to integrations.frameworks of Kueue's configuration",
    ),
    "a queue with a topology": (
        "kueue",
        {
            "queues": [object_named("gpu", spec={"clusterQueue": "team"}), object_named("other")],
            "cluster_queues": [
                object_named(
                    "team",
                    spec={
                        "resourceGroups": [
                            {"flavors": [{"name": "h100", "resources": [{"name": "cpu", "nominalQuota": "8"}]}]},
                            {"flavors": [{"name": "any", "resources": [{"name": "memory", "nominalQuota": 64}]}]},
                        ]
                    },
                )
            ],
            "flavors": [object_named("h100", spec={"topologyName": "racks"}), object_named("any")],
            "topologies": [object_named("racks", spec={"levels": [{"nodeLabel": "a/block"}, {"nodeLabel": "a/rack"}]})],
        },
        "ok",
        "queues: gpu (h100: cpu 8, topology racks: a/block > a/rack; any: memory 64), other",
        "",
    ),
    "a queue whose quota is hidden": (
        "kueue",
        {"queues": [object_named("gpu", spec={"clusterQueue": "team"})], "cluster_queues": FORBIDDEN},
        "ok",
        "queues: gpu",
        "",
    ),
    "no queued trial": ("kueue", {"queued_trial_result": REFUSED}, "ok", "queues: gpu", ""),
    "queue inactive": (
        "kueue",
        {"queues": [QUEUE, INACTIVE_QUEUE]},
        "warning",
        "inactive: held: it is stopped",
        "use an active queue, or wait",
    ),
    "no storage API": (
        "storage",
        {"api_groups": GROUPS - {"storage.k8s.io"}},
        "unknown",
        "the API server does not serve storage classes",
        "",
    ),
    "storage hidden": ("storage", {"storage_classes": FORBIDDEN}, "unknown", "storage classes can't be listed", ""),
    "no default": (
        "storage",
        {"storage_classes": [object_named("slow")]},
        "warning",
        "no storage class is the default (existing: slow): a PVC without one stays Pending",
        "give workspaces a storage class, or have one marked as the default",
    ),
    "claims hidden": (
        "claims",
        {"claims": FORBIDDEN},
        "unknown",
        "the PersistentVolumeClaims of namespace team can't be listed",
        "",
    ),
    "claims unusable": (
        "claims",
        {"claims": [OLD_CLAIM, object_named("gone", status={"phase": "Lost"})]},
        "warning",
        "not usable: old (Pending), gone (Lost)",
        "`kubectl describe pvc` shows why one is Pending; one that is Lost has to be created again",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_problem_has_its_row_and_advice(case):
    name, change, *expected = case
    platform = replace(HEALTHY_PLATFORM, **change)
    assert check_rows(platform)[name] == tuple(expected)
    assert can_run_trainjobs(check_namespace(platform, NOW)) == (expected[0] != "failed")


@pytest.mark.parametrize(
    "change",
    [{}, {"storage_classes": FORBIDDEN}, {"api_groups": GROUPS - {"storage.k8s.io"}}],
    ids=["binds late", "classes hidden", "no storage API"],
)
def test_a_pending_claim_that_may_wait_for_its_first_pod_is_ok(change):
    claim = object_named(
        "w", spec={"storageClassName": "slow", "accessModes": ["ReadWriteOnce"]}, status={"phase": "Pending"}
    )
    assert check_rows(replace(HEALTHY_PLATFORM, claims=[claim], **change))["claims"] == (
        "ok",
        "w (ReadWriteOnce, Pending)",
        "on one node only: w; pods on several nodes need ReadWriteMany",
    )


def namespace_with(labels, **annotations):
    return object_named("team", metadata={"labels": labels, "annotations": annotations})


NO_ISTIO = 'add to each step: labels={"sidecar.istio.io/inject": "false"}'
INJECTING_NAMESPACES = {
    "istio-injection=enabled": (namespace_with({"istio-injection": "enabled"}), NO_ISTIO),
    "istio.io/rev=canary": (namespace_with({"istio.io/rev": "canary"}), NO_ISTIO),
    "linkerd.io/inject=enabled": (
        namespace_with({}, **{"linkerd.io/inject": "enabled"}),
        'add to each step: annotations={"linkerd.io/inject": "disabled"}',
    ),
}


@pytest.mark.parametrize(("mark", "case"), INJECTING_NAMESPACES.items(), ids=INJECTING_NAMESPACES)
def test_a_namespace_that_adds_sidecars_is_a_warning_with_the_line_to_add(mark, case):
    grade, text, advice = check_rows(replace(HEALTHY_PLATFORM, namespace_object=case[0]))["sidecars"]
    assert (grade, advice) == ("warning", case[1])
    assert text.startswith(f"the namespace adds a container to each pod ({mark}): ")


@pytest.mark.parametrize(
    "labels", [{"istio-injection": "disabled", "istio.io/rev": "canary"}, {"linkerd.io/inject": "disabled"}]
)
def test_a_namespace_without_injection_has_no_row(labels):
    assert "sidecars" not in check_rows(replace(HEALTHY_PLATFORM, namespace_object=namespace_with(labels)))


@pytest.mark.parametrize(
    ("level", "grade"), [("restricted", "warning"), ("baseline", "ok"), ("privileged", None), ("", None)]
)
def test_the_enforced_pod_security_level(level, grade):
    labels = {"pod-security.kubernetes.io/enforce": level}
    row = check_rows(replace(HEALTHY_PLATFORM, namespace_object=namespace_with(labels))).get("pod security")
    assert (row and row[0]) == grade


def test_the_advice_for_a_restricted_namespace_is_a_placement():
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    _, _, advice = check_rows(replace(HEALTHY_PLATFORM, namespace_object=namespace_with(labels)))["pod security"]
    placement = Placement(**ast.literal_eval(advice.partition("placement=")[2]))
    assert placement.container_security_context.capabilities == {"drop": ["ALL"]}


def quota(**spec):
    return object_named("team", spec=spec)


COMPUTE_QUOTA = quota(hard={"limits.memory": "64Gi", "requests.cpu": "16", "requests.nvidia.com/gpu": "8"})
DEFAULTS = object_named(
    "usual", spec={"limits": [{"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "1"}}]}
)


def test_the_nodes_on_which_runs_hung_are_counted():
    jobs = []
    for number, (run, nodes) in enumerate([("a", ["gpu-3"]), ("a", ["gpu-7", "gpu-3"]), ("b", ["gpu-7"]), ("c", [])]):
        key, earlier = RunKey("test", "dag", "tune", run), Resubmission(hung_on=tuple(nodes))
        jobs.append({"metadata": prepare_job(TrainJob(), key, "team", earlier=earlier).build_metadata(number + 1)})
    [row] = [row for row in check_namespace(replace(HEALTHY_PLATFORM, jobs=jobs), NOW) if row.name == "nodes"]
    assert (row.grade, row.text) == (Grade.WARNING, "trainings hung on gpu-7 (2 runs), gpu-3 (1 run)")
    assert "cordon it" in row.advice


def test_a_quota_that_requires_requests_and_limits_is_a_warning():
    assert check_rows(replace(HEALTHY_PLATFORM, resource_quotas=[COMPUTE_QUOTA]))["quotas"] == (
        "warning",
        (
            "ResourceQuotas refuse pods with a container that does not set their resources "
            "(team: requests.cpu, limits.memory)"
        ),
        (
            'add to each step: resources_per_node={"cpu": "4", "memory": "16Gi"}; other containers of a runtime '
            "need them in the runtime"
        ),
    )


@pytest.mark.parametrize(
    ("quotas", "ranges"),
    [
        ([quota(hard={"pods": "10", "requests.nvidia.com/gpu": "8"})], []),
        ([quota(hard={"cpu": "10"}, scopes=["BestEffort"])], []),
        ([COMPUTE_QUOTA], [DEFAULTS]),
    ],
    ids=["no compute resources", "some pods only", "LimitRange with defaults"],
)
def test_a_quota_that_requires_nothing_is_ok(quotas, ranges):
    platform = replace(HEALTHY_PLATFORM, resource_quotas=quotas, limit_ranges=ranges)
    assert check_rows(platform)["quotas"] == ("ok", "team", "")


def test_limit_ranges_are_a_warning_with_their_amounts():
    limits = {"type": "Container", "default": {"memory": "1Gi"}, "min": {"cpu": "100m"}, "max": {"memory": "8Gi"}}
    claims = {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}
    found = object_named("usual", spec={"limits": [limits, claims]})
    assert check_rows(replace(HEALTHY_PLATFORM, limit_ranges=[found]))["limits"] == (
        "warning",
        (
            "LimitRanges limit pods: Container by default at most memory: 1Gi; Container at least cpu: 100m; "
            "Container at most memory: 8Gi"
        ),
        'add to each step amounts in these limits: resources_per_node={"cpu": "4", "memory": "16Gi"}',
    )


def test_what_may_not_be_read_in_the_namespace_is_not_checked():
    hidden = dict.fromkeys(("namespace_object", "resource_quotas", "limit_ranges"), FORBIDDEN)
    rows = check_namespace(replace(HEALTHY_PLATFORM, **hidden), NOW)
    unknown = {row.name: row.text for row in rows if row.grade is Grade.UNKNOWN}
    assert set(unknown) == {"sidecars", "quotas", "limits"}
    assert "sidecars and Pod Security are not checked" in unknown["sidecars"]
    assert can_run_trainjobs(rows)


def test_without_a_trainer_there_are_no_rows_about_its_features():
    platform = replace(HEALTHY_PLATFORM, spec_fields=None)
    found = check_rows(platform)
    assert found["trainer"] == (
        "failed",
        "Kubeflow Trainer is not installed: the cluster does not serve TrainJobs",
        "install Kubeflow Trainer 2.0 or later with its CRDs, or connect to the cluster that has it",
    )
    assert found.keys() == {"api server", "trainer", "jobset", "permissions", "kueue", "storage", "claims"}


def test_a_webhook_that_is_down_hides_the_row_of_the_trial():
    assert "trainjob" not in check_rows(
        replace(HEALTHY_PLATFORM, invalid_trial_error=WEBHOOK_DOWN, trial_result=WEBHOOK_DOWN)
    )


def test_trainer_20_has_no_row_about_its_controller():
    """Trainer 2.0 sets no status before the end of a TrainJob."""
    old = replace(HEALTHY_PLATFORM, jobs=[JOB_WITHOUT_STATUS], spec_fields=frozenset({"podSpecOverrides"}))
    assert "controller" not in check_rows(old)


@pytest.mark.parametrize(("dialect", "field"), FIELDS.items())
def test_older_dialects_list_the_features_that_they_lack(dialect, field):
    assert detect_dialect({field}) is dialect
    grade, text, _ = check_rows(replace(HEALTHY_PLATFORM, trainer_version="", spec_fields=frozenset({field})))[
        "trainer"
    ]
    assert (grade, "deadline (activeDeadlineSeconds): 2.2" in text) == (
        ("ok", False) if dialect is Dialect.V2_2 else ("warning", True)
    )
    assert ("placement.affinity (affinity of pods): 2.1" in text) == (dialect is Dialect.V2_0)


# -- permissions -------------------------------------------------------------------------------------------------------


def test_the_table_of_permissions_equals_the_grants_of_the_manifests():
    in_namespace = {(each.group, each.resource, each.verb) for each in PERMISSIONS if not each.cluster_wide}
    in_cluster = {(each.group, each.resource, each.verb) for each in PERMISSIONS if each.cluster_wide}
    assert in_namespace == shipped_manifests.granted_permissions("person")
    assert in_cluster == shipped_manifests.granted_permissions("cluster", "ClusterRole")
    assert len(PERMISSIONS) == len(in_namespace) + len(in_cluster)


@given(st.lists(st.sampled_from(PERMISSIONS), unique=True, min_size=1))
def test_denied_permissions_are_listed_with_their_consequences_and_roles(denied):
    denied = [each for each in PERMISSIONS if each in denied]
    grade, text, advice = check_rows(replace(HEALTHY_PLATFORM, denied_permissions=denied))["permissions"]
    assert grade == (Grade.FAILED if any(each.required for each in denied) else Grade.WARNING).value
    assert text.startswith(f"you have no permission to {format_permissions(denied)}. Therefore: ")
    assert all(each.consequence in text for each in denied)
    assert ("manifests/person" in advice) == any(not each.cluster_wide for each in denied)
    assert ("manifests/cluster" in advice) == any(each.cluster_wide for each in denied)
    granted = {
        (group, resource, verb, role["kind"] == "ClusterRole")
        for role in build_roles(denied, "ann", "team")
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {(each.group, each.resource, each.verb, each.cluster_wide) for each in denied}


def test_a_service_account_is_bound_as_a_service_account():
    role, binding = build_roles(PERMISSIONS[:1], "system:serviceaccount:airflow:worker", "team")
    assert role["metadata"] == binding["metadata"] == {"name": "trainjob-missing", "namespace": "team"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "worker", "namespace": "airflow"}]
    (_, binding) = build_roles(PERMISSIONS[-1:], "ann", "team")
    assert (binding["kind"], binding["metadata"]) == ("ClusterRoleBinding", {"name": "trainjob-missing"})
    assert binding["subjects"] == [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}]
