"""Interpretation of a TrainJob's objects: pure functions over plain dicts.

They do no I/O and read no clock, so the same dict always gives the same result. Operators, triggers, pipeline steps and
commands all use them.
"""

from trainjob.status.diagnostics import Finding
from trainjob.status.evaluation_summary import summarize_evaluation
from trainjob.status.evidence import Evidence, FinalPods
from trainjob.status.failure_rules import Category
from trainjob.status.outcome import Outcome, build_outcome
from trainjob.status.pods import ContainerFailure, count_restarts, find_failures, find_restarts, pending_reasons
from trainjob.status.progress import LogParser, Progress, TransferLogParser
from trainjob.status.step_result import get_model_facts, parse_step_result
from trainjob.status.tracking import parse_tracking_url
from trainjob.status.trainer_status import read_trainer_status
from trainjob.status.usage import Usage, compute_usage, get_first_start
from trainjob.status.verdict import Phase, Verdict, derive_verdict

__all__ = [
    "Category",
    "ContainerFailure",
    "Evidence",
    "FinalPods",
    "Finding",
    "LogParser",
    "Outcome",
    "Phase",
    "Progress",
    "TransferLogParser",
    "Usage",
    "Verdict",
    "build_outcome",
    "compute_usage",
    "count_restarts",
    "derive_verdict",
    "find_failures",
    "find_restarts",
    "get_first_start",
    "get_model_facts",
    "parse_step_result",
    "parse_tracking_url",
    "pending_reasons",
    "read_trainer_status",
    "summarize_evaluation",
]
