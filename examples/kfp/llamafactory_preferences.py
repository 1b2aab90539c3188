"""Fine-tune an adapter with LLaMA-Factory, then apply direct preference optimization (DPO).

    llamafactory_preferences.py compile OUT.yaml
    llamafactory_preferences.py run

The first training learns answers with LoRA. An export writes the merged model to a folder of the workspace, and the
second training starts from this folder (`model_path`). It learns which of two answers is better, with all weights. The
rows of a dataset for TRL need no change. The pods use LLaMA-Factory's own image.

On a real cluster, name a real dataset and model, and add `config={"precision": "bf16"}`. For a GPU, call
`set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)` on the tasks.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


@dsl.pipeline(
    name="llamafactory-preferences",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteOnce"]}),
        )
    ),
)
def llamafactory_preferences(
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
    model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE).after(dataset)
    sft = fine_tune(
        model="tiny-llama",
        framework="llamafactory",
        method="sft",
        workspace=WORKSPACE,
        dataset_path="chats",
        output_path="sft",
        epochs=1,
        batch_size=8,
        learning_rate=1e-2,
        lora_rank=16,
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    merged = export_model(
        workspace=WORKSPACE, output_path="sft", destination="/workspace/sft", after_jobs=[sft.outputs["job"]]
    )
    dpo = fine_tune(
        model="tiny-llama",
        framework="llamafactory",
        method="dpo",
        workspace=WORKSPACE,
        model_path="sft",
        dataset_path="pairs",
        output_path="dpo",
        epochs=1,
        batch_size=8,
        learning_rate=1e-3,
        arguments={"pref_beta": 0.1, "logging_steps": 5},
        after_jobs=[merged.outputs["job"]],
    )
    export_model(workspace=WORKSPACE, output_path="dpo", destination=destination, after_jobs=[dpo.outputs["job"]])


if __name__ == "__main__":
    main(llamafactory_preferences, __doc__)
