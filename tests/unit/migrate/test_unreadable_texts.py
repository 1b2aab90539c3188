"""Tests of the reasons why a text cannot be read: it is a template, or no YAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.migrate.v1_jobs import pytorch_job
from trainjob_migrate.sources import read_jobs

JOB = "apiVersion: kubeflow.org/v1\nkind: {kind}\nmetadata:\n  name: a\nspec:\n"
HELM = "it seems to be a Helm template"
RENDER = "render the chart first, `helm template . | trainjob migrate report -`"
REPLACE = "replace its placeholders with values before the conversion"


def read_error(text):
    [error] = read_jobs(text, "f.yaml").read_errors
    return error.reason


@pytest.mark.parametrize(
    "placeholder",
    ["{{ .Values.workers }}", "{{ .Release.Name }}-x", "{{- if .Values.a }}", '{{ include "x.labels" . | nindent 4 }}'],
)
@pytest.mark.parametrize("kind", ["PyTorchJob", '"MPIJob"', "TFJob"])
def test_a_helm_template_is_named_with_its_kind_and_how_to_render_it(placeholder, kind):
    reason = read_error(JOB.format(kind=kind) + f"  replicas: {placeholder}\n  {placeholder}\n")
    assert reason.startswith(f"{HELM} of kind {kind.strip(chr(34))}, with placeholders from line 6 on: {RENDER}")


@pytest.mark.parametrize("placeholder", ["{{.workers}}", "{% if a %}", "{{ inputs.parameters.size }}"])
def test_another_template_has_the_advice_to_replace_its_placeholders(placeholder):
    reason = read_error(JOB.format(kind="MPIJob") + f"  replicas: {placeholder}\n")
    assert f"a template of kind MPIJob, with placeholders from line 6 on: {REPLACE}" in reason


def test_a_template_without_a_v1_job_has_no_kind():
    assert f"{HELM}, with" in read_error("kind: Deployment\nspec: {{ toYaml .Values.spec }}\n")


def test_the_kind_that_a_template_only_refers_to_is_not_its_kind():
    text = "metadata: {{ .Release.Name }}\nspec: {group: kubeflow.org, version: v1, kind: PyTorchJob}\n"
    assert f"{HELM}, with" in read_error(text)


@pytest.mark.parametrize("head", ["Generating the manifest ...\n", "%%writefile $FILE\n", 'spec = f"""x: y: z\n'])
def test_a_text_that_is_neither_yaml_nor_a_template_has_its_kind(head):
    reason = read_error(head + JOB.format(kind="TFJob"))
    assert "it must be YAML or JSON: " in reason
    assert reason.endswith("; it seems to contain a job of kind TFJob")


def test_a_template_is_reported_in_the_document_that_has_it():
    text = yaml.safe_dump(pytorch_job()) + "---\n" + JOB.format(kind="JAXJob") + "  replicas: {{ .Values.n }}\n"
    found = read_jobs(text, "f.yaml")
    assert len(found.jobs) == 1
    [error] = found.read_errors
    line = text.splitlines().index("  replicas: {{ .Values.n }}") + 1
    assert f"of kind JAXJob, with placeholders from line {line} on" in error.reason


def test_each_document_of_a_chart_is_named_a_helm_template():
    first, second = read_jobs("a: {{ .Values.a }}\n---\n{{- end }}\nb: 1\n", "f.yaml").read_errors
    assert first.reason.startswith(f"{HELM}, with placeholders from line 1")
    assert second.reason.startswith(f"{HELM}, with placeholders from line 3")


@given(st.lists(st.sampled_from(["{{", "}}", ".Values", "kind: MPIJob", "kubeflow.org/v1", ":", "\n", "- ", "a"])))
def test_the_reason_never_has_the_text_itself(parts):
    secret = "hunter2"
    for error in read_jobs(f"{secret}: " + "".join(parts), "f").read_errors:
        assert secret not in error.reason
