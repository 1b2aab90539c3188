"""DAGs with what DAG authors use: chains, mapped tasks, groups, retries, timeouts, trigger rules, backfills.

The run's conf has the folder of the files as `go`; the DAG `chain` is started by the scheduler and has no conf.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import TaskGroup, dag

from trainjob_airflow import TrainJobOperator

GO = "{{ dag_run.conf['go'] }}"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
FOREVER = "while true; do sleep 0.2; done"


def shell(script):
    return {"image": "busybox", "command": ["sh", "-c", script]}


def until(name):
    """Return a trainer whose container runs until the file exists."""
    return shell(f"while [ ! -e {GO}/{name} ]; do sleep 0.2; done")


@dag(schedule="@once", start_date=START, catchup=False)
def chain():
    first, second, third = (TrainJobOperator(task_id=name, trainer=shell(f"echo {name}")) for name in ("a", "b", "c"))
    first >> second >> third


@dag(schedule=None, catchup=False)
def expanded():
    TrainJobOperator.partial(task_id="task").expand(trainer=[shell(f"echo number {n}") for n in range(6)])


@dag(schedule=None, catchup=False)
def grouped():
    with TaskGroup("prepare") as prepare:
        for name in ("left", "right"):
            TrainJobOperator(task_id=name, trainer=shell(f"echo {name}"))
    with TaskGroup("train") as train:
        TrainJobOperator(task_id="left", trainer=shell("echo train"))
    prepare >> train


@dag(schedule=None, catchup=False)
def retried():
    first_fails = shell("[ {{ ti.try_number }} -ge 2 ]")  # also after a restart in place
    TrainJobOperator(task_id="task", trainer=first_fails, retries=1, retry_delay=timedelta(seconds=1))


@dag(schedule=None, catchup=False)
def restarted():
    """Fail twice within the first second; the kubelet restarts the container in place."""
    count = f"n=$(cat {GO}/count 2>/dev/null || echo 0); echo $((n + 1)) > {GO}/count; [ $n -ge 2 ]"
    TrainJobOperator(task_id="task", trainer=shell(count))


@dag(schedule=None, catchup=False)
def timed_out():
    limit = {"execution_timeout": timedelta(seconds=30), "retries": 0}
    TrainJobOperator(task_id="deferred", trainer=shell(FOREVER), **limit)
    TrainJobOperator(task_id="on_worker", trainer=shell(FOREVER), deferrable=False, **limit)
    TrainJobOperator(task_id="unstarted", trainer=shell(FOREVER), runtime="missing-runtime", retries=0)


@dag(schedule=None, catchup=False, dagrun_timeout=timedelta(seconds=30))
def run_timed_out():
    TrainJobOperator(task_id="deferred", trainer=shell(FOREVER))
    TrainJobOperator(task_id="on_worker", trainer=shell(FOREVER), deferrable=False)


@dag(schedule=None, catchup=False)
def trigger_rules():
    broken = TrainJobOperator(task_id="broken", trainer=shell("exit 3"))
    TrainJobOperator(task_id="after_success", trainer=shell("true")).set_upstream(broken)
    TrainJobOperator(task_id="after_failure", trainer=shell("true"), trigger_rule="all_failed").set_upstream(broken)
    TrainJobOperator(task_id="always", trainer=shell("true"), trigger_rule="all_done").set_upstream(broken)


@dag(schedule="@daily", start_date=START, catchup=False)
def daily():
    TrainJobOperator(task_id="task", trainer=shell("echo {{ ds }}"))


@dag(schedule=None, catchup=False)
def killed():
    for action in ("delete", "suspend", "keep"):
        TrainJobOperator(task_id=action, trainer=until("task"), on_kill=action)


@dag(schedule=None, catchup=False)
def both():
    TrainJobOperator(task_id="deferred", trainer=until("task"))
    TrainJobOperator(task_id="on_worker", trainer=until("task"), deferrable=False)


@dag(schedule=None, catchup=False)
def eleven():
    """Wait in the triggerer with 11 tasks."""
    TrainJobOperator.partial(task_id="task", retries=1, retry_delay=timedelta(seconds=1)).expand(
        trainer=[until("task")] * 11
    )


@dag(schedule=None, catchup=False)
def limited():
    """Wait for at most 75 s with a deferred task and one on a worker."""
    arguments = {"trainer": until("task"), "execution_timeout": timedelta(seconds=75), "retries": 0}
    TrainJobOperator(task_id="deferred", **arguments)
    TrainJobOperator(task_id="on_worker", deferrable=False, **arguments)


@dag(schedule=None, catchup=False)
def never_starts():
    """Wait 90 s for a node that the cluster does not have."""
    trainer = {**shell("true"), "resources_per_node": {"cpu": "1000"}}
    TrainJobOperator(task_id="task", trainer=trainer, start_timeout=timedelta(seconds=90), retries=0)


@dag(schedule=None, catchup=False)
def missing_connection():
    retries = {"retries": 5, "retry_delay": timedelta(seconds=3)}
    TrainJobOperator(task_id="task", trainer=shell("true"), kubernetes_conn_id="later", **retries)


@dag(schedule=None, catchup=False)
def odd_bytes():
    """Print a line for each byte except newline and carriage return, then wait."""
    line = r"printf '%s %b end\n' $n '\0'$(printf '%03o' $n)"
    script = f"for n in $(seq 0 255); do [ $n = 10 ] || [ $n = 13 ] || {line}; done; echo all"
    TrainJobOperator(task_id="task", trainer=shell(f"{script}; while [ ! -e {GO}/task ]; do sleep 0.2; done"))


chain()
expanded()
grouped()
retried()
restarted()
timed_out()
run_timed_out()
trigger_rules()
daily()
killed()
both()
eleven()
limited()
missing_connection()
never_starts()
odd_bytes()
