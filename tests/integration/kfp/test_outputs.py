"""Tests of the components' outputs: parameters, metrics, scores, pages and the location of a model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from kfp import dsl

from trainjob.client import LogLine
from trainjob.errors import InvalidSpec, TrainJobError
from trainjob.spec import WorkspaceVolume
from trainjob.status import Category, Outcome, Phase, Progress, Usage
from trainjob_kfp.model_location import choose_destination, find_uri, update_artifact
from trainjob_kfp.outputs import (
    LogSummary,
    build_outputs,
    log_evaluation,
    log_generation,
    log_scores,
    log_training_metrics,
    write_loss_curve,
)

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


def make_log_summary(*lines, points=()):
    summary = LogSummary()
    for point in points:
        summary.points.append(point)
    for line in lines:
        summary.read_line(LogLine("node-0", line))
    return summary


def test_a_score_that_is_not_finite_passes_no_minimum(capsys):
    summary = make_log_summary('trainjob result: {"accuracy": 0.99}', 'trainjob result: {"accuracy": 1e999}')
    assert "can't be used: it has a number that is not finite" in capsys.readouterr().out
    with pytest.raises(InvalidSpec, match="a number that is not finite"):
        log_scores(summary, "accuracy", 0.9, dsl.Metrics())


def test_outputs_have_the_trainjob_its_claim_and_its_output_path():
    outputs = build_outputs(COMPLETE, "/workspace/output", WorkspaceVolume(claim="tickets", sub_path="a"))
    assert outputs._asdict() == {
        "job": "tune",
        "namespace": "ml",
        "uid": "uid-1",
        "status": "Complete",
        "workspace": "tickets",
        "output_path": "/workspace/output",
    }
    assert build_outputs(COMPLETE, "/workspace", WorkspaceVolume(node_path="/somewhere")).workspace == ""
    assert build_outputs(COMPLETE).workspace == ""


def test_metrics_are_those_of_the_training():
    metrics = dsl.Metrics()
    log_training_metrics(replace(COMPLETE, progress=POINTS[-1]), make_log_summary(points=POINTS), metrics)
    assert metrics.metadata == {
        "loss": 0.5,
        "first_loss": 3.0,
        "steps": 8.0,
        "epochs": 2.0,
        "seconds": 90.0,
        "attempts": 1.0,
    }


def test_the_page_links_to_the_tracked_run(tmp_path):
    page = tmp_path / "curve.html"
    summary = make_log_summary(
        "tracking: MLflow (http://mlflow:5000) failed, and is tried again while the training continues: no answer",
        "tracking: run javascript:alert(1)",
        "tracking: run http://mlflow:5000/#/experiments/1/runs/2",
        "tracking: run https://mlflow.example/#/experiments/1/runs/a&b",
        "loss tracking: run http://elsewhere",
        points=POINTS,
    )
    summary.start_attempt(2)
    assert summary.tracking_url == "https://mlflow.example/#/experiments/1/runs/a&b"
    write_loss_curve(COMPLETE, summary, str(page))
    address = "https://mlflow.example/#/experiments/1/runs/a&amp;b"
    assert f'<a href="{address}" target="_blank" rel="noopener">{address}</a>' in page.read_text()
    write_loss_curve(COMPLETE, make_log_summary(points=POINTS), str(page))
    assert "Tracked run" not in page.read_text()


def test_metrics_have_the_usage():
    metrics = dsl.Metrics()
    usage = Usage(60.0, {"nvidia.com/gpu": 120.0, "rdma/hca": 60.0})
    log_training_metrics(replace(COMPLETE, usage=usage), make_log_summary(), metrics)
    assert (metrics.metadata["pod_seconds"], metrics.metadata["gpu_seconds"]) == (60.0, 120.0)


def test_the_trainers_other_metrics_have_valid_names():
    metrics, reported = dsl.Metrics(), {"rewards/chosen": 0.5, "eval_loss": 0.25, "steps": 99.0, "x" * 100: 1.0}
    last = Progress(step=8, loss=0.5, metrics=reported)
    log_training_metrics(replace(COMPLETE, progress=last), make_log_summary(points=[last]), metrics)
    own = {"loss": 0.5, "first_loss": 0.5, "steps": 8.0, "seconds": 90.0, "attempts": 1.0}
    assert metrics.metadata == {**own, "rewards_chosen": 0.5, "eval_loss": 0.25, "x" * 64: 1.0}


def test_a_training_without_progress_has_only_its_attempts():
    metrics = dsl.Metrics()
    log_training_metrics(replace(COMPLETE, finished=""), make_log_summary(), metrics)
    assert metrics.metadata == {"attempts": 1.0}


def test_metrics_have_the_number_of_the_last_attempt_and_only_its_result():
    metrics, summary = dsl.Metrics(), make_log_summary('trainjob result: {"exact_match": 0.1}')
    summary.start_attempt(2)
    assert summary.result_json == ""
    log_training_metrics(replace(COMPLETE, finished=""), summary, metrics)
    assert metrics.metadata == {"attempts": 2.0}


def test_a_result_is_json_text():
    assert json.loads(make_log_summary("hello", 'trainjob result: {"a": [1, null]}').result_json) == {"a": [1, None]}
    assert make_log_summary("trainjob result: null").result_json == "null"
    assert make_log_summary("hello").result_json == ""


def test_the_page_has_the_curve_or_the_reason_for_its_absence(tmp_path):
    page = tmp_path / "curve.html"
    write_loss_curve(replace(COMPLETE, progress=POINTS[-1]), make_log_summary(points=POINTS), str(page))
    assert "Training loss of tune" in page.read_text()
    assert "<polyline" in page.read_text()
    rewarded = [Progress(step=step, loss=0.0, metrics={"reward": step / 2}) for step in (1, 2)]
    write_loss_curve(COMPLETE, make_log_summary(points=rewarded), str(page))
    assert "Training reward of tune" in page.read_text()
    write_loss_curve(COMPLETE, make_log_summary(), str(page))
    assert "its pods were deleted" in page.read_text()


@pytest.mark.parametrize(("minimum", "passed"), [(0.9, True), (0.98, True), (0.99, False)])
def test_a_score_is_compared_with_the_minimum(minimum, passed):
    metrics = dsl.Metrics()
    summary = make_log_summary('trainjob result: {"exact_match": 0.98, "total": 60, "model": "tuned", "sure": true}')
    assert log_scores(summary, "exact_match", minimum, metrics) == (0.98, passed)
    assert metrics.metadata == {"attempts": 1.0, "exact_match": 0.98, "total": 60.0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hello", "has no result"),
        ("trainjob result: 0.98", "returned no named numbers"),
        ('trainjob result: {"other": 1}', "returned other"),
    ],
)
def test_a_missing_score_is_an_error(line, message):
    with pytest.raises(InvalidSpec, match=f"'exact_match'.*{message}"):
        log_scores(make_log_summary(line), "exact_match", 0.5, dsl.Metrics())


@pytest.mark.parametrize("passed", [True, False])
def test_scores_champion_and_differences_of_an_evaluation_are_metrics(passed, tmp_path):
    report = {
        "passed": passed,
        "scores": {"gsm8k/exact_match,strict-match": {"value": 0.5}, "t/loss": {"value": None}},
        "champion_scores": {"gsm8k/exact_match,strict-match": {"value": 0.25}},
        "differences": {"gsm8k/exact_match,strict-match": {"value": 0.25, "low": 0.1, "high": 0.4}},
        "gates": [],
    }
    metrics, summary = dsl.Metrics(), make_log_summary(f"evaluate: done {json.dumps(report)}")
    page = tmp_path / "summary.md"
    assert log_evaluation(summary, metrics, str(page)) == (passed, json.dumps(report))
    assert "| `gsm8k/exact_match,strict-match` | 0.5 | 0.25 | 0.25 (0.1 to 0.4) |" in page.read_text()
    assert metrics.metadata == {
        "attempts": 1.0,
        "gsm8k_exact_match_strict-match": 0.5,
        "champion_gsm8k_exact_match_strict-match": 0.25,
        "difference_gsm8k_exact_match_strict-match": 0.25,
    }


def test_a_generation_has_its_numbers_and_its_rows():
    metrics = dsl.Metrics()
    line = 'generate: done {"rows": 3, "tokens": 12, "tokens_per_second": 24.0, "output": "/workspace/a"}'
    assert log_generation(make_log_summary("generate: node 0", line), metrics) == 3
    assert metrics.metadata == {"attempts": 1.0, "rows": 3.0, "tokens": 12.0, "tokens_per_second": 24.0}
    with pytest.raises(TrainJobError, match=r"has no result\n.*it generates only what is missing"):
        log_generation(make_log_summary("generate: node 0"), metrics)


def test_an_evaluation_without_a_result_is_an_error(tmp_path):
    with pytest.raises(TrainJobError, match=r"has no result\n.*report\.json"):
        log_evaluation(make_log_summary("evaluate: model, task 1 of 1"), dsl.Metrics(), str(tmp_path / "summary.md"))


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
def test_the_destination_of_an_export_is_the_given_one_or_the_artifacts_uri(uri, given, endpoint, expected):
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
def test_an_export_without_a_possible_destination_is_an_error(uri, field):
    with pytest.raises(InvalidSpec) as refused:
        choose_destination(uri, "", "")
    assert [problem.field for problem in refused.value.problems] == [field]


@pytest.mark.parametrize(
    ("uri", "destination", "expected"),
    [
        (ARTIFACT_URI, ARTIFACT_URI, ARTIFACT_URI),
        (ARTIFACT_URI, "hf://acme/tickets", ""),
        (ARTIFACT_URI, f"s3://bucket/{ROOT}/mine", f"s3://bucket/{ROOT}/mine"),
        (ARTIFACT_URI.replace("s3:", "minio:"), f"s3://bucket/{ROOT}/mine", f"minio://bucket/{ROOT}/mine"),
        (ARTIFACT_URI.replace("s3:", "gs:"), f"gs://bucket/{ROOT}/mine", f"gs://bucket/{ROOT}/mine"),
        (ARTIFACT_URI, f"gs://bucket/{ROOT}/mine", ""),
        (ARTIFACT_URI, "s3://bucket/mine", ""),
        (ARTIFACT_URI, f"s3://other/{ROOT}/mine", ""),
        (ARTIFACT_URI, "/workspace/export", ""),
        ("/tmp/outputs/model", "s3://bucket/mine", ""),
    ],
)
def test_the_artifact_has_the_destination_if_it_is_below_the_root_of_the_run(uri, destination, expected):
    assert find_uri(uri, destination) == expected


def test_the_artifact_has_the_metadata_of_the_model(tmp_path):
    model = dsl.Model(uri=ARTIFACT_URI, metadata={"framework": "pytorch"})
    model.custom_path = str(tmp_path / "model")
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


@pytest.mark.parametrize("destination", ["s3://models/tickets", "hf://acme/tickets", "/workspace/export"])
def test_the_artifact_of_a_model_elsewhere_is_a_file_with_its_location(tmp_path, destination):
    model = dsl.Model(uri=ARTIFACT_URI)
    model.custom_path = str(tmp_path / "model")
    update_artifact(model, COMPLETE, destination, RECEIPT)
    written = json.loads((tmp_path / "model").read_text())
    assert (model.uri, written["location"], written["digest"]) == (ARTIFACT_URI, destination, "sha256:ab12")


def test_the_artifact_of_a_model_below_the_root_of_the_run_has_no_file(tmp_path):
    model = dsl.Model(uri=ARTIFACT_URI)
    model.custom_path = str(tmp_path / "model")
    update_artifact(model, COMPLETE, f"s3://bucket/{ROOT}/mine", RECEIPT)
    assert model.uri == f"s3://bucket/{ROOT}/mine"
    assert not (tmp_path / "model").exists()
