"""Tests of reading jobs from texts with other objects and unreadable documents."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainjob.manifest import Dialect
from trainjob_migrate import Launch
from trainjob_migrate.report import convert_all
from trainjob_migrate.sources import FoundJob, Sources, read_jobs


def job(name, kind="PyTorchJob", version="kubeflow.org/v1"):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {}}


def job_names(sources):
    return [found.job["metadata"]["name"] for found in sources.jobs]


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "--- x\n---\n"}}
NOTEBOOK = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": {"name": "n"}}
TRAIN_JOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "t"}}
BROKEN = 'name: "{{ .Values.name }}\nspec: {{- toYaml .Values.spec }}\n'  # a chart's template


def test_jobs_of_every_kind_are_found_and_other_objects_are_counted():
    documents = [
        job("a"),
        CONFIG_MAP,
        job("b", "MPIJob", "kubeflow.org/v2beta1"),
        NOTEBOOK,
        TRAIN_JOB,
        job("c", "TFJob"),
    ]
    found = read_jobs(yaml.safe_dump_all(documents), "jobs.yaml")
    assert job_names(found) == ["a", "b", "c"]
    assert found.skipped == {"ConfigMap": 1, "Notebook": 1, "TrainJob": 1}
    assert not found.read_errors


@pytest.mark.parametrize(
    ("version", "group"),
    [("batch.example.org/v1", "batch.example.org"), ("xgboostjob.kubeflow.org/v1alpha1", "xgboostjob.kubeflow.org")],
)
def test_a_kind_of_the_operator_in_another_group_is_counted_with_its_group(version, group):
    found = read_jobs(yaml.safe_dump(job("a", "MPIJob", version)), "jobs.yaml")
    assert not found.jobs
    assert found.skipped == {f"MPIJob of the API group {group}, not kubeflow.org": 1}


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps, lambda value: json.dumps(value, indent="\t")])
@pytest.mark.parametrize("kind", ["List", "PyTorchJobList"])
def test_the_items_of_a_list_are_found(dump, kind):
    found = read_jobs(dump({"apiVersion": "v1", "kind": kind, "items": [job("a"), CONFIG_MAP, job("b")]}), "-")
    assert job_names(found) == ["a", "b"]
    assert [one.origin for one in found.jobs] == ["-:1 item 1", "-:1 item 3"]


def test_an_unreadable_document_is_reported_with_its_line_and_the_others_are_read():
    text = "# ours\n---\n" + yaml.safe_dump(job("a")) + "---\n" + BROKEN + "---\n" + yaml.safe_dump(job("b"))
    found = read_jobs(text, "chart.yaml")
    assert job_names(found) == ["a", "b"]
    (error,) = found.read_errors
    begin = text[: text.index(BROKEN)].count("\n")  # the line of its separator
    assert error.origin == f"chart.yaml:{begin}"
    assert f"at the end, in line {begin + 2}" in error.reason  # where the quote should have ended
    assert "Values" not in error.reason


def test_the_fields_of_a_job_have_lines():
    text = yaml.safe_dump(job("a")) + "---\n" + yaml.safe_dump({"kind": "List", "items": [CONFIG_MAP, job("b")]})
    first, second = read_jobs(text, "jobs.yaml").jobs
    lines = text.splitlines()
    assert first.document.locate("metadata.name") == f"jobs.yaml:{lines.index('  name: a') + 1}"
    assert second.document.locate("metadata.name") == f"jobs.yaml:{lines.index('    name: b') + 1}"
    assert second.document.locate("spec.pytorchReplicaSpecs") == f"jobs.yaml:{lines.index('  spec: {}') + 1}"


@pytest.mark.parametrize("text", ["", "\n", "---\n", "# nothing\n---\n...\n", "%YAML 1.1\n---\n# nothing\n"])
def test_an_empty_text_has_no_jobs_and_no_errors(text):
    found = read_jobs(text, "empty.yaml")
    assert (found.jobs, found.read_errors, found.skipped) == ([], [], {})


@pytest.mark.parametrize("text", ["just words", "- 1\n- 2", "42", "{}", "a: 1"])
def test_values_that_are_no_objects_are_skipped(text):
    found = read_jobs(text, "values.yaml")
    assert not found.jobs
    assert not found.read_errors
    assert set(found.skipped) == {"no Kubernetes object"}


def test_a_thousand_jobs_are_read_from_one_json_document():
    found = read_jobs(
        json.dumps({"kind": "List", "items": [job(f"job-{n}") | {"text": "x" * 5000} for n in range(1000)]}), "-"
    )
    assert len(found.jobs) == 1000


@pytest.mark.parametrize("dump", [partial(yaml.dump, Dumper=yaml.CSafeDumper), json.dumps], ids=["yaml", "json"])
def test_a_list_may_be_larger_than_one_job(dump):
    jobs = [job(f"job-{n}") | {"since": "x" * 1000} for n in range(2000)]
    found = read_jobs(dump({"kind": "List", "items": jobs}), "-")
    assert len(found.jobs) == 2000


@pytest.mark.parametrize(
    ("text", "value"), [("2026-11-22", "2026-11-22"), ("12:30:00", "12:30:00"), ("on", True), ("1.0", 1)]
)
def test_values_are_those_that_kubectl_reads(text, value):
    (found,) = read_jobs(yaml.safe_dump(job("a")) + f"x: {text}\n", "-").jobs
    assert found.job["x"] == value
    assert type(found.job["x"]) is type(value)


@given(st.lists(st.sampled_from(["job", "other", "broken", "empty"]), max_size=8), st.booleans())
def test_every_document_counts_once_in_any_order(kinds, begins_with_separator):
    texts = {
        "job": lambda n: yaml.safe_dump(job(f"job-{n}")),
        "other": lambda _: yaml.safe_dump(CONFIG_MAP),
        "broken": lambda _: BROKEN,
        "empty": lambda _: "# only words\n",
    }
    text = ("---\n" if begins_with_separator else "") + "---\n".join(texts[kind](n) for n, kind in enumerate(kinds))
    found = read_jobs(text, "f")
    assert job_names(found) == [f"job-{n}" for n, kind in enumerate(kinds) if kind == "job"]
    assert found.skipped.total() == kinds.count("other")
    assert len(found.read_errors) == kinds.count("broken")
    lines = text.splitlines()
    for one in found.jobs:
        begin = int(one.origin.partition(":")[2])
        assert f"name: {one.job['metadata']['name']}" in "\n".join(lines[begin - 1 : begin + 5])


@given(st.text())
def test_no_text_raises(text):
    read_jobs(text, "f")


EMBEDDED = """\
kind: List
items:
- apiVersion: argoproj.io/v1alpha1
  kind: Workflow
  metadata:
    name: w
  spec:
    templates:
    - name: "train.it"
      resource:
        spec:
          apiVersion: kubeflow.org/v1
          kind: PyTorchJob
          metadata:
            name: a
          spec:
            surprise: 1
            pytorchReplicaSpecs:
              Worker:
                template:
                  spec:
                    containers:
                    - name: pytorch
                      image: example.com/train:1
