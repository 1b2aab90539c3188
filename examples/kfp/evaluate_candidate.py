"""Evaluate a model, and propose it to a person, who approves it with a run of `promote_approved.py`.

    evaluate_candidate.py compile OUT.yaml
    evaluate_candidate.py run candidate=candidate

Kubeflow Pipelines has no step that waits for a person. So this pipeline ends with a proposal: the model's address and
the report of its evaluation. The page `summary` of `evaluate-model` shows the scores of both models and the gates.

The claim `tickets` has the model in the folder `candidate`, and task files in `tasks`. The link `champion` leads to the
model that is served.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import evaluate_model
from trainjob_kfp.image import BASE_IMAGE


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def propose(model: str, report: str) -> dict:
    """Return what a person approves."""
    import json

    return {"model": model, "report": json.loads(report)}


@dsl.pipeline(name="evaluate-candidate")
def evaluate_candidate(candidate: str = "candidate", workspace: str = "tickets"):
    scored = evaluate_model(
        workspace=workspace,
        model_path=candidate,
        champion_path="champion",
        allow_missing_champion=True,  # in the first run
        task_path="tasks",
        tasks=["tickets"],
        chat_template=True,
        gates={"tickets/exact_match": {"not_worse_than_champion": 0.02}},
        any_run=True,
        env={"HF_HUB_OFFLINE": "1"},
    )
    propose(model=f"/workspace/{candidate}", report=scored.outputs["report"])


if __name__ == "__main__":
    main(evaluate_candidate, __doc__)
