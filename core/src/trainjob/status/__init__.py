"""What a TrainJob's objects mean: pure functions over plain dicts, asked by everybody who waits.

No IO and no clock: the same dict always gives the same answer, whether an operator, a trigger, a pipeline step or a
command asks.
"""

from trainjob.status.findings import Finding
from trainjob.status.handed_back import export_facts, handed_back
from trainjob.status.outcome import Outcome, conclude
from trainjob.status.pods import ContainerFailure, failures, pending_reasons
from trainjob.status.progress import FetchLogParser, LogParser, Progress
from trainjob.status.trouble import Category
from trainjob.status.verdict import Phase, Verdict, judge

__all__ = [
    "Category",
    "ContainerFailure",
    "FetchLogParser",
    "Finding",
    "LogParser",
    "Outcome",
    "Phase",
    "Progress",
    "Verdict",
    "conclude",
    "export_facts",
    "failures",
    "handed_back",
    "judge",
    "pending_reasons",
]
