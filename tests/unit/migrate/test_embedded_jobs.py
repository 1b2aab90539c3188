"""Tests of v1 jobs inside other objects: they are found, reported and converted in their place."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.migrate.v1_jobs import pytorch_job
from trainjob.manifest import Dialect
from trainjob_migrate import Launch
from trainjob_migrate.embedded_jobs import find_embedded_jobs
from trainjob_migrate.report import convert_all
from trainjob_migrate.sources import read_jobs

JOB = pytorch_job(command=["torchrun", "t.py"], args=["--lr=${trialParameters.lr}"])
UNNAMED = {key: value for key, value in JOB.items() if key != "metadata"}
REFERENCE = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "mnist", "uid": "1"}
NEEDS_RUNTIME = pytorch_job(command=["torchrun", "t.py"], workingDir="/src")


def owner(kind, version, **content):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "owner", "namespace": "ml"}, **content}


def config_map(text):
    return owner("ConfigMap", "v1", data={"job.yaml": text, "other": "x: 1"})


def workflow(text):
    step = {"name": "train", "resource": {"action": "create", "manifest": text}}
    return owner("Workflow", "argoproj.io/v1alpha1", spec={"templates": [step]})


# Objects with a job, and the job's place.
OWNERS = {
    "Experiment": (
        owner("Experiment", "kubeflow.org/v1beta1", spec={"trialTemplate": {"trialSpec": UNNAMED}}),
        "spec.trialTemplate.trialSpec",
    ),
    "ConfigMap": (config_map(yaml.safe_dump(JOB)), 'data["job.yaml"] document 1'),
    "ConfigMap in JSON": (config_map(json.dumps(JOB)), 'data["job.yaml"] document 1'),
    "Workflow": (workflow(yaml.safe_dump(JOB)), "spec.templates[0].resource.manifest document 1"),
    "another kind": (owner("Whatever", "example.com/v1", spec={"a": [{"b": JOB}]}), "spec.a[0].b"),
}


def convert_text(*documents):
    return convert_all(
        read_jobs(yaml.safe_dump_all(documents, sort_keys=False), "f"), dialect=Dialect.V2_2, launch=Launch.ENVIRONMENT
    )


@pytest.mark.parametrize("name", OWNERS)
def test_a_job_inside_another_object_is_found_and_reported(name):
    document, place = OWNERS[name]
    report = convert_text(document)
    [job] = report.jobs
    assert (job.origin, report.skipped, report.read_errors) == (f"f:1 {place}", {}, ())
    [finding] = [one for one in job.conversion.findings if one.topic == "embedded"]
    assert f"a part of {document['kind']} owner, at {place}" in finding.what
    assert "writes the object with the TrainJob in this place" in finding.done


@pytest.mark.parametrize("name", OWNERS)
def test_it_is_converted_in_its_place(name):
    document, place = OWNERS[name]
    [(found, [converted])] = convert_text(document).convert_owners()
    assert found.name == "owner"
    after = read_place(converted, place)
    assert (after["kind"], after["spec"]["runtimeRef"]["name"]) == ("TrainJob", "torch-distributed")
    assert after["spec"]["trainer"]["args"] == ["--lr=${trialParameters.lr}"]
    assert after.get("metadata") == (None if name == "Experiment" else {"name": "mnist"})
    assert with_place(converted, place) == with_place(document, place)  # the rest is unchanged


def read_place(document, place):
    text = place.removesuffix(" document 1")
    value = document
    for part in text.replace('["job.yaml"]', ".job_yaml").replace("[", ".").replace("]", "").split("."):
        value = value[int(part) if part.isdigit() else part.replace("_", ".")]
    return yaml.safe_load(value) if isinstance(value, str) else value


def with_place(document, place):
    """Return the object as JSON, with a mark in place of the job."""
    text = json.dumps(document)
    value = read_place(document, place)
    candidates = [json.dumps(value), *map(json.dumps, find_texts(document))]
    for candidate in candidates:
        text = text.replace(candidate, '"JOB"')
    return text


def find_texts(value):
    if isinstance(value, dict):
        return [text for inner in value.values() for text in find_texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in find_texts(inner)]
    return [value] if isinstance(value, str) and "kind" in value else []


def test_the_other_documents_of_a_text_are_kept():
    text = f"# first\na: 1\n---\n{yaml.safe_dump(JOB)}---\nb: 2 # last\n"
    [(_, [converted])] = convert_text(config_map(text)).convert_owners()
    new = converted["data"]["job.yaml"]
    assert [one.get("kind", one) for one in yaml.safe_load_all(new)] == [{"a": 1}, "TrainJob", {"b": 2}]
    assert "# first" in new
    assert "# last" in new


def test_a_generated_runtime_is_written_before_the_object():
    [(_, [runtime, converted])] = convert_text(owner("Whatever", "v1", spec={"x": NEEDS_RUNTIME})).convert_owners()
    reference = converted["spec"]["x"]["spec"]["runtimeRef"]
    assert (runtime["kind"], runtime["metadata"]["name"]) == (reference["kind"], reference["name"])
    assert runtime["metadata"]["namespace"] == "ml"
    assert "namespace" not in converted["spec"]["x"]["metadata"]


def test_a_job_in_an_appwrapper_is_refused_because_it_accepts_only_pod_templates():
    components = [{"template": JOB}, {"template": NEEDS_RUNTIME}]
    report = convert_text(owner("AppWrapper", "workload.codeflare.dev/v1beta2", spec={"components": components}))
    assert report.convert_owners() == []
    for job in report.jobs:
        assert (job.conversion.train_job, job.conversion.runtime) == (None, None)
        [blocker] = job.conversion.blockers
        assert blocker.path == "kind"
        assert blocker.reason.startswith(
            "an AppWrapper refuses a TrainJob, because it has no pod template; move the job"
        )
        [finding] = [one for one in job.conversion.findings if one.topic == "embedded"]
        assert finding.done == "Nothing is written."


def waiting_workflow(**step):
    job_step = {"name": "pytorchjob", "resource": {"manifest": yaml.safe_dump(JOB)}}
    return owner("Workflow", "argoproj.io/v1alpha1", spec={"templates": [job_step, {"name": "wait", **step}]})


@pytest.mark.parametrize(
    "step",
    [
        {"container": {"args": ["kubectl wait --for=condition=Succeeded pytorchjob/mnist -n ml"]}},
        {"script": {"source": 'api.get_namespaced_custom_object("kubeflow.org", "v1", ns, "pytorchjobs", name)'}},
        {"resource": {"successCondition": "status.replicaStatuses.Master.succeeded == 1"}},
        {"container": {"args": ["kubectl logs -l training.kubeflow.org/job-role=master"]}},
    ],
)
def test_other_texts_of_the_object_that_refer_to_the_job_are_reported(step):
    [job] = convert_text(waiting_workflow(**step)).jobs
    [finding] = [one for one in job.conversion.findings if one.topic == "embedded"]
    assert "conditions: see spec.templates[1]." in finding.why


@pytest.mark.parametrize("step", [{}, {"template": "mpijob"}, {"container": {"args": ["submit-pytorchjob"]}}])
def test_names_and_the_job_itself_are_no_references(step):
    document = waiting_workflow(**step) | {"status": {"stored": "pytorchjob/mnist"}}
    [job] = convert_text(document).jobs
    [finding] = [one for one in job.conversion.findings if one.topic == "embedded"]
    assert "see spec" not in finding.why


def test_the_loss_of_comments_of_a_text_is_reported():
    [in_text] = convert_text(config_map(yaml.safe_dump(JOB))).jobs
    [as_part] = convert_text(owner("Whatever", "v1", spec={"job": JOB})).jobs
    done = [one.conversion.findings[0].done for one in (in_text, as_part)]
    assert ["Comments of the text are lost" in one for one in done] == [True, False]


def test_unnamed_jobs_of_an_object_have_runtimes_of_different_names():
    jobs = [{key: value for key, value in NEEDS_RUNTIME.items() if key != "metadata"} for _ in range(3)]
    [(_, [*runtimes, converted])] = convert_text(owner("Whatever", "v1", spec={"jobs": jobs})).convert_owners()
    names = [one["metadata"]["name"] for one in runtimes]
    assert names == ["owner", "owner-2", "owner-3"]
    assert [one["spec"]["runtimeRef"]["name"] for one in converted["spec"]["jobs"]] == names


def test_an_object_with_a_refused_job_is_not_written():
    refused = pytorch_job(hostAliases="x")
    report = convert_text(owner("Whatever", "v1", spec={"a": JOB, "b": refused}))
    assert (len(report.jobs), len(report.refused), report.convert_owners()) == (2, 1, [])


@pytest.mark.parametrize("name", ["{{workflow.name}}", "${trialSpec.Name}", ""])
def test_a_name_with_a_placeholder_stays_in_the_object(name):
    job = {**JOB, "metadata": {"name": name}}
    [(_, [converted])] = convert_text(workflow(yaml.safe_dump(job))).convert_owners()
    assert read_place(converted, OWNERS["Workflow"][1])["metadata"]["name"] == name


def test_a_name_that_is_too_long_is_shortened_in_the_object():
    job = {**JOB, "metadata": {"name": "a" * 60}}
    report = convert_text(workflow(yaml.safe_dump(job)))
    [(_, [converted])] = report.convert_owners()
    new = read_place(converted, OWNERS["Workflow"][1])["metadata"]["name"]
    assert new == report.jobs[0].conversion.train_job["metadata"]["name"]
    assert len(new) <= 44


def test_a_text_that_cannot_be_read_is_reported():
    report = convert_text(workflow("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{ x }}: y\n"))
    [error] = report.read_errors
    assert error.origin == "f:1 spec.templates[0].resource.manifest"
    assert error.reason.startswith("in Workflow owner, it seems to be a template of kind PyTorchJob, with placeholders")
    assert error.reason.endswith("(no YAML in line 3, column 12); the lines are those of the text")
    assert report.skipped == {}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (workflow(yaml.safe_dump(JOB)), "spec.templates[0].resource.manifest"),
        (workflow(json.dumps(JOB)), "spec.templates[0].resource.manifest"),
        ({"kind": "List", "items": [JOB]}, "items[0]"),
        (OWNERS["Experiment"][0], "spec.trialTemplate.trialSpec"),
    ],
)
@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps])
def test_a_job_inside_an_object_in_a_text_is_reported(dump, document, place):
    report = convert_text(config_map(dump(document)))
    [error] = report.read_errors
    assert error.origin == 'f:1 data["job.yaml"]'
    assert f"in ConfigMap owner, the text has a v1 job inside another object, at {place}: convert" in error.reason


def test_a_job_in_an_object_without_a_kind_is_reported():
    text = yaml.safe_dump([{"name": "train", "manifest": yaml.safe_dump(JOB)}])
    [job] = read_jobs(text, "f").jobs
    finding = job.embedded.describe_place(is_refused=False)
    assert finding.what == "The job is a part of an object without a kind, at manifest document 1."


@pytest.mark.parametrize(
    "document",
    [
        config_map("kind: Deployment"),
        {**owner("Pod", "v1"), "metadata": {"ownerReferences": [REFERENCE]}},
        owner("HorizontalPodAutoscaler", "autoscaling/v2", spec={"scaleTargetRef": REFERENCE}),
        config_map("we had a PyTorchJob of kubeflow.org/v1 here"),
        owner("Workflow", "argoproj.io/v1alpha1", spec={}, status={"stored": JOB}),
        {
            **owner("A", "v1"),
            "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": str(JOB)}},
        },
    ],
)
def test_other_objects_are_skipped(document):
    report = convert_text(document)
    assert (report.jobs, report.read_errors, sum(report.skipped.values())) == ((), (), 1)


ANYTHING = st.recursive(
    st.none()
    | st.text(max_size=5)
    | st.just(yaml.safe_dump(JOB))
    | st.just(JOB)
    | st.just("kind: MPIJob kubeflow.org/v1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def count_jobs(value, *, top=True):
    if isinstance(value, dict):
        is_job = value.get("kind") == "PyTorchJob"
        return 1 if is_job else sum(count_jobs(inner, top=False) for inner in value.values())
    if isinstance(value, list):
        return sum(count_jobs(inner, top=False) for inner in value)
    return int(value == yaml.safe_dump(JOB))


@given(st.dictionaries(st.sampled_from(["a", "b", "c.d"]), ANYTHING, max_size=3))
def test_all_jobs_of_an_object_are_found(document):
    assert len(find_embedded_jobs(document).jobs) == count_jobs(document)
