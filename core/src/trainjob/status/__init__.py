"""What a TrainJob's objects mean: pure functions over plain dicts, asked by everybody who waits.

No IO and no clock: the same dict always gives the same answer, whether an operator, a trigger, a pipeline step or a
command asks.
"""

from trainjob.status.outcome import Category, Outcome, conclude
from trainjob.status.pods import ContainerFailure, failures, pending_reasons
from trainjob.status.progress import Progress, TorchTuneProgress
from trainjob.status.verdict import Phase, Verdict, judge

__all__ = [
    "Category",
    "ContainerFailure",
    "Outcome",
    "Phase",
    "Progress",
    "TorchTuneProgress",
    "Verdict",
    "conclude",
    "failures",
    "judge",
    "pending_reasons",
]
