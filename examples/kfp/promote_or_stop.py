"""Fine-tune, score the model on tickets it has not seen, and promote it only if it is good enough.

    promote_or_stop.py compile OUT.yaml
    promote_or_stop.py run least_exact_match=0.9

All steps share the pipeline's own workspace, a claim that Kubeflow Pipelines makes for each run, so the model moves
nowhere before it is promoted; leave `destination` empty on a cluster, and it goes to the run's artifacts. Whatever
happens to the run, its exit handler leaves no TrainJob behind that still works.
"""

from pathlib import Path

from kfp import dsl
from tickets_llm import CPU, TINY, main

from trainjob_kfp import cleanup, evaluate, export_model, fine_tune, initialize_dataset, initialize_model, source

SCRIPT = Path(__file__).resolve().parent.parent / "tickets" / "evaluate.py"
IMAGE = "pytorch/pytorch"  # on a real cluster an image with torch, transformers and pyarrow
CANDIDATE, HELD_OUT = "/workspace/candidate", "/workspace/dataset/heldout"
WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


def exact_match(script):
    """Runs with rank 0 in the evaluation's TrainJob; only this text travels there."""
    import json
    import os
    import subprocess
    import sys
    from pathlib import Path

    [held_out] = Path(os.environ["HELD_OUT"]).glob("*.parquet")
    command = [sys.executable, "-c", script, os.environ["MODEL"], held_out]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    right, asked = map(int, json.loads(done.stdout)["exact_match"].split("/"))
    return {"exact_match": right / asked, "asked": asked}


@dsl.pipeline
def promote(passed: bool, workspace: str, destination: str):
    """Apart, as kfp.local 2.17 understands a condition on a parameter, but not on one of several outputs of a step."""
    with dsl.If(passed == True):  # noqa: E712 - what kfp makes a condition of
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
        model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE)
        tune = fine_tune(
            model="llama3.2-1b",
            workspace=WORKSPACE,
            epochs=4,
            batch_size=8,
            learning_rate=3e-3,
            config={"dtype": "fp32", "dataset_preprocess_config": {"source": "parquet"}},
            overrides=[*CPU, *TINY],
        ).after(dataset, model)
        candidate = export_model(workspace=WORKSPACE, destination=CANDIDATE).after(tune)
        scored = evaluate(
            function=source(exact_match),
            function_args={"script": SCRIPT.read_text()},
            metric="exact_match",
            minimum=least_exact_match,
            workspace=WORKSPACE,
            image=IMAGE,
            env={"MODEL": CANDIDATE, "HELD_OUT": HELD_OUT},
        ).after(candidate)
        promote(passed=scored.outputs["passed"], workspace=WORKSPACE, destination=destination)


if __name__ == "__main__":
    main(promote_or_stop, __doc__)
