"""Fine-tune a text model with TRL (SFT); `make demo-kfp FRAMEWORK=trl` runs this pipeline.

    trl_sft.py compile OUT.yaml
    trl_sft.py run

TRL trains every language model that transformers can load. The rows have `prompt` and `completion`, `messages` or
`text`; for other names, add `"columns": {"prompt": "question", "completion": "reply"}` to `config`. The argument
`model` is only a name for the metadata: the trained model is the one that the step before downloads. The claim
`tickets` must exist.

On a real cluster, name a real dataset and model, and remove `precision`, which is for CPUs. For a GPU, call
`set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)` on the task. To train an adapter instead of all
weights, add `lora_rank=16`.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model


@dsl.pipeline(name="trl-sft")
def trl_sft(
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
    workspace: str = "tickets",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=workspace)
    model = initialize_model(storage_uri=model_uri, workspace=workspace).after(dataset)
    tune = fine_tune(
        model="tiny-llama",
        framework="trl",
        method="sft",
        workspace=workspace,
        dataset_path="chats",
        epochs=4,
        batch_size=8,
        learning_rate=3e-3,
        config={"precision": "fp32"},
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    export_model(workspace=workspace, destination=destination, after_jobs=[tune.outputs["job"]])


if __name__ == "__main__":
    main(trl_sft, __doc__)
