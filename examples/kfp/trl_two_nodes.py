"""Fine-tune with TRL on two nodes.

    trl_two_nodes.py compile OUT.yaml
    trl_two_nodes.py run

Both nodes read the dataset and the model from the workspace and use its checkpoints, so its access mode is
ReadWriteMany. Each node computes half of every batch, and the nodes average their gradients (DDP). A model that is too
large for one GPU is sharded over all GPUs with `"fsdp": True`.

For GPUs, call `set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(8)` on the task, which starts eight
processes on each node. A retry resumes from the last complete checkpoint.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


@dsl.pipeline(
    name="trl-two-nodes",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteMany"]}),
        )
    ),
)
def trl_two_nodes(
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
    model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE)
    tune = fine_tune(
        model="tiny-llama",
        framework="trl",
        method="sft",
        workspace=WORKSPACE,
        dataset_path="chats",
        epochs=1,
        batch_size=8,
        learning_rate=3e-3,
        config={"num_nodes": 2, "precision": "fp32", "save_strategy": "steps", "save_steps": 10},
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    export_model(workspace=WORKSPACE, destination=destination, after_jobs=[tune.outputs["job"]])


if __name__ == "__main__":
    main(trl_two_nodes, __doc__)
