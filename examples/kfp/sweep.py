"""Try several learning rates at once, each in its own TrainJob, and export the best model.

    sweep.py compile OUT.yaml
    sweep.py run 'learning_rates=[1e-4, 3e-3]'

All steps share the dataset and the model of one workspace, and `output_path` separates their checkpoints. If the
trainings wait for GPUs, set a Kueue queue: `queue="gpu-team"`.
"""

from typing import List  # noqa: UP035 - kfp requires these types

from kfp import dsl
from tickets_llm import CPU, TINY, main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model
from trainjob_kfp.image import BASE_IMAGE

WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def best(metrics: dsl.Input[List[dsl.Metrics]], output_paths: List[str]) -> str:  # noqa: UP006
    """Return the folder of the checkpoints with the lowest loss."""
    losses = [one.metadata["loss"] for one in metrics]
    print(f"losses: {losses}")
    return output_paths[losses.index(min(losses))]


@dsl.pipeline(
    name="sweep",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteMany"]}),
        )
    ),
)
def sweep(
    learning_rates: List[float] = [1e-4, 3e-3],  # noqa: B006, UP006
    dataset_uri: str = "hf://demo/tickets/data",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
    model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE)
    with dsl.ParallelFor(learning_rates) as rate:
        tune = fine_tune(
            model="llama3.2-1b",
            framework="torchtune",
            workspace=WORKSPACE,
            output_path=f"rate-{rate}",
            learning_rate=rate,
            epochs=1,
            batch_size=8,
            config={
                "dtype": "fp32",
                "max_steps_per_epoch": 10,
                "seed": 1,
                "dataset_preprocess_config": {"source": "parquet"},
                "overrides": [*CPU, *TINY],
            },
            after_jobs=[dataset.outputs["job"], model.outputs["job"]],
        )
    chosen = best(
        metrics=dsl.Collected(tune.outputs["metrics"]), output_paths=dsl.Collected(tune.outputs["output_path"])
    )
    export_model(
        workspace=WORKSPACE,
        output_path=chosen.output,
        destination=destination,
        after_jobs=dsl.Collected(tune.outputs["job"]),
    )


if __name__ == "__main__":
    main(sweep, __doc__)
