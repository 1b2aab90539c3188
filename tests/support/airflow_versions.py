"""Names for tests that differ between Airflow 3.1 and 3.3, and marks of tests that need Airflow 3.3."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow import __version__

from trainjob_airflow.version_compat import CAN_OVERWRITE_RENDERED_FIELDS

AIRFLOW_VERSION = tuple(map(int, __version__.split(".")[:2]))
_RELEASE = tuple(map(int, __version__.split(".")[:3]))

try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization  # type: ignore[assignment, attr-defined]

__all__ = [
    "AIRFLOW_VERSION",
    "HAS_RETRY_POLICY",
    "HAS_TASK_STATE_STORE",
    "NO_RETRY_POLICY",
    "DagSerialization",
    "load_dags",
    "load_hooks",
    "needs_asset_state_store",
    "needs_connection_form",
    "needs_last_otel_metrics",
    "needs_on_kill",
    "needs_overwritten_fields",
    "needs_retry_policy",
    "needs_start_from_trigger",
    "needs_task_state_store",
]

# docs/reference/versions.md lists what an older Airflow lacks.
HAS_RETRY_POLICY = AIRFLOW_VERSION >= (3, 3)
NO_RETRY_POLICY = "Airflow 3.1 and 3.2 have no retry_policy"
needs_retry_policy = pytest.mark.skipif(not HAS_RETRY_POLICY, reason=NO_RETRY_POLICY)
needs_connection_form = pytest.mark.skipif(
    AIRFLOW_VERSION < (3, 2), reason="Airflow 3.1 does not read a connection form from the provider's metadata"
)
needs_on_kill = pytest.mark.skipif(AIRFLOW_VERSION < (3, 3), reason="Airflow 3.1 and 3.2 have no on_kill of triggers")
needs_start_from_trigger = pytest.mark.skipif(
    AIRFLOW_VERSION < (3, 3), reason="the scheduler of Airflow 3.1 and 3.2 does not start tasks in the triggerer"
)
HAS_TASK_STATE_STORE = AIRFLOW_VERSION >= (3, 3)
needs_task_state_store = pytest.mark.skipif(
    not HAS_TASK_STATE_STORE, reason="Airflow 3.1 and 3.2 have no state store of tasks"
)
needs_overwritten_fields = pytest.mark.skipif(
    not CAN_OVERWRITE_RENDERED_FIELDS, reason="Airflow 3.1.2 to 3.1.7 do not store rendered fields after a retried try"
)
needs_last_otel_metrics = pytest.mark.skipif(
    _RELEASE < (3, 1, 8), reason="Airflow 3.1.2 does not send the last metrics of a process to OpenTelemetry"
)
needs_asset_state_store = pytest.mark.skipif(
    AIRFLOW_VERSION < (3, 3), reason="Airflow 3.1 and 3.2 have no state store of assets"
)


def load_dags(folder: Path) -> Any:
    """Return Airflow's DagBag of the files in a folder."""
    try:
        from airflow.dag_processing.dagbag import BundleDagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag

        sys.path.append(str(folder))  # as BundleDagBag does, which Airflow 3.1.2 does not have
        return DagBag(folder, bundle_path=folder, include_examples=False)
    return BundleDagBag(folder, bundle_path=folder, bundle_name="tests")


def load_hooks() -> Mapping[str, Any]:
    """Return the hooks of all providers by connection type."""
    try:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
    except ImportError:  # Airflow 3.1
        from airflow.providers_manager import ProvidersManager

        return ProvidersManager().hooks
    return ProvidersManagerTaskRuntime().hooks
