"""Number of nodes of one attempt of a request that has a range of them.

An attempt that gets no reservation ends, and the next one requests fewer nodes. The rule is an annotation of the
TrainJob, so that every process that waits for it applies it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from trainjob.manifest import labels
from trainjob.manifest.identity import get_config
from trainjob.spec import FineTune, FrameworkConfig, Step, TrainJob
from trainjob.spec.nodes import DEFAULT_SHRINK_AFTER, TrainingNodes

StepT = TypeVar("StepT", FineTune, TrainJob)


class Shrinking(NamedTuple):
    """Rule for an attempt that gets no reservation.

    Attributes:
        num_nodes: number of nodes that the next attempt requests.
        after: seconds without a reservation after which this attempt ends.
    """

    num_nodes: int
    after: float

    def to_text(self) -> str:
        """Return the text of the annotation."""
        return json.dumps({"num_nodes": self.num_nodes, "after": self.after})


def read_shrinking(job: Mapping[str, Any]) -> Shrinking | None:
    """Return the rule that a TrainJob has as its annotation; None without one."""
    text = labels.get_annotation(job, labels.SHRINKING)
    try:
        found = json.loads(text) if text else {}
        return Shrinking(int(found["num_nodes"]), float(found["after"])) if found else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):  # users can edit it
        return None


def get_nodes(step: Step) -> TrainingNodes | None:
    """Return the part of a request that has its nodes; None for other requests."""
    found = get_config(step) or (step.trainer if isinstance(step, TrainJob) else None)
    return found if isinstance(found, TrainingNodes) else None


def find_range(step: Step) -> TrainingNodes | None:
    """Return the part of a request that has a range of nodes; None without a range."""
    nodes = get_nodes(step)
    return nodes if nodes and isinstance(nodes.num_nodes, tuple) else None


def find_shrinking(step: Step, num_nodes: int | None = None) -> Shrinking | None:
    """Return the rule for an attempt with a number of nodes.

    Args:
        step: the request.
        num_nodes: number of nodes of the attempt; None means the maximum.

    Returns:
        None if no attempt requests fewer nodes.
    """
    nodes = find_range(step)
    if nodes is None:
        return None
    fewer = [count for count in nodes.node_counts if count < (num_nodes or nodes.node_counts[0])]
    return Shrinking(fewer[0], (nodes.shrink_after or DEFAULT_SHRINK_AFTER).total_seconds()) if fewer else None


def describe_node_count(step: Step, num_nodes: int) -> str:
    """Return what an attempt requests, for the log; empty without a range of nodes."""
    nodes = find_range(step)
    if nodes is None:
        return ""
    most, *_, least = nodes.node_counts
    text = f"requests {num_nodes} of {least} to {most} nodes"
    if isinstance(nodes, FrameworkConfig):
        batches = getattr(nodes.with_nodes(num_nodes), "gradient_accumulation_steps", None) or 1
        text += f"; with gradient_accumulation_steps={batches}, each step still has {nodes.samples_per_step} samples"
    shrinking = find_shrinking(step, num_nodes)
    return (
        f"{text}. After {shrinking.after:g} s without them, the next attempt requests {shrinking.num_nodes}"
        if shrinking
        else text
    )


def with_node_count(step: StepT, num_nodes: int | None) -> StepT:
    """Return a request with a fixed number of nodes.

    Args:
        step: the request; without a range, it is returned unchanged.
        num_nodes: number of nodes in its range; another one, or None, means the maximum.
    """
    nodes = find_range(step)
    if nodes is None:
        return step
    fixed = nodes.with_nodes(num_nodes if num_nodes in nodes.node_counts else nodes.node_counts[0])
    part = "config" if get_config(step) is nodes else "trainer"
    return step.model_copy(update={part: fixed})