"""


def test_a_job_inside_an_object_has_lines():
    [found] = read_jobs(EMBEDDED, "w.yaml").jobs
    lines = EMBEDDED.splitlines()
    assert found.document.locate("spec.surprise") == f"w.yaml:{lines.index('            surprise: 1') + 1}"
    assert found.document.locate("metadata.name") == f"w.yaml:{lines.index('            name: a') + 1}"


def test_refused_fields_have_lines_in_json():
    """`migrate report --json` had no line of a refused field."""
    report = convert_all(read_jobs(EMBEDDED, "w.yaml"), dialect=Dialect.V2_2, launch=Launch.ENVIRONMENT)
    [job] = report.to_dict()["jobs"]
    places = {record["path"]: record["location"] for record in job["blockers"]}
    assert places["spec.surprise"] == "w.yaml:17"
    assert all(re.fullmatch(r"w\.yaml:\d+", place) for place in places.values())


def test_a_job_of_a_cluster_has_no_lines_in_json():
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": {"surprise": 1}}
    sources = Sources(jobs=[FoundJob("cluster default", job)])
    [job] = convert_all(sources, dialect=Dialect.V2_2, launch=Launch.ENVIRONMENT).to_dict()["jobs"]
    assert {record["location"] for record in job["blockers"]} == {"cluster default"}


def test_a_trainjob_of_a_draft_is_reported_with_what_to_write():
    """`trainjob submit` sends it here, if the message of either names only the other."""
    draft = "apiVersion: kubeflow.org/v2alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec: {datasetConfig: {}}\n"
    [error] = read_jobs(draft, "a.yaml").read_errors
    assert "TrainJobs have apiVersion trainer.kubeflow.org/v1alpha1" in error.reason
    assert "write spec.initializer.dataset" in error.reason
    current = draft.replace("kubeflow.org/v2alpha1", "trainer.kubeflow.org/v1alpha1").replace("datasetConfig: {}", "")
    assert read_jobs(current, "a.yaml").skipped == {"TrainJob": 1}
