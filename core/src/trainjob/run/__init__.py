"""The life of one TrainJob: who asked for it, submit or adopt, wait, cancel."""

from trainjob.run.cancellation import cancel
from trainjob.run.identity import JobReference, RunKey
from trainjob.run.narration import Narrator
from trainjob.run.submission import Adopt, submit
from trainjob.run.suspension import set_suspended
from trainjob.run.vigil import Limits, OnTimeout
from trainjob.run.waiting import Listener, wait, wait_async

__all__ = [
    "Adopt",
    "JobReference",
    "Limits",
    "Listener",
    "Narrator",
    "OnTimeout",
    "RunKey",
    "cancel",
    "set_suspended",
    "submit",
    "wait",
    "wait_async",
]
