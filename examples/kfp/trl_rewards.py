"""Train with a reward function (GRPO).

    trl_rewards.py compile OUT.yaml
    trl_rewards.py run

TRL lets the model answer each prompt several times. The reward function scores the answers, and the model learns to
give those with higher scores. The function gets the answers and the dataset's other columns, here `answer`. Its source
is sent to the pods. It therefore imports its modules inside and uses no names from outside. A function that is
installed in the image is named instead: `"reward_functions": ["my_package.rewards.similarity"]`.

On a real cluster, start from a model that already answers, for example from the export of a fine-tuning
(`model_path`). With a GPU and an image that contains vLLM, `config={"use_vllm": True}` generates the answers much
faster.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model, source

WORKSPACE = dsl.WORKSPACE_PATH_PLACEHOLDER


def similarity(completions, answer, **_):
    """Return for each completion how similar it is to the right answer, 0-1."""
    from difflib import SequenceMatcher

    texts = [completion[0]["content"] for completion in completions]
    return [SequenceMatcher(None, text, right).ratio() for text, right in zip(texts, answer, strict=True)]


@dsl.pipeline(
    name="trl-rewards",
    pipeline_config=dsl.PipelineConfig(
        workspace=dsl.WorkspaceConfig(
            size="1Gi",
            kubernetes=dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteOnce"]}),
        )
    ),
)
def trl_rewards(
    dataset_uri: str = "hf://demo/tickets",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=WORKSPACE)
    model = initialize_model(storage_uri=model_uri, workspace=WORKSPACE).after(dataset)
    grpo = fine_tune(
        model="tiny-llama",
        framework="trl",
        method="grpo",
        workspace=WORKSPACE,
        dataset_path="chats",
        max_steps=40,
        batch_size=32,
        learning_rate=1e-2,
        arguments={"num_generations": 8, "max_completion_length": 12},
        config={"precision": "fp32", "reward_functions": [source(similarity)]},
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    export_model(workspace=WORKSPACE, destination=destination, after_jobs=[grpo.outputs["job"]])


if __name__ == "__main__":
    main(trl_rewards, __doc__)
