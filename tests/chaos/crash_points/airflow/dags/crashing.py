"""DAGs with one task for each point at which its process or the triggerer is killed.

The folder of a task's trap has the task's name.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from tests.chaos.crash_points.airflow.trapped_trigger import TrappedTrigger
from tests.support import crash_points
from trainjob_airflow import TrainJobOperator

FOLDER = "{{ dag_run.conf['folder'] }}"


class TrappedOperator(TrainJobOperator):
    """An operator whose process, or whose trigger, is killed or held at one point."""

    def pre_execute(self, context):
        self.trap_folder = f"{context['dag_run'].conf['folder']}/{self.task_id}"
        if not self.dies_in_triggerer:
            points = (
                *crash_points.DEFERRED_TASK_POINTS,
                *crash_points.WORKER_TASK_POINTS,
                *crash_points.KILLED_TASK_POINTS,
            )
            crash_points.install_traps(points, Path(self.trap_folder))

    def defer(self, *, trigger, **more):
        if self.dies_in_triggerer:
            _, arguments = trigger.serialize()
            trigger = TrappedTrigger(folder=self.trap_folder, **arguments)
        super().defer(trigger=trigger, **more)

    @property
    def dies_in_triggerer(self):
        return self.task_id.startswith("trigger")


def add_task(kind, point):
    name = f"{kind}-{point.slug}"
    fails = f"test -e {FOLDER}/{name}/mended || exit 3; " if point.fails_first else ""
    script = f"{fails}until test -e {FOLDER}/{name}/go; do sleep 0.2; done"
    TrappedOperator(
        task_id=name,
        trainer={"image": "busybox", "command": ["sh", "-c", script]},
        deferrable=kind in ("deferred", "trigger"),
        retries=5,
        retry_delay=timedelta(seconds=1),
    )


POINTS = {
    "crashing": {"deferred": crash_points.DEFERRED_TASK_POINTS, "worker": crash_points.WORKER_TASK_POINTS},
    "zombies": {"zombie": crash_points.ZOMBIE_POINTS},
    "triggers": {"trigger": crash_points.TRIGGER_POINTS},
    "killed": {"worker": crash_points.KILLED_TASK_POINTS, "trigger": crash_points.KILLED_TRIGGER_POINTS},
}
for dag_id, points_by_kind in POINTS.items():
    with DAG(dag_id, schedule=None, catchup=False, max_active_tasks=32):
        for kind, points in points_by_kind.items():
            for point in points:
                add_task(kind, point)
