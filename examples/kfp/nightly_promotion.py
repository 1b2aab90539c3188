"""Fine-tune, compare with the model in production, and promote the new model if it is not worse.

    nightly_promotion.py compile OUT.yaml
    nightly_promotion.py run minimum=0.8

Schedule it as a recurring run. All runs share the claim `tickets`, and each exports its model to a folder of its own.
So a model that is served is never overwritten. Both models answer the same held-out tickets. `serve` makes `served` a
link to the model; with KServe, omit `function`, and give the name of its service. A repeated step promotes nothing
twice. However the run ends, its exit handler leaves no running TrainJob.
"""

from kfp import dsl
from tickets_llm import CPU, TINY, main

from trainjob_kfp import (
    cleanup,
    evaluate_model,
    export_model,
    fine_tune,
    initialize_dataset,
    initialize_model,
    promote_model,
    source,
)

CANDIDATE = f"models/{dsl.PIPELINE_JOB_ID_PLACEHOLDER}"
IMAGE = "pytorch/pytorch"  # on a real cluster, use an image with torch, transformers and pyarrow


def answers(model_path):
    """Return whether each held-out ticket gets the right answer."""
    import os
    from pathlib import Path

    import torch
    from pyarrow.parquet import ParquetFile
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    [held_out] = Path(os.environ["HELD_OUT"]).glob("*.parquet")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path)
    model = LlamaForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    found = []
    for row in ParquetFile(held_out).read().to_pylist():
        chat = [{"role": "user", "content": row["input"]}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        tokens = model.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        answer = tokenizer.decode(tokens[0, prompt.shape[1] :], skip_special_tokens=True)
        found.append({"right": float(answer == row["output"])})
    return found


def serve(uri):
    """Make `served` a link to a model such as `pvc://tickets/models/7`, or remove it."""
    import os
    from pathlib import Path

    served = Path(os.environ["FOLDER"], "served")
    if not uri:
        served.unlink(missing_ok=True)
        return
    new = served.with_name("served.new")
    new.unlink(missing_ok=True)
    new.symlink_to(uri.split("/", 3)[3])
    new.replace(served)


@dsl.pipeline
def promote(passed: bool, workspace: str):
    """Promote the model if its gates have passed.

    This is a separate pipeline, because kfp.local 2.17 accepts a condition on a parameter, but not on one of several
    outputs of a step.
    """
    with dsl.If(passed == True):  # noqa: E712 - kfp builds the condition from this comparison
        promote_model(
            model=f"/workspace/{CANDIDATE}",
            workspace=workspace,
            service="tickets",
            function=source(serve),
            env={"FOLDER": "/workspace"},
        )


@dsl.pipeline(name="nightly-promotion")
def nightly_promotion(
    minimum: float = 0.8,
    epochs: float = 4.0,
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    workspace: str = "tickets",
):
    with dsl.ExitHandler(cleanup()):
        dataset = initialize_dataset(storage_uri=dataset_uri, workspace=workspace)
        model = initialize_model(storage_uri=model_uri, workspace=workspace).after(dataset)
        tune = fine_tune(
            model="llama3.2-1b",
            framework="torchtune",
            workspace=workspace,
            epochs=epochs,
            batch_size=8,
            learning_rate=3e-3,
            config={"dtype": "fp32", "overrides": [*CPU, *TINY]},
            after_jobs=[dataset.outputs["job"], model.outputs["job"]],
        )
        candidate = export_model(
            workspace=workspace, destination=f"/workspace/{CANDIDATE}", after_jobs=[tune.outputs["job"]]
        )
        scored = evaluate_model(
            workspace=workspace,
            model_path=CANDIDATE,
            champion={"service": "tickets", "service_kind": "Command"},
            allow_missing_champion=True,  # in the first night
            function=source(answers),
            gates={"answers/right": {"minimum": minimum, "not_worse_than_champion": 0.02}},
            image=IMAGE,
            env={"HELD_OUT": "/workspace/dataset/heldout"},
            after_jobs=[candidate.outputs["job"], tune.outputs["job"]],
        )
        promote(passed=scored.outputs["passed"], workspace=workspace)


if __name__ == "__main__":
    main(nightly_promotion, __doc__)
