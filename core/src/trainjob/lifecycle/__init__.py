"""Lifecycle of one TrainJob: submission or adoption, wait, cancellation and suspension."""

from trainjob.lifecycle.attempts import run_attempts
from trainjob.lifecycle.cancellation import Cancellation, cancel
from trainjob.lifecycle.delivery import mark_delivered
from trainjob.lifecycle.external import FinishedJob, JobSelector, check_external, wait_external
from trainjob.lifecycle.identity import JobReference, RunKey, find_digest, run_key_of
from trainjob.lifecycle.job_logs import Listener
from trainjob.lifecycle.progress_log import ProgressLog
from trainjob.lifecycle.resubmission import Resubmission, plan_resubmission
from trainjob.lifecycle.submission import reference_to, submit
from trainjob.lifecycle.suspension import set_suspended
from trainjob.lifecycle.wait_policy import KillAction, Limits
from trainjob.lifecycle.waiting import wait, wait_async

__all__ = [
    "Cancellation",
    "FinishedJob",
    "JobReference",
    "JobSelector",
    "KillAction",
    "Limits",
    "Listener",
    "ProgressLog",
    "Resubmission",
    "RunKey",
    "cancel",
    "check_external",
    "find_digest",
    "mark_delivered",
    "plan_resubmission",
    "reference_to",
    "run_attempts",
    "run_key_of",
    "set_suspended",
    "submit",
    "wait",
    "wait_async",
    "wait_external",
]
