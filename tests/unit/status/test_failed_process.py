"""Tests of the process that torchrun names as the first that failed."""

from __future__ import annotations

import json

import pytest

from tests.unit.status.test_status_outcome import JOB, pod, terminated_state
from trainjob.errors import CommandFailed, OutOfMemory
from trainjob.status import Category, Evidence, FinalPods, Outcome, build_outcome, derive_verdict
from trainjob.status.log_reasons import ProcessFailure, find_failed_process, find_killed_process
from trainjob.status.watchdog import RankEnd


def report(rank, exit_code, *, prefix="", message="Signal 9 (SIGKILL) received by PID 4712", signal_name=""):
    """Return the last lines of torchrun (torch 2.13) with two failed processes."""
    text = f"""\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
trainjob.frameworks.trl.pod.training FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-29_20:31:07
  host      : tune-node-0-0.tune.ml.svc
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_20:31:05
  host      : tune-node-0-0.tune.ml.svc
  rank      : {rank} (local_rank: {rank})
  exitcode  : {exit_code} (pid: 4712) {signal_name}
  error_file: <N/A>
  traceback : {message}
============================================================"""
    return [f"{prefix}{line}" for line in text.splitlines()]


def outcome_of(lines, state=None):
    evidence = Evidence(FinalPods([pod(0, state=state or terminated_state(1))]), log_tail=lines[-20:])
    return build_outcome(JOB, derive_verdict(JOB), evidence)


@pytest.mark.parametrize("prefix", ["", "[node-1] ", "[default0]:"])
@pytest.mark.parametrize("exit_code", [1, 99, -9, -11, -64])
def test_rank_and_exit_code_are_those_of_the_root_cause(prefix, exit_code):
    assert find_failed_process(report(5, exit_code, prefix=prefix)) == ProcessFailure(5, exit_code)


def test_the_last_report_counts():
    assert find_failed_process([*report(1, -9), "the launcher starts again", *report(3, 2)]) == ProcessFailure(3, 2)


@pytest.mark.parametrize(
    ("own", "other", "is_cause"),
    [(1, -9, True), (1, -11, True), (1, -15, False), (1, 1, False), (-9, -11, False)],
)
def test_a_process_that_a_signal_has_ended_is_the_cause_of_those_that_lose_it(own, other, is_cause):
    others = [["step 4"], report(0, own), report(3, other)]
    assert find_killed_process(report(0, own), others) == (ProcessFailure(3, other) if is_cause else None)
    assert find_killed_process(["ValueError: row 7"], others) is None


def test_the_outcome_names_the_process_that_is_the_cause():
    evidence = Evidence(
        FinalPods([pod(0, state=terminated_state(1))]), log_tail=report(0, 1)[-20:], killed=ProcessFailure(3, -9)
    )
    outcome = build_outcome(JOB, derive_verdict(JOB), evidence)
    assert outcome.failed_process == ProcessFailure(3, -9)
    assert outcome.category is Category.OUT_OF_MEMORY


def test_a_line_of_the_watchdog_may_be_anywhere_in_the_report():
    lines = report(3, -9)
    for place in range(len(lines)):
        with_another = [*lines[:place], "watchdog: rank 3 was ended by SIGKILL after step 5", *lines[place:]]
        assert find_failed_process(with_another) == ProcessFailure(3, -9)


@pytest.mark.parametrize(("end", "is_cause"), [(RankEnd(3, 9, 41), True), (RankEnd(3, 15, 41), False)])
@pytest.mark.parametrize("own", [1, -9])
def test_a_process_that_a_watchdog_has_seen_killed_is_the_cause_without_a_report_of_its_launcher(own, end, is_cause):
    killed = find_killed_process(report(0, own), [report(0, own)], [RankEnd(2, None, 40), end])
    assert killed == (ProcessFailure(3, -9) if is_cause and own == 1 else None)


@pytest.mark.parametrize(
    ("ends", "after"),
    [
        ([RankEnd(0, 15, 40), RankEnd(3, 9, 41)], " after step 41"),
        ([RankEnd(3, 9, None)], ""),
        ([RankEnd(0, 15, 40)], ""),
    ],
)
def test_the_last_step_of_a_killed_process_is_that_which_its_watchdog_has_written(ends, after):
    evidence = Evidence(
        FinalPods([pod(0, state=terminated_state(1))]),
        log_tail=report(0, 1)[-20:],
        killed=ProcessFailure(3, -9),
        rank_ends=ends,
    )
    outcome = build_outcome(JOB, derive_verdict(JOB), evidence)
    assert outcome.printed_reason.startswith(f"rank 3 was ended by SIGKILL{after}, as Linux")
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


@pytest.mark.parametrize("cut", [slice(None, -5), slice(-4, None), slice(0, 0)])
def test_an_incomplete_report_names_no_process(cut):
    assert find_failed_process(report(1, -9)[cut]) is None


def test_a_killed_process_is_named_and_memory_is_suspected():
    outcome = outcome_of(["RuntimeError: [gloo] Connection closed by peer", *report(1, -9, signal_name="(SIGKILL)")])
    assert (outcome.category, outcome.rank, outcome.exit_code) == (Category.OUT_OF_MEMORY, 0, 1)
    assert outcome.failed_process == ProcessFailure(1, -9)
    first, *_ = outcome.explain().splitlines()
    assert first == (
        "TrainJob ml/tune failed in step node, rank 1, exit code -9: "
        "rank 1 was ended by SIGKILL, as Linux ends a process if memory is exhausted"
    )
    with pytest.raises(OutOfMemory, match="resources_per_node"):
        outcome.raise_for_failure()
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


@pytest.mark.parametrize(
    ("exit_code", "reason"),
    [
        (-7, "rank 1 was ended by SIGBUS, often because /dev/shm is full"),
        (-11, "rank 1 was ended by SIGSEGV"),
        (-63, "rank 1 was ended by signal 63"),
    ],
)
def test_another_signal_is_the_reason_and_not_the_errors_of_the_other_processes(exit_code, reason):
    lines = report(1, exit_code)
    outcome = outcome_of([*lines[:-9], "RuntimeError: [gloo] Connection closed by peer", *lines[-9:]])
    assert (outcome.category, outcome.cause) == (Category.APPLICATION, reason)


def test_an_error_of_python_stays_the_reason():
    lines = report(1, 1, message="Traceback (most recent call last):")
    error = "ValueError: row 7 has no text"
    outcome = outcome_of([*lines[:-1], error, lines[-1]])
    assert (outcome.category, outcome.printed_reason) == (Category.APPLICATION, error)
    assert "step node, rank 1, exit code 1: ValueError: row 7 has no text" in outcome.explain()
    with pytest.raises(CommandFailed):
        outcome.raise_for_failure()


def test_a_container_that_the_kernel_ended_needs_no_report():
    outcome = outcome_of(["step 7 of 9"], terminated_state(137, reason="OOMKilled"))
    assert (outcome.failed_process, outcome.first_failure) == (None, (0, 137))
