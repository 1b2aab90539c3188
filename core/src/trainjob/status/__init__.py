"""Interpretation of a TrainJob's objects: pure functions over plain dicts.

They do no I/O and read no clock, so the same dict always gives the same result. Operators, triggers, pipeline steps and
commands all use them.
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
