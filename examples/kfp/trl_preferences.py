"""Fine-tune an adapter with TRL, then apply direct preference optimization (DPO).

    trl_preferences.py compile OUT.yaml
    trl_preferences.py run

The first training learns answers with LoRA. An export writes the merged model to a folder of the workspace, and the
second training starts from this folder (`model_path`). It learns which of two answers is better. With
`adapter="keep"`, the last export writes the adapter instead of the merged model. For QLoRA, which needs a GPU, add
`"load_in_4bit": True` to `LORA`.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

LORA = {"lora_alpha": 32, "target_modules": ["all-linear"]}
WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


@dsl.pipeline(
    name="trl-preferences",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteOnce"]}),
        )
    ),
)
def trl_preferences(
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
    model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE).after(dataset)
    sft = fine_tune(
        model="tiny-llama",
        framework="trl",
        method="sft",
        workspace=WORKSPACE,
        dataset_path="chats",
        output_path="sft",
        epochs=1,
        batch_size=8,
        learning_rate=1e-2,
        lora_rank=16,
        config={"precision": "fp32", "peft_config": LORA},
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    sft_model = export_model(
        workspace=WORKSPACE, output_path="sft", destination="/workspace/sft", after_jobs=[sft.outputs["job"]]
    )
    dpo = fine_tune(
        model="tiny-llama",
        framework="trl",
        method="dpo",
        workspace=WORKSPACE,
        model_path="sft",
        dataset_path="pairs",
        output_path="dpo",
        epochs=1,
        batch_size=8,
        learning_rate=1e-3,
        lora_rank=16,
        arguments={"beta": 0.1},
        config={"precision": "fp32", "peft_config": LORA},
        after_jobs=[sft_model.outputs["job"]],
    )
    export_model(workspace=WORKSPACE, output_path="dpo", destination=destination, after_jobs=[dpo.outputs["job"]])


if __name__ == "__main__":
    main(trl_preferences, __doc__)
