"""Tests of the report about many jobs: numbers, reasons, and no secrets."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainjob.manifest import Dialect
from trainjob_migrate import Launch, Readiness
from trainjob_migrate.field_pairs import pairs
from trainjob_migrate.report import convert_all, format_markdown
from trainjob_migrate.sources import read_jobs

SECRET = "hf_TheSecretThatNobodyMaySee"


def job(name, *, env=(), command=("torchrun", "train.py"), pod=None, **spec):
    container = {"name": "pytorch", "image": "example.com/train:1", "command": list(command), "env": list(env)}
    template = {"spec": {"containers": [container], **(pod or {})}}
    replicas = {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": template}}
    run_policy = {"cleanPodPolicy": "Running", "backoffLimit": 6}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"runPolicy": run_policy, "pytorchReplicaSpecs": replicas, **spec},
    }


TF_JOB = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "tf"}, "spec": {"tfReplicaSpecs": {}}}
NAMELESS = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {}, "spec": {}}


def convert_documents(*jobs):
    return convert_all(
        read_jobs(yaml.safe_dump_all(jobs), "jobs.yaml"), dialect=Dialect.V2_2, launch=Launch.ENVIRONMENT
    )


def test_jobs_are_counted_by_class_without_refused_jobs():
    report = convert_documents(
        job("one"), job("two"), job("three", pod={"nodeSelector": {"a": "b"}}), TF_JOB, job("t", bogus=1), NAMELESS
    )
    assert (
        report.count_by_readiness()[Readiness.COMPLEX]
        + report.count_by_readiness()[Readiness.STANDARD]
        + report.count_by_readiness()[Readiness.SIMPLE]
        == 3
    )
    assert [str(one) for one in report.refused] == ["TFJob tf", "PyTorchJob ml/t"]
    (error,) = report.read_errors
    assert error.origin.startswith("jobs.yaml:")
    assert "metadata.name" in error.reason
    assert not report.is_complete
    assert convert_documents(job("one")).is_complete


def test_reasons_are_grouped_with_each_job_once_most_frequent_first():
    report = convert_documents(job("a", bogus=1, other=2), job("b", bogus=1), job("b", bogus=1), TF_JOB)
    (first, jobs), *_ = report.group_blockers()
    assert jobs == ["PyTorchJob ml/a", "PyTorchJob ml/b", "PyTorchJob ml/b"]
    assert "unknown field" in first


def test_the_json_report_has_a_record_for_every_field():
    values = json.loads(json.dumps(convert_documents(job("one"), TF_JOB).to_dict()))
    assert values["summary"]["jobs"] == 2
    assert values["summary"]["refused"] == 1
    assert {record["path"] for record in values["jobs"][0]["fields"]} >= {"kind", "metadata.name"}
    assert values["jobs"][0]["origin"] == "jobs.yaml:1"


def test_no_format_shows_a_secret():
    env = [{"name": "HF_TOKEN", "value": SECRET}, {"name": "PLAIN", "value": f"--token={SECRET}"}]
    report = convert_documents(job("one", env=env, command=["torchrun", "train.py", "--hub-token", SECRET]))
    texts = [format_markdown(report), json.dumps(report.to_dict()), *(map(str, pairs(report.jobs[0].conversion)))]
    assert not [text for text in texts if SECRET in text]
    assert any("***" in text for text in texts)


def count_cells(row):
    """Return the cells of a Markdown table's row; an escaped sign is text."""
    return row.replace("\\\\", "").replace("\\|", "").count("|") - 1


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_row_of_a_markdown_table_has_all_cells(name, value):
    report = convert_documents(job("one", env=[{"name": "A", "value": value}]) | {name: value})
    lines = format_markdown(report).splitlines()
    for begin, line in enumerate(lines):
        if line.startswith("|---"):
            end = next((n for n in range(begin, len(lines)) if not lines[n].startswith("|")), len(lines))
            assert {count_cells(row) for row in lines[begin - 1 : end]} == {count_cells(line)}, lines[begin - 1 : end]


@pytest.mark.parametrize("pod", [{}, {"nodeSelector": {"a": "b"}}, {"hostNetwork": True}])
def test_every_field_is_in_one_pair_and_every_new_field_too(pod):
    conversion = convert_documents(job("one", pod=pod)).jobs[0].conversion
    found = pairs(conversion)
    before = [f"{pair.part}.{pair.before}".lstrip(".").partition(": ")[0] for pair in found if pair.before]
    assert before == [record.path for record in conversion.fields]
    text = "\n".join(pair.after for pair in found)
    assert "spec.runtimeRef" in text
    assert "spec.trainer.image: example.com/train:1" in text
    assert "spec.trainer.numNodes: 2" in text
