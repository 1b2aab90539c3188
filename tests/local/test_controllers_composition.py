"""From a TrainJob to its JobSet: what was seen with the real Trainer 2.3.0 and JobSet 0.12.0."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob_local.controllers import jobset_rules, torchtune
from trainjob_local.controllers.composition import compose_jobset
from trainjob_local.controllers.patching import merged, with_runtime_patches
from trainjob_local.controllers.replicas import build_claims, build_job, build_service
from trainjob_local.controllers.resources import cpu_count, gpu_count
from trainjob_local.runtimes import stock_runtimes

RUNTIMES = {runtime["metadata"]["name"]: runtime for runtime in stock_runtimes()}
LLAMA, QWEN, TORCH = "torchtune-llama3.2-1b", "torchtune-qwen2.5-1.5b", "torch-distributed"
RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def job(runtime=TORCH, *, spec=None, **trainer):
    body = {"runtimeRef": {"name": runtime, "kind": "ClusterTrainingRuntime"}, **(spec or {})}
    if trainer:
        body["trainer"] = trainer
    return {"metadata": {"name": "job", "namespace": "ns", "uid": "u"}, "spec": body}


def composed(runtime=TORCH, **given):
    return compose_jobset(job(runtime, **given), RUNTIMES[runtime])


def node(jobset):
    replicated = next(one for one in jobset["spec"]["replicatedJobs"] if one["name"] == "node")
    return replicated["template"]["spec"]["template"]["spec"]["containers"][0]


def env(container):
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", [])}


@pytest.mark.parametrize(
    ("runtime", "model"),
    [(LLAMA, "llama3_2/1B"), ("mine-llama3.3-70b", "llama3_3/70B"), ("torch-distributed", ""), ("a-b-c-d", "")],
)
def test_the_model_is_in_the_runtimes_name(runtime, model):
    assert torchtune.model_of(runtime) == model


def test_resources_are_merged_with_the_runtimes():
    container = node(composed(LLAMA, command=["x"], resourcesPerNode={"requests": {"cpu": "1500m"}}))
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "1500m"}}
    assert env(container)["PET_NPROC_PER_NODE"] == "2"  # of the TrainJob's own resources, which name no GPU


def test_initializers():
    initializer = {
        "dataset": {"storageUri": "hf://a/b", "env": [{"name": "X", "value": "1"}]},
        "model": {"secretRef": {"name": "hf"}},
    }
    jobs = composed(LLAMA, spec={"initializer": initializer})["spec"]["replicatedJobs"]
    dataset, model = (one["template"]["spec"]["template"]["spec"]["containers"][0] for one in jobs[:2])
    assert env(dataset) == {"STORAGE_URI": "hf://a/b", "X": "1"}
    assert env(model) == {"STORAGE_URI": "hf://meta-llama/Llama-3.2-1B-Instruct"}
    assert model["envFrom"] == [{"secretRef": {"name": "hf"}}]


def test_a_composition_leaves_runtime_and_job_alone():
    runtime, trainjob = copy.deepcopy(RUNTIMES[LLAMA]), job(LLAMA, command=["tune", "run"], env=[{"name": "A"}])
    before = copy.deepcopy(trainjob)
    compose_jobset(trainjob, runtime)
    assert (runtime, trainjob) == (RUNTIMES[LLAMA], before)


# -- patches ----------------------------------------------------------------------------------------------------------


def pod_patch(spec, **more):
    template = {"spec": {"template": {"spec": spec}}, **more}
    return {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}}}


def test_patches_reach_every_level():
    patch = pod_patch(
        {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "volumes": [{"name": "w", "emptyDir": {}}],
            "containers": [{"name": "node", "volumeMounts": [{"name": "w", "mountPath": "/w"}]}],
        },
        metadata={"labels": {"l": "1"}},
    )
    patch["trainingRuntimeSpec"]["template"]["metadata"] = {"annotations": {"a": "1"}}
    jobset = composed(LLAMA, spec={"runtimePatches": [patch]})
    replicated = jobset["spec"]["replicatedJobs"]
    assert [one["name"] for one in replicated] == ["dataset-initializer", "model-initializer", "node"]
    assert replicated[2]["template"]["metadata"]["labels"]["l"] == "1"
    pod = replicated[2]["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"a": "b"}
    assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]] == ["/w", "/workspace"]
    assert pod["containers"][0]["image"].startswith("ghcr.io/kubeflow/trainer/torchtune-trainer")
    assert jobset["metadata"]["annotations"] == {"a": "1"}


def test_an_unknown_container_comes_first_and_an_unknown_job_too():
    patched = with_runtime_patches(
        RUNTIMES[TORCH]["spec"]["template"], [pod_patch({"containers": [{"name": "other"}]})]
    )
    pod = patched["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["containers"]] == ["other", "node"]
    stranger = pod_patch({})
    stranger["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["name"] = "zz"
    patched = with_runtime_patches(RUNTIMES[TORCH]["spec"]["template"], [stranger])
    assert [one["name"] for one in patched["spec"]["replicatedJobs"]] == ["zz", "node"]
    assert "containers: Invalid value" in jobset_rules.schema_problem(patched)


def test_a_later_patch_wins_and_null_takes_away():
    assert merged({"nodeSelector": {"a": "1", "b": "1"}}, {"nodeSelector": {"a": "2", "b": None}}) == {
        "nodeSelector": {"a": "2"}
    }
    assert merged({"tolerations": [1]}, {"tolerations": [2]}) == {"tolerations": [2]}


leaves = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3)


@given(leaves, leaves)
def test_a_merge_patch_is_idempotent(original, patch):
    once = merged(original, patch)
    assert merged(once, patch) == once == {**original, **patch}


# -- the JobSet's rules and children ----------------------------------------------------------------------------------


def jobset_of(runtime=LLAMA, name="job", **given):
    trainjob = job(runtime, **given)
    trainjob["metadata"]["name"] = name
    jobset = jobset_rules.with_defaults(compose_jobset(trainjob, RUNTIMES[runtime]))
    jobset["metadata"]["uid"] = "jobset-uid"
    return jobset


def test_defaults():
    spec = jobset_of(TORCH)["spec"]
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert (spec["successPolicy"], spec["startupPolicy"]) == ({"operator": "All"}, {"startupPolicyOrder": "AnyOrder"})
    replicated = spec["replicatedJobs"][0]
    assert (replicated["groupName"], replicated["replicas"]) == ("default", 1)
    assert replicated["template"]["spec"]["completionMode"] == "Indexed"
    assert replicated["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize(("runtime", "longest"), [(LLAMA, 33), (TORCH, 48)])
def test_names_may_be_so_long(runtime, longest):
    def problems(length):
        return jobset_rules.webhook_problems(jobset_of(runtime, "n" * length), lambda _name: None)

    assert problems(longest) == []
    assert "pod names generated for this JobSet will exceed 63 characters" in problems(longest + 1)[0]
    assert any("job names generated" in one for one in problems(62))


def test_jobs_have_the_labels_of_jobset():
    jobset = jobset_of()
    built = build_job(jobset, jobset["spec"]["replicatedJobs"][2], 0)
    prefix = "jobset.sigs.k8s.io/"
    expected = {
        "jobset-name": "job",
        "jobset-uid": "jobset-uid",
        "replicatedjob-name": "node",
        "restart-attempt": "0",
        "replicatedjob-replicas": "1",
        "global-replicas": "3",
        "job-index": "0",
        "job-key": "64ca095026fca6eea2c7f0499c416ed186a0cd75",
        "job-global-index": "2",
        "group-name": "default",
        "group-replicas": "3",
        "job-group-index": "2",
    }
    marks = {prefix + name: value for name, value in expected.items()}
    template = built["spec"]["template"]["metadata"]
    assert built["metadata"]["annotations"] == marks
    assert template["labels"] == template["annotations"] == marks
    assert built["metadata"]["labels"] == {**marks, "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = built["spec"]["template"]["spec"]
    assert pod["subdomain"] == "job"
    assert pod["volumes"] == [{"name": "initializer", "persistentVolumeClaim": {"claimName": "initializer-job"}}]


def test_service_and_claims():
    jobset = jobset_of()
    service = build_service(jobset)
    assert service is not None
    assert service["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": "job"}
    (claim,) = build_claims(jobset)
    assert claim["metadata"]["name"] == "initializer-job"
    assert claim["metadata"]["labels"] == {"jobset.sigs.k8s.io/jobset-name": "job"}
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    jobset["spec"]["volumeClaimPolicies"][0]["retentionPolicy"] = {"whenDeleted": "Retain"}
    assert "ownerReferences" not in build_claims(jobset)[0]["metadata"]
    jobset["spec"]["network"]["enableDNSHostnames"] = False
    assert build_service(jobset) is None


def test_counting_devices():
    assert gpu_count({"requests": {"nvidia.com/gpu": "3"}, "limits": {"nvidia.com/gpu": 4}}) == 3
    assert gpu_count({"limits": {"nvidia.com/mig-1g.5gb": 4}}) == 0
    assert cpu_count({"limits": {"cpu": "2500m"}}) == 3
