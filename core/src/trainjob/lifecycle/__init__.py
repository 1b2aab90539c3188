"""Lifecycle of one TrainJob: submission or adoption, wait, cancellation and suspension."""

from trainjob.lifecycle.adoption import reattempt_notice
from trainjob.lifecycle.cancellation import cancel, cancel_at_work, give_up
from trainjob.lifecycle.external import FinishedJob, JobSelector, check_external, wait_external
from trainjob.lifecycle.identity import JobReference, RunKey, run_key_of
from trainjob.lifecycle.progress_log import ProgressLog
from trainjob.lifecycle.submission import reference_to, submit
from trainjob.lifecycle.suspension import set_suspended
from trainjob.lifecycle.wait_policy import Limits, OnTimeout
from trainjob.lifecycle.wait_session import Listener
from trainjob.lifecycle.waiting import wait, wait_async

__all__ = [
    "FinishedJob",
    "JobReference",
    "JobSelector",
    "Limits",
    "Listener",
    "OnTimeout",
    "ProgressLog",
    "RunKey",
    "cancel",
    "cancel_at_work",
    "check_external",
    "give_up",
    "reattempt_notice",
    "reference_to",
    "run_key_of",
    "set_suspended",
    "submit",
    "wait",
    "wait_async",
    "wait_external",
]
