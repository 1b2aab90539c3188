"""Fuzz tests of statuses, pods and TrainJobs: each has a phase, an outcome and a plan, without an exception."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from hypothesis import strategies as st

from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases, fuzz
from tests.chaos.fuzz.objects import POD, RUNNING_TRAINJOB, TRAINJOB
from trainjob.errors import IncompatibleVersion, JobFailed
from trainjob.lifecycle import Limits, RunKey
from trainjob.lifecycle.plan import Plan, plan_submission
from trainjob.status import (
    Category,
    Evidence,
    FinalPods,
    Outcome,
    Phase,
    Usage,
    build_outcome,
    compute_usage,
    derive_verdict,
    pending_reasons,
)
from trainjob.status.pods import rank_of, restarts_in_place, step_of

JOB = damaged_json(TRAINJOB) | damaged_json(RUNNING_TRAINJOB)
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
PODS = st.lists(damaged_json(POD), max_size=3)


@fuzz(
    "TrainJobs and pods: derive_verdict, find_failures, pending_reasons, compute_usage, build_outcome",
    400,
    job=JOB,
    pods=PODS,
)
def test_any_objects_have_a_verdict_and_an_outcome(job, pods):
    verdict = derive_verdict(job, pods)
    assert isinstance(verdict.phase, Phase)
    assert str(verdict)
    usage = compute_usage(job, pods, NOW)
    lines = pending_reasons(pods)
    outcome = build_outcome(job, verdict, Evidence(FinalPods(pods), lines, job, lines, usage=usage))
    assert isinstance(outcome.category, Category)
    assert isinstance(outcome.explain(), str)
    assert outcome.seconds is None or isinstance(outcome.seconds, float)
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome
    try:
        outcome.raise_for_failure()
    except JobFailed as error:
        assert str(error)
    return verdict.phase.value


@fuzz("pods: replicated job, rank, restarts", 200, pod=damaged_json(POD))
def test_any_pod_has_a_step_and_a_rank(pod):
    assert isinstance(step_of(pod), str)
    assert rank_of(pod) >= 0 or pod["metadata"]["labels"]  # a real label is a string; this one may be a negative number
    return "restarts" if restarts_in_place(pod) else "never restarts"


OUTCOME = build_outcome(
    TRAINJOB,
    derive_verdict(TRAINJOB),
    Evidence(FinalPods([POD]), events=("e: m",), log_tail=("line",), usage=Usage(5.0, {"nvidia.com/gpu": 5.0})),
).to_dict()
OUTCOME["progress"] = {"step": 3, "total": 9, "epoch": 1, "epochs": 3, "loss": 0.5}


@fuzz(
    "Outcome.from_dict, Limits.from_dict",
    300,
    values=damaged_json(OUTCOME) | damaged_json(Limits().to_dict()) | JSON | edge_cases,
)
def test_serialized_values_are_read_or_refused(values):
    kinds = []
    for read in (Outcome.from_dict, Limits.from_dict):
        try:
            kinds.append(type(read(values)).__name__)
        except IncompatibleVersion as error:
            assert str(error)
    return kinds[0] if kinds else "IncompatibleVersion"


@fuzz(
    "TrainJobs of a run key: plan_submission",
    300,
    jobs=st.lists(damaged_json(RUNNING_TRAINJOB), max_size=4),
    renewal=st.text(max_size=3),
)
def test_any_trainjobs_have_a_plan(jobs, renewal):
    found = plan_submission(jobs, "00112233", "2026-01-01T00:00:00Z", renewal)
    assert isinstance(found, Plan)
    assert found.attempt >= 0
    return "adopts" if found.adopt is not None else "a new attempt"


@fuzz(
    "run keys", 200, parts=st.lists(st.text() | st.sampled_from(["\ud800", "\0", "a/b", '"']), min_size=6, max_size=6)
)
def test_any_run_key_can_be_serialized(parts):
    key = RunKey(*parts)
    assert len(key.digest) == 16
    assert RunKey(**json.loads(key.canonical)) == key
    return "digest"
