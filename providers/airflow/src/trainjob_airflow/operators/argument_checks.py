"""Checks of arguments that several operators have, when the DAG is parsed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob_airflow.operators.templates import is_resolved_at_run_time

CLUSTER_FIELDS = ("namespace", "kubernetes_conn_id", "cluster_context")
"""Template fields of every operator, sensor and workspace."""
_TYPES = {"kubernetes_conn_id": (str, "a text"), "cluster_context": (str, "a text"), "in_cluster": (bool, "a bool")}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain (Kubernetes 1.36, IsDNS1123Subdomain)


def check_cluster_arguments(task: Any, names: Sequence[str] = ("namespace",)) -> None:
    """Check the attributes of an operator, a sensor or a workspace when the DAG is parsed.

    Templates and other tasks' results are not known yet. They are checked before the first request.

    Args:
        task: object with these attributes, or some of them.
        names: attributes that are names of Kubernetes; they may be empty.

    Raises:
        InvalidSpec: an attribute has another type, or is not a name of Kubernetes.
    """
    for field, (kind, text) in _TYPES.items():
        value = getattr(task, field, None)
        if value is not None and not isinstance(value, kind) and not is_resolved_at_run_time(value):
            raise InvalidSpec(Problem(field, repr(value), f"it must be {text} or None"))
    for field in names:
        value = getattr(task, field)
        if value and not is_resolved_at_run_time(value) and not (isinstance(value, str) and _NAME.fullmatch(value)):
            rule = "it must be a name of Kubernetes: lower case letters, digits, - and ."
            raise InvalidSpec(Problem(field, repr(value), rule))


def check_exit_codes(given: Any) -> frozenset[int]:
    """Return the exit codes of the argument `skip_on_exit_code`.

    Args:
        given: an exit code, several, or None.

    Raises:
        InvalidSpec: an exit code is not a whole number from 1 to 255.
    """
    codes = [] if given is None else [given] if not isinstance(given, Collection) or isinstance(given, str) else given
    if all(isinstance(code, int) and not isinstance(code, bool) and 1 <= code <= 255 for code in codes):
        return frozenset(codes)
    rule = "give an exit code from 1 to 255, or a list of them; 0 is success"
    raise InvalidSpec(Problem("skip_on_exit_code", repr(given), rule))


def check_log_containers(names: Any) -> list[str] | None:
    """Return the names of the containers whose log lines are written.

    Args:
        names: the operator's argument; None means all containers.

    Raises:
        InvalidSpec: the argument is not a list of names, or it is empty.
    """
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    if names is not None and not (is_list and names and all(isinstance(name, str) and name for name in names)):
        rule = "give a list of container names, such as ['node']; get_logs=False writes no lines of containers"
        raise InvalidSpec(Problem("log_containers", repr(names), rule))
    return list(names) if names else None


def check_durable(given: Any) -> bool:
    """Return True, the only value of the argument `durable`.

    Raises:
        InvalidSpec: another value was given.
    """
    if given is True:
        return True
    rule = (
        "a TrainJob always outlives its worker, and the next try adopts it; omit the argument. on_kill='delete' and "
        "adopt_undelivered=False are what you can choose"
    )
    raise InvalidSpec(Problem("durable", repr(given), rule))
