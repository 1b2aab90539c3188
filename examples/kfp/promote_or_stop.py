"""Fine-tune, evaluate on held-out tickets, and promote the model if it is good enough.

    promote_or_stop.py compile OUT.yaml
    promote_or_stop.py run least_exact_match=0.9

All steps share the pipeline's own workspace, a claim that Kubeflow Pipelines creates for each run. So the model is not
copied elsewhere before its promotion. On a cluster, leave `destination` empty to write the model to the run's
artifacts. However the run ends, its exit handler leaves no running TrainJob.
"""

from pathlib import Path

from kfp import dsl
from tickets_llm import CPU, TINY, main

from trainjob_kfp import cleanup, evaluate, export_model, fine_tune, initialize_dataset, initialize_model, source

SCRIPT = Path(__file__).resolve().parent.parent / "tickets" / "evaluate.py"
IMAGE = "pytorch/pytorch"  # on a real cluster, use an image with torch, transformers and pyarrow
CANDIDATE, HELD_OUT = "/workspace/candidate", "/workspace/dataset/heldout"
WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


def exact_match(script):
    """Return the model's score on the held-out tickets.

    Rank 0 of the evaluation's TrainJob runs it. Only the source of this function is sent, so it has its own imports.
    """
    import json
    import os
    import subprocess
    import sys
    from pathlib import Path

    [held_out] = Path(os.environ["HELD_OUT"]).glob("*.parquet")
    command = [sys.executable, "-c", script, os.environ["MODEL"], held_out]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    right, total = map(int, json.loads(done.stdout)["exact_match"].split("/"))
    return {"exact_match": right / total, "total": total}


@dsl.pipeline
def promote(passed: bool, workspace: str, destination: str):
    """Export the model if it has passed.

    This is a separate pipeline, because kfp.local 2.17 accepts a condition on a parameter, but not on one of several
    outputs of a step.
    """
    with dsl.If(passed == True):  # noqa: E712 - kfp builds the condition from this comparison
        export_model(workspace=workspace, destination=destination)


@dsl.pipeline(
    name="promote-or-stop",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteOnce"]}),
        )
    ),
)
def promote_or_stop(
    least_exact_match: float = 0.9,
    dataset_uri: str = "hf://demo/tickets/data",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    with dsl.ExitHandler(cleanup()):
        dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
        model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE).after(dataset)
        tune = fine_tune(
            model="llama3.2-1b",
            framework="torchtune",
            workspace=WORKSPACE,
            epochs=4,
            batch_size=8,
            learning_rate=3e-3,
            config={
                "dtype": "fp32",
                "dataset_preprocess_config": {"source": "parquet"},
                "overrides": [*CPU, *TINY],
            },
            after_jobs=[dataset.outputs["job"], model.outputs["job"]],
        )
        candidate = export_model(workspace=WORKSPACE, destination=CANDIDATE, after_jobs=[tune.outputs["job"]])
        scored = evaluate(
            function=source(exact_match),
            function_args={"script": SCRIPT.read_text()},
            metric="exact_match",
            minimum=least_exact_match,
            workspace=WORKSPACE,
            image=IMAGE,
            env={"MODEL": CANDIDATE, "HELD_OUT": HELD_OUT},
            after_jobs=[candidate.outputs["job"]],
        )
        promote(passed=scored.outputs["passed"], workspace=WORKSPACE, destination=destination)


if __name__ == "__main__":
    main(promote_or_stop, __doc__)
