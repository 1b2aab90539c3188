"""Let a person decide between the evaluation and the promotion of a model.

The run waits at `approve` until somebody presses Approve or Reject under Required Actions in Airflow's UI, and occupies
no worker meanwhile. The question shows the scores of both models. After Reject, or after two days, `promote` is skipped
and the champion stays. If a gate fails, there is no question.

The volume `tickets` has the model in the folder `candidate`, a parameter of the run, and task files in `tasks`. The
link `champion` leads to the model that is served. With KServe, give `service` without `function`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import dag

from trainjob_airflow import EvaluateOperator, PromoteOperator

WORKSPACE = "tickets"


def link_champion(uri):
    """Make `champion` a link to a model such as `pvc://tickets/candidate`, or remove it."""
    import os
    from pathlib import Path

    champion = Path(os.environ["FOLDER"], "champion")
    if not uri:
        champion.unlink(missing_ok=True)
        return
    new = champion.with_name("champion.new")
    new.unlink(missing_ok=True)
    new.symlink_to(uri.split("/", 3)[3])
    new.replace(champion)


# One run at a time: an answer after two days must not replace a model that a later run has promoted.
@dag(
    schedule=None,
    max_active_runs=1,
    default_args={"retries": 2},
    params={"candidate": "candidate"},
    doc_md=__doc__,
)
def approval():
    evaluate = EvaluateOperator(
        task_id="evaluate",
        workspace=WORKSPACE,
        model_path="{{ params.candidate }}",
        champion_path="champion",
        allow_missing_champion=True,  # in the first run
        task_path="tasks",
        tasks=["tickets"],
        chat_template=True,
        gates={"tickets/exact_match": {"not_worse_than_champion": 0.02}},
        any_run=True,
        env={"HF_HUB_OFFLINE": "1"},
    )
    approve = ApprovalOperator(
        task_id="approve",
        subject="Promote {{ params.candidate }}?",
        body="{{ ti.xcom_pull(task_ids='evaluate')['summary'] }}",
        response_timeout=timedelta(days=2),
        defaults=ApprovalOperator.REJECT,
    )
    promote = PromoteOperator(
        task_id="promote",
        workspace=WORKSPACE,
        model="/workspace/{{ params.candidate }}",
        service="tickets",
        function=link_champion,
        env={"FOLDER": "/workspace"},
    )
    evaluate >> approve >> promote


approval()
