"""What a component hands to later steps: parameters, metrics, scores, pages, and where a model is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from kfp import dsl

from trainjob.client import LogLine
from trainjob.errors import InvalidSpec
from trainjob.spec import Workspace
from trainjob.status import Category, Outcome, Phase, Progress
from trainjob_kfp.model_location import artifact_uri, choose_destination, update_artifact
from trainjob_kfp.outputs import LogSummary, build_outputs, log_scores, log_training_metrics, write_loss_curve

COMPLETE = Outcome(
    "tune",
    "ml",
    "uid-1",
    Phase.COMPLETE,
    Category.SUCCEEDED,
    created="2026-11-21T10:00:00Z",
    finished="2026-11-21T10:01:30Z",
)
POINTS = [Progress(step=1, epoch=1, loss=3.0), Progress(step=2, epoch=1), Progress(step=8, epoch=2, loss=0.5)]
# The run's root, the task, a random word and the artifact's name: KFP 2.17, backend/src/v2/driver/driver.go.
ROOT = "v2/artifacts/tickets-llm/0d8b6c5e"
ARTIFACT_URI = f"s3://bucket/{ROOT}/export-model/3f2a/model"
RECEIPT = {
    "manifest_sha256": "ab12",
    "kind": "model",
    "epoch": 3,
    "files": 7,
    "bytes": 42,
    "revision": "",
    "metrics": {},
}


def make_progress_log(*lines, points=()):
    found = LogSummary()
    found.points.extend(points)
    for line in lines:
        found.read_line(LogLine("node-0", line))
    return found


def test_outputs_name_the_job_its_claim_and_its_result():
    made = build_outputs(COMPLETE, "/workspace/output", Workspace(claim="tickets", sub_path="a"))
    assert made._asdict() == {
        "job": "tune",
        "namespace": "ml",
        "uid": "uid-1",
        "status": "Complete",
        "workspace": "tickets",
        "output_path": "/workspace/output",
    }
    assert build_outputs(COMPLETE, "/workspace", Workspace(node_path="/somewhere")).workspace == ""
    assert build_outputs(COMPLETE).workspace == ""


def test_metrics_are_what_the_training_told():
    metrics = dsl.Metrics()
    log_training_metrics(replace(COMPLETE, progress=POINTS[-1]), make_progress_log(points=POINTS), metrics)
    assert metrics.metadata == {"loss": 0.5, "first_loss": 3.0, "steps": 8.0, "epochs": 2.0, "seconds": 90.0}


def test_a_silent_training_has_no_loss():
    metrics = dsl.Metrics()
    log_training_metrics(replace(COMPLETE, finished=""), make_progress_log(), metrics)
    assert metrics.metadata == {}


def test_a_result_is_json_text():
    assert json.loads(make_progress_log("hello", 'trainjob result: {"a": [1, null]}').result_json) == {"a": [1, None]}
    assert make_progress_log("trainjob result: null").result_json == "null"
    assert make_progress_log("hello").result_json == ""


def test_the_page_shows_the_curve_or_says_why_not(tmp_path):
    page = tmp_path / "curve.html"
    write_loss_curve(replace(COMPLETE, progress=POINTS[-1]), make_progress_log(points=POINTS), str(page))
    assert "Training loss of tune" in page.read_text()
    assert "<polyline" in page.read_text()
    write_loss_curve(COMPLETE, make_progress_log(), str(page))
    assert "its pods were gone" in page.read_text()


@pytest.mark.parametrize(("minimum", "passed"), [(0.9, True), (0.98, True), (0.99, False)])
def test_a_score_is_compared_with_what_is_enough(minimum, passed):
    metrics = dsl.Metrics()
    told = make_progress_log('trainjob result: {"exact_match": 0.98, "asked": 60, "model": "tuned", "sure": true}')
    assert log_scores(told, "exact_match", minimum, metrics) == (0.98, passed)
    assert metrics.metadata == {"exact_match": 0.98, "asked": 60.0}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hello", "has no result"),
        ("trainjob result: 0.98", "returned no numbers by name"),
        ('trainjob result: {"other": 1}', "returned other"),
    ],
)
def test_a_score_that_is_not_there_is_an_error_and_no_zero(line, said):
    with pytest.raises(InvalidSpec, match=f"'exact_match'.*{said}"):
        log_scores(make_progress_log(line), "exact_match", 0.5, dsl.Metrics())


@pytest.mark.parametrize(
    ("uri", "given", "endpoint", "expected"),
    [
        (ARTIFACT_URI, "", "", ARTIFACT_URI),
        (ARTIFACT_URI.replace("s3:", "minio:"), "", "http://minio:9000", ARTIFACT_URI),
        (ARTIFACT_URI, "hf://acme/tickets", "", "hf://acme/tickets"),
        (ARTIFACT_URI.replace("s3:", "gs:"), "", "", ARTIFACT_URI.replace("s3:", "gs:")),
        ("azure://bucket/model", "s3://models/tickets", "", "s3://models/tickets"),
        ("/tmp/outputs/model", "/workspace/export", "", "/workspace/export"),
    ],
)
def test_an_export_goes_where_it_was_told_or_to_the_artifacts_place(uri, given, endpoint, expected):
    assert choose_destination(uri, given, endpoint) == expected


@pytest.mark.parametrize(
    ("uri", "field"),
    [
        (ARTIFACT_URI.replace("s3:", "minio:"), "endpoint"),
        ("azure://bucket/model", "destination"),
        ("oci://registry/model", "destination"),
        ("/tmp/outputs/model", "destination"),
    ],
)
def test_an_export_without_a_place_to_go_to_says_what_to_give(uri, field):
    with pytest.raises(InvalidSpec) as refused:
        choose_destination(uri, "", "")
    assert [problem.field for problem in refused.value.problems] == [field]


@pytest.mark.parametrize(
    ("uri", "destination", "expected"),
    [
        (ARTIFACT_URI, ARTIFACT_URI, ARTIFACT_URI),
        (ARTIFACT_URI, "hf://acme/tickets", "hf://acme/tickets"),
        (ARTIFACT_URI, f"s3://bucket/{ROOT}/mine", f"s3://bucket/{ROOT}/mine"),
        (ARTIFACT_URI.replace("s3:", "minio:"), f"s3://bucket/{ROOT}/mine", f"minio://bucket/{ROOT}/mine"),
        (ARTIFACT_URI.replace("s3:", "gs:"), f"gs://bucket/{ROOT}/mine", f"gs://bucket/{ROOT}/mine"),
        (ARTIFACT_URI, f"gs://bucket/{ROOT}/mine", ARTIFACT_URI),
        (ARTIFACT_URI, "s3://bucket/mine", ARTIFACT_URI),
        (ARTIFACT_URI, f"s3://other/{ROOT}/mine", ARTIFACT_URI),
        (ARTIFACT_URI, "/workspace/export", ARTIFACT_URI),
        ("/tmp/outputs/model", "s3://bucket/mine", "/tmp/outputs/model"),
    ],
)
def test_the_artifact_refers_to_the_model_where_kfp_can_record_that(uri, destination, expected):
    assert artifact_uri(uri, destination) == expected


def test_the_artifact_tells_what_the_model_is():
    model = dsl.Model(uri=ARTIFACT_URI, metadata={"framework": "pytorch"})
    update_artifact(model, COMPLETE, "s3://models/tickets", RECEIPT)
    assert model.uri == ARTIFACT_URI
    assert model.metadata == {
        "framework": "pytorch",
        "location": "s3://models/tickets",
        "job": "tune",
        "namespace": "ml",
        "digest": "sha256:ab12",
        "kind": "model",
        "epoch": 3,
        "files": 7,
        "bytes": 42,
    }
