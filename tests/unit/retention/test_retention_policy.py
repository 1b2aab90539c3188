"""Tests of the rules for deleting TrainJobs, for every state of a TrainJob."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import CustomTrainerContainer, ExportModel, FineTune, InvalidSpec, RunKey, TrainJob, TrainJobManifest
from trainjob.lifecycle import run_key_of
from trainjob.manifest import build_trainjob, labels, spec_hash, to_trainjob
from trainjob.retention.policy import Lifetimes, SweepAction, decide_action, may_hold_a_model
from trainjob.spec.durations import format_duration, parse_duration
from trainjob.status import Phase, derive_verdict
from trainjob.status.failed_mark import format_failed_mark

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=timezone.utc)
HOURS = timedelta(hours=1)
JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=("true",)))
STOCK = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {"runtimeRef": {"name": "torchtune-qwen2.5-1.5b"}},
}
QUEUED_JOB = {
    **STOCK,
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}},
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}


def hours_ago(hours):
    return (NOW - hours * HOURS).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(state="active", created=10, ended=None, **annotations):
    """Return a TrainJob in a state; the times are in hours ago.

    The states are `active`, `complete`, `failed` and `terminating`.
    """
    metadata = {"name": "tune", "namespace": "ml", "uid": "u", "creationTimestamp": hours_ago(created)}
    metadata["annotations"] = {f"trainjob.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    if state == "terminating":
        metadata["deletionTimestamp"] = hours_ago(0)
    kind = {"complete": "Complete", "failed": "Failed"}.get(state)
    condition = {"type": kind, "status": "True", "lastTransitionTime": hours_ago(created if ended is None else ended)}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": [condition] if kind else []}}


def action_of(trainjob, **lifetimes):
    return decide_action(trainjob, Lifetimes(**lifetimes), NOW).action


def test_a_finished_job_is_retained_unless_a_lifetime_is_set():
    assert action_of(job("complete")) is SweepAction.RETAIN
    assert action_of(job("complete"), finished_for=9 * HOURS) is SweepAction.DELETE_UNLESS_CALLER_RUNS
    assert action_of(job("complete"), finished_for=11 * HOURS) is SweepAction.RETAIN


def test_the_lifetime_of_the_job_itself_has_priority():
    assert action_of(job("complete", ttl_after_success="0s")) is SweepAction.DELETE_UNLESS_CALLER_RUNS
    assert action_of(job("complete", ttl_after_success="7d"), finished_for=HOURS) is SweepAction.RETAIN
    assert action_of(job("complete", ttl_after_failure="1h")) is SweepAction.RETAIN
    assert action_of(job("failed", ttl_after_failure="1h")) is SweepAction.DELETE_UNLESS_CALLER_RUNS


def test_the_lifetime_starts_at_the_end_or_at_the_last_adoption():
    assert action_of(job("complete", ended=1, ttl_after_success="2h")) is SweepAction.RETAIN
    adopted = (NOW - HOURS).isoformat()
    assert action_of(job("complete", ttl_after_success="2h", adopted=adopted)) is SweepAction.RETAIN
    assert action_of(job("complete", ttl_after_success="30m", adopted=adopted)) is SweepAction.DELETE_UNLESS_CALLER_RUNS


def test_an_unfinished_job_ends_only_if_it_is_old_enough_and_not_kept():
    assert action_of(job()) is SweepAction.END_IF_CALLER_ENDED
    assert action_of(job(created=0)) is SweepAction.RETAIN
    assert action_of(job(adopted=NOW.isoformat())) is SweepAction.RETAIN
    assert action_of(job(on_kill="keep")) is SweepAction.RETAIN
    assert action_of(job(on_kill="suspend")) is SweepAction.END_IF_CALLER_ENDED
    suspended = job(on_kill="suspend")
    suspended["spec"]["suspend"] = True
    assert action_of(suspended) is SweepAction.RETAIN


@pytest.mark.parametrize("text", ["soon", "7", "-1d", "1.5h", "1y", ""])
def test_an_invalid_lifetime_retains_the_job_and_is_the_reason(text):
    decision = decide_action(job("complete", ttl_after_success=text), Lifetimes(), NOW)
    assert decision.action is SweepAction.RETAIN
    assert bool(decision.reason) == bool(text)


def test_a_job_marked_as_failed_is_deleted_after_its_lifetime():
    mark = format_failed_mark("RestartLimitExceeded", "it failed", "node", hours_ago(3))
    found = job(failed=mark, ttl_after_failure="2h")
    assert str(derive_verdict(found)) == "Failed [node] (RestartLimitExceeded: it failed)"
    assert action_of(found) is SweepAction.DELETE_UNLESS_CALLER_RUNS
    found["metadata"]["annotations"][labels.TTL_AFTER_FAILURE] = "4h"
    assert action_of(found) is SweepAction.RETAIN
    found["metadata"]["annotations"]["trainjob.dev/failed"] = "nonsense"
    assert derive_verdict(found).phase is Phase.FAILED


states = st.sampled_from(["active", "complete", "failed", "terminating"])
ages = st.integers(0, 100)


@given(states, ages, ages, st.none() | ages, st.sampled_from([{}, {"on_kill": "keep"}, {"ttl_after_success": "50h"}]))
def test_only_expired_jobs_and_old_unfinished_jobs_are_deleted(state, created, ended, finished_for, marks):
    found = job(state, created, min(ended, created), **marks)
    lifetime = None if finished_for is None else finished_for * HOURS
    action = action_of(found, finished_for=lifetime, active_for=HOURS)
    if action is SweepAction.DELETE_UNLESS_CALLER_RUNS:
        assert state in ("complete", "failed")
        own = 50 if state == "complete" and "ttl_after_success" in marks else None
        assert min(ended, created) >= (own if own is not None else finished_for)
    elif action is SweepAction.END_IF_CALLER_ENDED:
        assert state == "active"
        assert created >= 1
        assert "on_kill" not in marks


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8) | st.none(), max_size=4))
def test_any_annotation_value_is_accepted(annotations):
    found = job("complete")
    names = [labels.TTL_AFTER_SUCCESS, labels.ADOPTED, labels.RUN_KEY, labels.ON_KILL, labels.EXPORTED]
    found["metadata"]["annotations"] = dict(zip(names, annotations, strict=False)) | annotations
    decide_action(found, Lifetimes(HOURS), NOW)
    run_key_of(found)
    may_hold_a_model(found)


def test_a_run_key_is_restored_from_its_text():
    key = RunKey("airflow", "dag", "task", "run", "3", "http://here")
    assert RunKey.from_text(key.canonical) == key
    for text in ("", "{}", "[]", "null", '{"engine": 1}', key.canonical.replace('"3"', "3"), key.canonical[:-1]):
        assert RunKey.from_text(text) is None


@given(st.timedeltas(timedelta(0), timedelta(days=4000)))
def test_a_duration_is_restored_from_its_text(length):
    whole = timedelta(seconds=int(length.total_seconds()))
    assert parse_duration(format_duration(length), "ttl") == whole


@pytest.mark.parametrize(("text", "length"), [("90s", HOURS / 40), ("30m", HOURS / 2), ("7d", 168 * HOURS)])
def test_durations_have_units(text, length):
    assert parse_duration(text, "ttl") == length
    assert format_duration(length) == text


@pytest.mark.parametrize("text", ["", "7", "d", "1h30m", "-1d", " 1d", "1D", "99999999999d"])
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(InvalidSpec, match="7d"):
        parse_duration(text, "--finished-for")


def test_a_number_without_a_unit_is_allowed_only_with_a_default_unit():
    """`trainjob sweep --finished-for 7` must not delete what ended 7 s ago."""
    assert parse_duration("80", "--timeout", default_unit="s") == timedelta(seconds=80)
    assert parse_duration("2m", "--timeout", default_unit="s") == timedelta(minutes=2)
    with pytest.raises(InvalidSpec):
        parse_duration("80", "--finished-for")


def test_lifetimes_and_kill_actions_are_annotations_and_do_not_change_the_spec_hash():
    options = {"ttl_after_success": 48 * HOURS, "ttl_after_failure": 90 * timedelta(seconds=1)}
    options |= {"on_kill": "keep", "on_failure": "keep"}
    expected = {labels.TTL_AFTER_SUCCESS: "2d", labels.TTL_AFTER_FAILURE: "90s", labels.ON_KILL: "keep"}
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
    }
    for plain in (
        JOB,
        TrainJobManifest(manifest=manifest),
        FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w"),
        ExportModel(workspace="w", destination="/workspace/export"),
    ):
        with_options = plain.model_copy(update=options)
        assert spec_hash(with_options) == spec_hash(plain)
        built = build_trainjob(to_trainjob(with_options), name="n", namespace="ml")
        assert expected.items() <= built["metadata"]["annotations"].items()
        assert built["spec"] == build_trainjob(to_trainjob(plain), name="n", namespace="ml")["spec"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TrainJob(on_kill="suspend", queue="gpu"), ["on_kill", "queue gpu"]),
        (lambda: TrainJob(on_failure="suspend", queue="gpu"), ["on_failure", "queue gpu"]),
        (lambda: ExportModel(workspace="w", destination="s3://b/p", on_kill="suspend", queue="gpu"), ["queue gpu"]),
        (
            lambda: FineTune(
                model="llama3.2-1b",
                config={"framework": "torchtune"},
                on_kill="suspend",
                dataset={"storage_uri": "hf://a/b"},
            ),
            ["on_kill", "torchtune-llama3.2-1b"],
        ),
        (lambda: TrainJob(runtime="torchtune-llama3.2-1b", on_kill="suspend"), ["on_kill", "torchtune-llama3.2-1b"]),
        (lambda: TrainJobManifest(manifest=STOCK, on_kill="suspend"), ["on_kill", "torchtune-qwen2.5-1.5b"]),
        (lambda: TrainJobManifest(manifest=QUEUED_JOB, on_failure="suspend"), ["on_failure", "queue gpu"]),
        (lambda: TrainJob(on_kill="explode"), ["on_kill", "explode", "delete", "suspend", "keep"]),
        (lambda: TrainJob(ttl_after_success=timedelta(seconds=-1)), ["ttl_after_success", "-1 s", "negative"]),
    ],
)
def test_kill_actions_and_lifetimes_that_cannot_be_applied_are_refused(make, words):
    with pytest.raises(InvalidSpec) as raised:
        make()
    assert [word for word in words if word not in str(raised.value)] == []


@pytest.mark.parametrize(
    ("workspace", "destination", "exports"),
    [
        ("initializer-tune-1", "s3://b/p", "tune-1"),
        ("initializer-tune-1", "hf://o/n", "tune-1"),
        ("initializer-tune-1", "/workspace/export", None),  # the export would be deleted with that claim
        ("tickets", "s3://b/p", None),
    ],
)
def test_an_export_names_the_trainjob_whose_claim_it_reads(workspace, destination, exports):
    exported = to_trainjob(ExportModel(workspace=workspace, destination=destination))
    assert exported.annotations.get(labels.EXPORTS) == exports


@pytest.mark.parametrize(("age", "action"), [(0.5, SweepAction.RETAIN), (2, SweepAction.DELETE_UNLESS_CALLER_RUNS)])
def test_a_job_that_stores_code_is_deleted_when_no_submission_has_adopted_it_for_an_hour(age, action):
    found = job(created=age)
    found["metadata"]["labels"] = {**found["metadata"].get("labels", {}), labels.ENGINE: labels.CODE_ENGINE}
    assert action_of(found) is action
