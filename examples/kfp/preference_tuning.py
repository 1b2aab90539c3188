"""Fine-tune a model on answers, then apply direct preference optimization (DPO).

    preference_tuning.py compile OUT.yaml
    preference_tuning.py run

The second training learns which of two answers is better. It starts from the first training's model: an export writes
this model to a folder of the workspace, and `model_path` names the folder.
"""

from kfp import dsl
from tickets_llm import CPU, TINY, main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

TINY_LORA = ["model=torchtune.models.llama3_2.lora_llama3_2", *TINY[1:]]
WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


@dsl.pipeline(
    name="preference-tuning",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteOnce"]}),
        )
    ),
)
def preference_tuning(
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
    model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE).after(dataset)
    answers = fine_tune(
        model="llama3.2-1b",
        framework="torchtune",
        workspace=WORKSPACE,
        output_path="answers",
        epochs=1,
        batch_size=8,
        learning_rate=3e-3,
        config={"dtype": "fp32", "overrides": [*CPU, *TINY]},
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    taught = export_model(
        workspace=WORKSPACE, output_path="answers", destination="/workspace/taught", after_jobs=[answers.outputs["job"]]
    )
    preferences = fine_tune(
        model="llama3.2-1b",
        framework="torchtune",
        workspace=WORKSPACE,
        model_path="taught",
        dataset_path="pairs",
        output_path="preferences",
        epochs=1,
        batch_size=8,
        learning_rate=1e-3,
        lora_rank=16,
        config={
            "preference_tuning": {"beta": 0.1},
            "peft_config": {"lora_alpha": 32},
            "dataset_preprocess_config": {"kind": "preference", "source": "parquet"},
            "gradient_accumulation_steps": 1,
            "dtype": "fp32",
            "overrides": [*CPU, *TINY_LORA, "lr_scheduler.num_warmup_steps=5"],
        },
        after_jobs=[taught.outputs["job"]],
    )
    export_model(
        workspace=WORKSPACE, output_path="preferences", destination=destination, after_jobs=[preferences.outputs["job"]]
    )


if __name__ == "__main__":
    main(preference_tuning, __doc__)
