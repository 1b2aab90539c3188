"""Attempts after a hang, which do not run on the node on which it hung."""

from __future__ import annotations

from tests.conformance.unstartable_jobs import wait_for_event
from tests.support.diagnosed_jobs import shell_job
from trainjob import RunKey
from trainjob.lifecycle import cancel, plan_resubmission, submit, wait
from trainjob.status import Category

HANG = "echo \"{'loss': 1.0, 'epoch': 0.1, 'step': 1}\"; sleep 600"
WATCHDOG = {"silence": "1s", "action": "restart", "avoid_nodes": True}


def test_the_next_attempt_waits_for_another_node(client, cluster, namespace):
    """An attempt after a hang is not bound to the node on which the last one hung, the only one here."""
    job, key = shell_job(HANG, job={"watchdog": WATCHDOG}), RunKey("conformance", "nodes", "hanging", namespace)
    first = submit(cluster, job, key)
    outcome = wait(cluster, first)
    [node] = client.list("Node", None)
    assert (outcome.category, outcome.hung_on) == (Category.HUNG, (node["metadata"]["name"],)), outcome.explain()
    second = submit(cluster, job, key, earlier=plan_resubmission(first, outcome, interruption_retries=1))
    assert second.hung_on == outcome.hung_on
    event = wait_for_event(client, namespace, "Pod", f"{second.name}-node-0-0-", "FailedScheduling")
    assert "didn't match Pod's node affinity/selector" in event["message"]
    cancel(cluster, second)
