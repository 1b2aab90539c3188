"""Check of the arguments that say in which cluster and namespace a task finds its objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob_airflow.operators.templates import is_resolved_at_run_time

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
