"""The life of one TrainJob: who asked for it, submit or adopt, wait, cancel; and sweeping up after all of them."""

from trainjob.run.cancellation import cancel, cancel_at_work, give_up
from trainjob.run.identity import JobReference, RunKey, run_key_of
from trainjob.run.lookout import Ended, Wanted, look_for, wait_for_async
from trainjob.run.narration import Narrator
from trainjob.run.submission import reference_to, submit
from trainjob.run.suspension import set_suspended
from trainjob.run.sweeping import Swept, sweep
from trainjob.run.vigil import Limits, OnTimeout
from trainjob.run.waiting import Listener, wait, wait_async

__all__ = [
    "Ended",
    "JobReference",
    "Limits",
    "Listener",
    "Narrator",
    "OnTimeout",
    "RunKey",
    "Swept",
    "Wanted",
    "cancel",
    "cancel_at_work",
    "give_up",
    "look_for",
    "reference_to",
    "run_key_of",
    "set_suspended",
    "submit",
    "sweep",
    "wait",
    "wait_async",
    "wait_for_async",
]
