"""Tests of the JobSet of a TrainJob, with results of the real Trainer 2.3.0 and JobSet 0.12.0."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob_local.controllers import jobset_rules, torchtune
from trainjob_local.controllers.composition import build_jobset
from trainjob_local.controllers.jobset_children import build_job
from trainjob_local.controllers.patching import strategic_merge
from trainjob_local.runtimes import stock_runtimes

RUNTIMES = {runtime["metadata"]["name"]: runtime for runtime in stock_runtimes()}
LLAMA, TORCH = "torchtune-llama3.2-1b", "torch-distributed"


def job(runtime=TORCH, *, spec=None, **trainer):
    body = {"runtimeRef": {"name": runtime, "kind": "ClusterTrainingRuntime"}, **(spec or {})}
    if trainer:
        body["trainer"] = trainer
    return {"metadata": {"name": "job", "namespace": "ns", "uid": "u"}, "spec": body}


@pytest.mark.parametrize(
    ("runtime", "model"),
    [(LLAMA, "llama3_2/1B"), ("mine-llama3.3-70b", "llama3_3/70B"), ("torch-distributed", ""), ("a-b-c-d", "")],
)
def test_the_model_is_in_the_runtimes_name(runtime, model):
    assert torchtune.parse_model(runtime) == model


def test_a_composition_does_not_change_runtime_and_job():
    runtime, trainjob = copy.deepcopy(RUNTIMES[LLAMA]), job(LLAMA, command=["tune", "run"], env=[{"name": "A"}])
    before = copy.deepcopy(trainjob)
    build_jobset(trainjob, runtime)
    assert (runtime, trainjob) == (RUNTIMES[LLAMA], before)


# -- patches ----------------------------------------------------------------------------------------------------------


def test_a_patch_replaces_values_and_null_removes_them():
    assert strategic_merge({"nodeSelector": {"a": "1", "b": "1"}}, {"nodeSelector": {"a": "2", "b": None}}) == {
        "nodeSelector": {"a": "2"}
    }
    assert strategic_merge({"tolerations": [1]}, {"tolerations": [2]}) == {"tolerations": [2]}


leaves = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3)


@given(leaves, leaves)
def test_a_merge_patch_is_idempotent(original, patch):
    once = strategic_merge(original, patch)
    assert strategic_merge(once, patch) == once == {**original, **patch}


# -- the JobSet's rules and children ----------------------------------------------------------------------------------


def compose_complete_jobset(runtime=LLAMA, name="job", **given):
    trainjob = job(runtime, **given)
    trainjob["metadata"]["name"] = name
    jobset = jobset_rules.with_defaults(build_jobset(trainjob, RUNTIMES[runtime]))
    jobset["metadata"]["uid"] = "jobset-uid"
    return jobset


def test_a_jobset_has_the_defaults_of_its_webhook():
    spec = compose_complete_jobset(TORCH)["spec"]
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert (spec["successPolicy"], spec["startupPolicy"]) == ({"operator": "All"}, {"startupPolicyOrder": "AnyOrder"})
    replicated = spec["replicatedJobs"][0]
    assert (replicated["groupName"], replicated["replicas"]) == ("default", 1)
    assert replicated["template"]["spec"]["completionMode"] == "Indexed"
    assert replicated["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_jobs_have_the_labels_of_jobset():
    jobset = compose_complete_jobset()
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
