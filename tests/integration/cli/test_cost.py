"""Tests of `trainjob cost`."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key


@pytest.fixture
def api_server(tmp_path):
    with bare_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
def run_cost(api_server, trainjob):
    return lambda *arguments, **options: trainjob(
        "cost", *arguments, env={"KUBECONFIG": str(api_server.kubeconfig)}, **options
    )


def create_pod(api_server, job, name, seconds, *, gpus, namespace="default"):
    """Create a pod of a TrainJob that has used its node for some seconds since its creation."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": job,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    container = {"name": "node", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [container]},
    }
    api_server.create_object("pods", pod)
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ended = {"exitCode": 0, "finishedAt": f"2026-01-01T{seconds // 3600:02}:{seconds % 3600 // 60:02}:00Z"}
    status = {
        "phase": "Succeeded",
        "conditions": [condition],
        "containerStatuses": [{"name": "node", "state": {"terminated": ended}}],
    }
    api_server._registry.patch("pods", name, {"status": status}, namespace, subresource="status")


def outcome(uid, **changes):
    usage = {"pod_seconds": 7200.0, "resource_seconds": {"nvidia.com/gpu": 14_400.0}, "complete": True}
    known = {"job": f"job-{uid}", "namespace": "default", "uid": uid, "phase": "Failed", "usage": usage}
    return json.dumps({**known, "labels": {"trainjob.dev/workflow": "weekly"}, **changes})


def test_the_table_has_existing_and_exported_trainjobs_each_once(api_server, run_cost, tmp_path):
    api_server.create_trainjob("tune", make_run_key("tune"))
    created = api_server.create_trainjob("by-hand")
    for name, seconds, gpus in (("tune", 3600, 4), ("by-hand", 1800, 0)):
        create_pod(api_server, name, f"{name}-0", seconds, gpus=gpus)
        api_server.set_finished(name)
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    one.write_text(f"{outcome('gone')}\n\n")
    # The cluster still has this TrainJob, and its pods; the recorded usage is a lower bound.
    less = {"pod_seconds": 60.0, "resource_seconds": {}, "complete": False}
    known = outcome(created["metadata"]["uid"], job="by-hand", usage=less, labels={})
    other.write_text(f"{outcome('gone')}\n{known}\n")
    shown = run_cost("--by", "workflow", "--from", one, "--from", other)
    assert (shown.returncode, shown.stderr) == (0, "")
    title, *rows = shown.stdout.splitlines()
    assert title.split() == ["WORKFLOW", "TRAINJOBS", "ACTIVE", "INCOMPLETE", "POD", "HOURS", "GPU", "HOURS"]
    assert [row.split() for row in rows] == [
        ["weekly", "1", "0", "0", "2.000", "4.000"],
        ["nightly", "1", "0", "0", "1.000", "4.000"],
        ["(none)", "1", "0", "0", "0.500", "0.000"],
        ["total", "3", "0", "0", "3.500", "8.000"],
    ]


def test_json_has_seconds_and_marks_active_trainjobs(api_server, run_cost):
    api_server.create_trainjob("tune", make_run_key("tune"))
    create_pod(api_server, "tune", "tune-0", 60, gpus=2)
    api_server.set_running("tune")
    found = json.loads(run_cost("--json", "--by", "task").stdout)
    expected = {"trainjobs": 1, "active": 1, "incomplete": 0, "pod_seconds": 60.0, "gpu_seconds": 120.0}
    sums = {**expected, "resource_seconds": {"nvidia.com/gpu": 120.0}}
    assert found == {"by": "task", "groups": [{"value": "tune", **sums}], "total": {"value": None, **sums}}


def test_without_trainjobs_the_total_is_zero(run_cost):
    shown = run_cost()
    assert [row.split() for row in shown.stdout.splitlines()[1:]] == [["total", "0", "0", "0", "0.000", "0.000"]]


def test_an_ended_trainjob_without_pods_is_incomplete(api_server, run_cost):
    api_server.create_trainjob("tune")
    api_server.set_finished("tune")
    assert json.loads(run_cost("--json").stdout)["total"]["incomplete"] == 1


def test_namespace_and_selector_limit_what_is_counted(api_server, run_cost, tmp_path):
    api_server.create_namespace("other")
    api_server.create_trainjob("a", make_run_key("a"))
    api_server.create_trainjob("b", make_run_key("b"), namespace="other")
    export = tmp_path / "outcomes.jsonl"
    export.write_text(outcome("gone", namespace="other"))

    def count(*arguments):
        return json.loads(run_cost("--json", *arguments).stdout)["total"]["trainjobs"]

    assert count("--from", export) == 1
    assert count("-n", "other", "--from", export) == 2
    assert count("-A", "--from", export) == 3
    assert count("-A", "-l", "trainjob.dev/task=b") == 1


def test_an_invalid_export_names_file_and_line(run_cost, tmp_path):
    export = tmp_path / "outcomes.jsonl"
    export.write_text(f"{outcome('a')}\nhello\n{outcome('b', usage=7)}\n")
    failed = run_cost("--from", export)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert f"{export}:2" in failed.stderr
    assert f"{export}:3" in failed.stderr


def test_standard_input_is_an_export(run_cost):
    found = json.loads(run_cost("--json", "--from", "-", input=outcome("a")).stdout)
    assert found["total"]["gpu_seconds"] == 14_400.0


@pytest.mark.parametrize("content", [None, b"\xff\n"])
def test_a_file_that_cannot_be_read_is_an_error(run_cost, tmp_path, content):
    path = tmp_path / "export"
    if content is not None:
        path.write_bytes(content)
    failed = run_cost("--from", path)
    assert failed.returncode == 2
    assert "--from" in failed.stderr
    assert "Traceback" not in failed.stderr
