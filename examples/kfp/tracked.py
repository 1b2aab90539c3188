"""Fine-tune with TRL, and track parameters and metrics on an MLflow server.

    tracked.py compile OUT.yaml
    tracked.py run mlflow=http://127.0.0.1:5000

The run on the server has the pipeline's name as experiment. Its tags lead back to the pipeline run, the step and the
TrainJob. A retry continues the same run. The output `tracking_url` is the address of its page. The pods need the
server's address; for a server with a login, add `"secret": "mlflow"`.

On a real cluster, name a real dataset and model, and remove `precision`, which is for CPUs. For a GPU, call
`set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)` on the task.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


@dsl.pipeline(
    name="tracked",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteOnce"]}),
        )
    ),
)
def tracked(
    mlflow: str = "http://mlflow.mlflow:5000",
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
    model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE).after(dataset)
    tune = fine_tune(
        model="tiny-llama",
        framework="trl",
        method="sft",
        workspace=WORKSPACE,
        dataset_path="chats",
        epochs=1,
        batch_size=8,
        learning_rate=3e-3,
        config={"precision": "fp32"},
        tracking={"backend": "mlflow", "tracking_uri": mlflow, "parameters": {"dataset": dataset_uri}},
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    export_model(workspace=WORKSPACE, destination=destination, after_jobs=[tune.outputs["job"]])


if __name__ == "__main__":
    main(tracked, __doc__)
