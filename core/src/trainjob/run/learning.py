"""Finding out why a TrainJob does not get going: one look around it, for everybody who waits or watches."""

from __future__ import annotations

import contextlib
from typing import Any

from trainjob.cluster import Cluster, warning_events
from trainjob.errors import ClusterError
from trainjob.run.vigil import QUOTA, Vigil


def learn(cluster: Cluster, vigil: Vigil, now: float) -> None:
    """Read what tells it, and hand it to the decisions (blocking IO). Who may not look, or not now, knows less.

    Args:
        cluster: where.
        vigil: of the TrainJob; its `waits_for` says what to look at.
        now: seconds of the vigil's clock.
    """
    meta = vigil.job["metadata"]
    events: list[dict[str, Any]] = []
    workload = None
    with contextlib.suppress(ClusterError):
        if vigil.waits_for == QUOTA:
            workload = cluster.evidence.workload(meta["uid"], meta["namespace"])
        else:
            events = warning_events(cluster, meta["namespace"], meta["name"], vigil.pods.values(), recent=True)
    vigil.learn(events, workload, now)
