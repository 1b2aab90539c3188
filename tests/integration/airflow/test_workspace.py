"""Test of a workspace's setup and teardown in a run that fails."""

from __future__ import annotations

import pytest

from tests.integration.airflow.airflow_runs import run_dag


def list_claim_names(cluster):
    response = cluster._http.request("GET", "/api/v1/namespaces/default/persistentvolumeclaims", doing="list claims")
    return [claim["metadata"]["name"] for claim in response["items"]]


@pytest.mark.slow
def test_a_failed_run_keeps_or_deletes_its_workspace_as_keep_says(airflow, cluster):
    printed, tasks, state = run_dag(airflow, "workspaces")
    assert state == "failed", printed[-4000:]
    states = {task: state for task, (state, _) in tasks.items()}
    for keep, is_kept in (("on_failure", True), ("always", True), ("never", False)):
        assert states[f"{keep}_create"] == states[f"{keep}_delete"] == "success"
        assert (states[f"in_{keep}"], states[f"after_{keep}"]) == ("failed", "upstream_failed")
        kept = [name for name in list_claim_names(cluster) if name.startswith(f"workspaces-{keep.replace('_', '-')}-")]
        assert len(kept) == is_kept, keep
    # If the workspace cannot be created, its tasks and its teardown do not run.
    assert states["refused_create"] == "failed"
    assert states["in_refused"] == states["refused_delete"] == "upstream_failed"
    assert states["outside"] == "success"
