"""Queries that the page sends to a cluster: TrainJobs of this Airflow, and details of one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trainjob.client import Cluster, list_warning_events
from trainjob.errors import ClusterError
from trainjob.inspection.description import find_queue_reasons
from trainjob.lifecycle import run_key_of
from trainjob.manifest import labels
from trainjob.status import Phase
from trainjob_airflow.plugins.job_sources import JobSource
from trainjob_airflow.plugins.rows import condition_rows, event_rows, get_instance_key, job_row, rank_rows
from trainjob_airflow.plugins.shared_query import SharedQuery
from trainjob_airflow.run_key import get_task_instance

_SELECTOR = f"{labels.RUN_KEY},{labels.ENGINE}=airflow"


@dataclass(frozen=True)
class JobDetails:
    """Details of one TrainJob at the time of a query.

    Attributes:
        cluster: client of its cluster.
        row: its row, computed with its pods.
        pods: its pods.
        conditions: rows of its conditions.
        ranks: one row for each pod.
        events: rows of its newest events.
    """

    cluster: Cluster
    row: dict[str, Any]
    pods: list[dict[str, Any]]
    conditions: list[dict[str, str]]
    ranks: list[dict[str, Any]]
    events: list[dict[str, Any]]


@dataclass(frozen=True)
class JobRows:
    """TrainJobs of this Airflow in a job source.

    Attributes:
        rows: one row for each TrainJob, by name. In a row, `newest` is True for the newest attempt of a task.
        problem: a sentence about TrainJobs that have no row; empty if there are none.
    """

    rows: dict[str, dict[str, Any]]
    problem: str = ""


@lru_cache(maxsize=32)
def list_query(source: JobSource) -> SharedQuery[JobRows]:
    """Return the shared query for the TrainJobs of this Airflow in a job source."""
    return SharedQuery(lambda: _fetch_rows(source))


@lru_cache(maxsize=256)
def details_query(source: JobSource, name: str) -> SharedQuery[JobDetails | None]:
    """Return the shared query for the details of one TrainJob in a job source.

    Its result is None if this Airflow has no TrainJob of that name there.
    """
    return SharedQuery(lambda: _fetch_details(source, name))


def _fetch_rows(source: JobSource) -> JobRows:
    cluster, namespace = source.connect()
    rows, failed = dict[str, dict[str, Any]](), 0
    for job in cluster.list_trainjobs(namespace, _SELECTOR):
        try:
            row = _build_row(job, source)
        except Exception:  # an odd TrainJob must not hide the others
            logging.getLogger(__name__).exception("The page can't show TrainJob %s", job["metadata"]["name"])
            failed += 1
            continue
        rows |= {row["name"]: row} if row else {}
    newest = {get_instance_key(row): row["uid"] for row in sorted(rows.values(), key=lambda row: row["attempt"])}
    shown = {name: {**row, "newest": newest[get_instance_key(row)] == row["uid"]} for name, row in rows.items()}
    see = "see the log of Airflow's API server"
    return JobRows(shown, f"{failed} TrainJobs of connection {source} can't be shown: {see}." if failed else "")


def _build_row(job: dict[str, Any], source: JobSource, pods: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any] | None:
    """Return the row of a TrainJob; None if it was not created for a task of this Airflow."""
    key = run_key_of(job)
    instance = get_task_instance(key) if key else None
    return job_row(job, instance, connection=source.connection, pods=pods) if instance else None


def _fetch_details(source: JobSource, name: str) -> JobDetails | None:
    cluster, namespace = source.connect()
    job = cluster.get_trainjob(name, namespace)
    if job is None or _build_row(job, source) is None:
        return None
    pods = cluster.list_pods(name, namespace)
    events: list[dict[str, Any]] = []
    with contextlib.suppress(ClusterError):  # the page shows the rest without events
        events += cluster.list_events(namespace, f"involvedObject.name={name}")
        events += list_warning_events(cluster, namespace, name, pods)
    row = _build_row(job, source, pods) or {}
    if row["phase"] == Phase.QUEUED.value:  # only its Kueue Workload has the reason
        with contextlib.suppress(ClusterError):
            row["reason"] = "; ".join([row["reason"], *map(str, find_queue_reasons(cluster, job))])
    return JobDetails(cluster, row, pods, condition_rows(job), rank_rows(pods), event_rows(events))
