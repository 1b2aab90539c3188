"""Manifests in each dialect of the API: pod patches, node counts, and refusals of unsupported features."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    BuiltinTrainer,
    CustomTrainerContainer,
    FineTune,
    InitializeDataset,
    Initializer,
    InvalidSpec,
    LoraConfig,
    Placement,
    Runtime,
    TorchTuneConfig,
    TrainJob,
)
from trainjob.manifest import Dialect, build_trainjob, detect_dialect, get_required_claim, to_trainjob

OLD = (Dialect.V2_0, Dialect.V2_1)
COMMON = {"runtimeRef", "initializer", "trainer", "suspend", "managedBy"}
# The fields of TrainJobSpec in pkg/apis/trainer/v1alpha1/trainjob_types.go of Trainer v2.0.1, v2.1.0, v2.3.0.
SPEC_FIELDS = {
    Dialect.V2_0: COMMON | {"labels", "annotations", "podSpecOverrides"},
    Dialect.V2_1: COMMON | {"labels", "annotations", "podTemplateOverrides"},
    Dialect.V2_2: COMMON | {"runtimePatches", "activeDeadlineSeconds"},
}
PATCHES = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
# Fields of a pod patch: PodSpecOverride, PodTemplateSpecOverride, PodSpecPatch of the same files.
_POD = {
    "serviceAccountName",
    "nodeSelector",
    "tolerations",
    "volumes",
    "initContainers",
    "containers",
    "schedulingGates",
}
POD_FIELDS = {
    Dialect.V2_0: _POD | {"targetJobs"},
    Dialect.V2_1: _POD | {"affinity", "imagePullSecrets"},
    Dialect.V2_2: _POD | {"affinity", "imagePullSecrets", "securityContext", "terminationGracePeriodSeconds"},
}

WORKSPACE = {"name": "workspace", "persistentVolumeClaim": {"claimName": "claim"}}
MOUNTS = [{"name": "workspace", "mountPath": "/workspace"}]
NODE = {"volumes": [WORKSPACE], "containers": [{"name": "node", "volumeMounts": MOUNTS}]}


def builtin_job(model="llama3.2-1b", **config):
    return TrainJob(trainer=BuiltinTrainer(config=TorchTuneConfig(**config)), runtime=f"torchtune-{model}")


def build_spec(step, dialect):
    return build_trainjob(to_trainjob(step), name="n", namespace="ns", dialect=dialect)["spec"]


def pod_patches(sent, dialect):
    """Return the pod patch of each replicated job, by its name."""
    if dialect is Dialect.V2_2:
        jobs = [
            job
            for patch in sent.get("runtimePatches", [])
            for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        ]
        return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}
    entries = sent.get("podSpecOverrides", sent.get("podTemplateOverrides", []))
    return {job["name"]: entry.get("spec", entry) for entry in entries for job in entry["targetJobs"]}


@pytest.mark.parametrize("dialect", Dialect)
def test_the_fields_of_the_spec_identify_the_dialect(dialect):
    assert detect_dialect(SPEC_FIELDS[dialect]) is dialect


def test_a_cluster_without_published_fields_has_the_newest_dialect():
    assert detect_dialect(()) is Dialect.V2_2


# -- pod patches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "field", "expected"),
    [
        (Dialect.V2_0, "podSpecOverrides", [{"targetJobs": [{"name": "node"}], **NODE}]),
        (Dialect.V2_1, "podTemplateOverrides", [{"targetJobs": [{"name": "node"}], "spec": NODE}]),
        (
            Dialect.V2_2,
            "runtimePatches",
            [
                {
                    "manager": "trainjob.dev/workflow-step",
                    "trainingRuntimeSpec": {
                        "template": {
                            "spec": {
                                "replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": NODE}}}}]
                            }
                        }
                    },
                }
            ],
        ),
    ],
)
def test_the_patch_for_a_workspace(dialect, field, expected):
    sent = build_spec(InitializeDataset(storage_uri="hf://a/b", workspace="claim"), dialect)
    assert sent[field] == expected
    assert [name for name in PATCHES if name in sent] == [field]


@pytest.mark.parametrize("dialect", Dialect)
def test_initializer_jobs_have_their_own_entries(dialect):
    """Older webhooks require the containers of an entry in all of its jobs; 2.0 allows each job in one entry only."""
    placement = Placement(node_selector={"zone": "a"}, service_account_name="trainer")
    step = FineTune(
        model="llama3.2-1b",
        config={"framework": "torchtune"},
        dataset="hf://a/b",
        model_initializer="hf://c/d",
        placement=placement,
    )
    placed = {"nodeSelector": {"zone": "a"}, "serviceAccountName": "trainer"}
    sent = build_spec(step, dialect)
    assert {
        name: {key: pod[key] for key in placed} for name, pod in pod_patches(sent, dialect).items()
    } == dict.fromkeys(("node", "dataset-initializer", "model-initializer"), placed)


@pytest.mark.parametrize("dialect", Dialect)
def test_pods_of_both_initializers_of_a_stock_torchtune_runtime_are_patched(dialect):
    placement = Placement(node_selector={"zone": "a"})
    job = TrainJob(runtime="torchtune-llama3.2-1b", initializer=Initializer(model="hf://a/b"), placement=placement)
    assert set(pod_patches(build_spec(job, dialect), dialect)) == {"node", "dataset-initializer", "model-initializer"}
    own = job.model_copy(update={"runtime": Runtime(name="own-llama3.2-1b")})
    assert set(pod_patches(build_spec(own, dialect), dialect)) == {"node", "model-initializer"}


@pytest.mark.parametrize("dialect", Dialect)
def test_without_a_patch_there_is_no_field_for_it(dialect):
    assert not set(PATCHES) & set(build_spec(TrainJob(placement=Placement()), dialect))


def test_newer_dialects_have_affinity_and_pull_secrets():
    placement = Placement(affinity={"nodeAffinity": {}}, image_pull_secrets=["pull"])
    for dialect in (Dialect.V2_1, Dialect.V2_2):
        pod = pod_patches(build_spec(TrainJob(placement=placement), dialect), dialect)["node"]
        assert pod == {"affinity": {"nodeAffinity": {}}, "imagePullSecrets": [{"name": "pull"}]}


RESTRICTED = Placement(
    security_context={"run_as_user": 1000, "fs_group": 0, "seccomp_profile": {"type": "RuntimeDefault"}},
    container_security_context={"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
)


@pytest.mark.parametrize("mounted", [False, True], ids=["no mounts", "mounts"])
def test_security_contexts_have_the_names_of_the_api(mounted):
    mounts = {"workspace": "claim"} if mounted else {}
    [pod] = pod_patches(build_spec(TrainJob(placement=RESTRICTED, **mounts), Dialect.V2_2), Dialect.V2_2).values()
    assert pod["securityContext"] == {"runAsUser": 1000, "fsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    [container] = pod["containers"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert ("volumeMounts" in container) is mounted


@pytest.mark.parametrize("dialect", OLD)
def test_older_dialects_refuse_security_contexts(dialect):
    with pytest.raises(InvalidSpec) as refused:
        build_spec(TrainJob(placement=RESTRICTED), dialect)
    assert [problem.field for problem in refused.value.problems] == [
        "placement.security_context",
        "placement.container_security_context",
    ]
    assert "needs Trainer 2.2 or later: upgrade it, or set it in a training runtime" in str(refused.value)


# -- TorchTune runtimes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "dialect", "nodes", "processes"),
    [
        ({}, Dialect.V2_2, None, None),
        ({}, Dialect.V2_1, 1, "auto"),
        ({}, Dialect.V2_0, 1, "auto"),
        ({"resources_per_node": {"gpu": 1}}, Dialect.V2_2, None, None),
        ({"resources_per_node": {"gpu": 1}}, Dialect.V2_1, 1, 1),
        ({"resources_per_node": {"gpu": 4}}, Dialect.V2_0, 1, 4),
        ({"resources_per_node": {"cpu": 4}}, Dialect.V2_0, 1, "auto"),
        ({"num_nodes": 1, "num_proc_per_node": 2}, Dialect.V2_1, 1, 2),
    ],
)
def test_older_webhooks_get_explicit_nodes_and_processes(config, dialect, nodes, processes):
    trainer = build_spec(builtin_job(**config), dialect)["trainer"]
    assert (trainer.get("numNodes"), trainer.get("numProcPerNode")) == (nodes, processes)


def test_trainer_2_0_gets_no_process_count_for_a_model_missing_in_its_list():
    trainer = build_spec(builtin_job("llama3.2-3b", resources_per_node={"gpu": 2}), Dialect.V2_0)["trainer"]
    assert trainer["numNodes"] == 1
    assert "numProcPerNode" not in trainer


@pytest.mark.parametrize("dialect", Dialect)
def test_false_flags_choose_no_recipe(dialect):
    """Up to Trainer 2.2 any `model.quantize_base` chooses QLoRA, also `=False`."""
    lora = LoraConfig(quantize_base=False, use_dora=False)
    arguments = build_spec(
        FineTune(model="llama3.2-1b", workspace="w", config={"framework": "torchtune", "peft_config": lora}), dialect
    )["trainer"]["args"]
    assert not [word for word in arguments if "quantize_base" in word or "use_dora" in word]
    if dialect is not Dialect.V2_0:
        arguments = build_spec(builtin_job(peft_config=lora), dialect)["trainer"]["args"]
        assert not [word for word in arguments if "quantize_base" in word or "use_dora" in word]


def test_other_trainers_are_the_same_in_every_dialect():
    job = TrainJob(
        trainer=CustomTrainerContainer(image="x", num_nodes=2, env={"A": "b"}, resources_per_node={"gpu": 1})
    )
    assert build_spec(job, Dialect.V2_0) == build_spec(job, Dialect.V2_1) == build_spec(job, Dialect.V2_2)


@pytest.mark.parametrize(
    ("runtime", "dialect", "claim"),
    [
        ("torchtune-llama3.2-1b", Dialect.V2_0, "torchtune-llama3.2-1b"),
        ("torchtune-llama3.2-1b", Dialect.V2_1, "torchtune-llama3.2-1b"),
        ("torchtune-llama3.2-1b", Dialect.V2_2, ""),
        ("retain-llama3.2-1b", Dialect.V2_1, ""),
        ("torch-distributed", Dialect.V2_0, ""),
        (Runtime(name="torchtune-llama3.2-1b", kind="TrainingRuntime"), Dialect.V2_1, ""),
    ],
)
def test_the_claim_that_stock_torchtune_runtimes_need(runtime, dialect, claim):
    assert get_required_claim(TrainJob(runtime=runtime), dialect) == claim


# -- unsupported features -----------------------------------------------------------------------------------------


def job_with_initializer(**sources):
    return TrainJob(runtime="torchtune-llama3.2-1b", initializer=Initializer(**sources))


def s3_initializer(uri="s3://bucket/path"):
    return {"storage_uri": uri}


@pytest.mark.parametrize(
    ("job", "field", "shown", "missing", "since"),
    [
        (TrainJob(deadline=timedelta(hours=2)), "deadline", "2:00:00", "activeDeadlineSeconds", "2.2"),
        (TrainJob(placement={"affinity": {"podAffinity": {}}}), "placement.affinity", "", "affinity", "2.1"),
        (
            TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]), watchdog={"avoid_nodes": True}),
            "watchdog.avoid_nodes",
            "",
            "affinity",
            "2.1",
        ),
        (
            TrainJob(placement={"image_pull_secrets": ["pull"]}),
            "placement.image_pull_secrets",
            "",
            "service_account_name",
            "2.1",
        ),
        (
            job_with_initializer(dataset=s3_initializer()),
            "initializer.dataset.storage_uri",
            "s3://bucket/path",
            "hf://",
            "2.1",
        ),
        (
            job_with_initializer(model=s3_initializer()),
            "initializer.model.storage_uri",
            "s3://bucket/path",
            "hf://",
            "2.1",
        ),
        (
            job_with_initializer(dataset={"storage_uri": "cache://a/b", "metadata_loc": "s3://m", "num_data_nodes": 2}),
            "initializer.dataset.storage_uri",
            "cache://a/b",
            "hf://",
            "2.1",
        ),
        (
            job_with_initializer(dataset={"storage_uri": "hf://a/b", "ignore_patterns": ["*.csv"]}),
            "initializer.dataset.ignore_patterns",
            "*.csv",
            "IGNORE_PATTERNS",
            "2.1",
        ),
        (
            job_with_initializer(model={"storage_uri": "hf://a/b", "ignore_patterns": ["*.h5"]}),
            "initializer.model.ignore_patterns",
            "*.h5",
            "IGNORE_PATTERNS",
            "2.1",
        ),
        (builtin_job(peft_config=LoraConfig()), "trainer.config.peft_config", "LoraConfig", "workspace", "2.1"),
        (
            builtin_job("llama3.2-3b", num_proc_per_node=2),
            "trainer.config.num_proc_per_node",
            "2",
            "omit it",
            "2.1",
        ),
        (builtin_job("qwen2.5-1.5b"), "runtime", "torchtune-qwen2.5-1.5b", "workspace", "2.1"),
    ],
)
def test_an_older_dialect_refuses_a_newer_feature(job, field, shown, missing, since):
    for dialect in Dialect:
        if dialect.value >= since:
            build_spec(job, dialect)
            continue
        with pytest.raises(InvalidSpec) as raised:
            build_spec(job, dialect)
        [problem] = raised.value.problems
        assert problem.field == field
        assert shown in problem.value
        for words in (f"has API {dialect.value}", f"needs Trainer {since} or later", missing):
            assert words in problem.allowed


def test_an_error_lists_all_unsupported_features():
    job = TrainJob(
        deadline=timedelta(hours=2),
        placement={"affinity": {"nodeAffinity": {}}, "image_pull_secrets": ["pull"]},
        runtime_patches=[{"manager": "example.org/team"}],
    )
    with pytest.raises(InvalidSpec) as raised:
        build_spec(job, Dialect.V2_0)
    assert {problem.field for problem in raised.value.problems} == {
        "deadline",
        "placement.affinity",
        "placement.image_pull_secrets",
        "runtime_patches",
    }


def test_default_ignore_patterns_are_accepted_for_trainer_2_0():
    build_spec(job_with_initializer(dataset="hf://a/b", model="hf://c/d"), Dialect.V2_0)


# -- any supported request ----------------------------------------------------------------------------------------

jobs = st.builds(
    TrainJob,
    trainer=st.sampled_from(
        [
            CustomTrainerContainer(image="x", command=["run"], env={"A": "b"}),
            BuiltinTrainer(config=TorchTuneConfig(epochs=1)),
            BuiltinTrainer(config=TorchTuneConfig(resources_per_node={"gpu": 2}, peft_config=LoraConfig())),
        ]
    ),
    runtime=st.sampled_from(["torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b"]),
    initializer=st.none()
    | st.builds(Initializer, dataset=st.sampled_from([None, "hf://a/b", "s3://a/b"]), model=st.just("hf://c/d")),
    placement=st.none()
    | st.builds(
        Placement,
        node_selector=st.sampled_from([{}, {"zone": "a"}]),
        tolerations=st.lists(st.just({"key": "gpu", "operator": "Exists"}), max_size=1),
        affinity=st.sampled_from([{}, {"nodeAffinity": {}}]),
        service_account_name=st.sampled_from(["", "trainer"]),
        image_pull_secrets=st.lists(st.just("pull"), max_size=1),
        security_context=st.sampled_from([None, {"run_as_non_root": True}]),
        container_security_context=st.sampled_from([None, {"privileged": False}]),
    ),
    volumes=st.sampled_from([(), ({"name": "a", "source": {"emptyDir": {}}, "mount_path": "/a"},)]),
    managed_by=st.none() | st.just("kueue.x-k8s.io/multikueue"),
    deadline=st.none() | st.just(timedelta(minutes=1)),
)


@given(jobs, st.sampled_from(Dialect))
def test_only_fields_of_the_dialect_are_sent(job, dialect):
    try:
        sent = build_spec(job, dialect)
    except InvalidSpec:
        assert dialect in OLD
        return
    assert set(sent) <= SPEC_FIELDS[dialect]
    for pod in pod_patches(sent, dialect).values():
        assert set(pod) <= POD_FIELDS[dialect]


@given(jobs, st.sampled_from(OLD))
def test_all_dialects_patch_the_pods_equally(job, dialect):
    """If an older dialect supports a request, it patches the pods like the newest dialect."""
    try:
        older = build_spec(job, dialect)
    except InvalidSpec:
        return
    newest = build_spec(job, Dialect.V2_2)
    plain = {
        name: {key: value for key, value in pod.items() if key != "targetJobs"}
        for name, pod in pod_patches(older, dialect).items()
    }
    assert plain == pod_patches(newest, Dialect.V2_2)
    sizes = {"numNodes", "numProcPerNode"}
    assert {k: v for k, v in older.get("trainer", {}).items() if k not in sizes} == {
        k: v for k, v in newest.get("trainer", {}).items() if k not in sizes
    }
