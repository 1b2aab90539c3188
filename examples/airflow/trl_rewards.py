"""Train with a reward function (GRPO).

TRL lets the model answer each prompt several times. The reward function scores the answers, and the model learns to
give those with higher scores. The function gets the answers and the dataset's other columns, here `answer`. Its source
is sent to the pods. It therefore imports its modules inside and uses no names from outside. A function that is
installed in the image is named instead: `reward_functions=("my_package.rewards.similarity",)`.

On a real cluster, start from a model that already answers, for example from the export of a fine-tuning
(`model_path`). With a GPU and an image that contains vLLM, `use_vllm=True` generates the answers much faster.
"""

from __future__ import annotations

from airflow.sdk import dag
from tiny_llama import DATASET, EXPORT, MODEL

from trainjob import TRLConfig
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Workspace,
)


def similarity(completions, answer, **_):
    """Return for each completion how similar it is to the right answer, 0-1."""
    from difflib import SequenceMatcher

    texts = [completion[0]["content"] for completion in completions]
    return [SequenceMatcher(None, text, right).ratio() for text, right in zip(texts, answer, strict=True)]


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def trl_rewards():
    # keep="always", because the export is a folder on this volume.
    with Workspace(size="1Gi", keep="always") as workspace:
        dataset = InitializeDatasetOperator(task_id="dataset", workspace=workspace, storage_uri=DATASET)
        model = InitializeModelOperator(task_id="model", workspace=workspace, storage_uri=MODEL)
        grpo = FineTuneOperator(
            task_id="grpo",
            workspace=workspace,
            model="tiny-llama",
            dataset_path="chats",
            config=TRLConfig(
                method="grpo",
                reward_functions=(similarity,),
                max_steps=40,
                batch_size=32,
                learning_rate=1e-2,
                precision="fp32",
                arguments={"num_generations": 8, "max_completion_length": 12},
            ),
        )
        export = ExportModelOperator(task_id="export", workspace=workspace, destination=EXPORT)
        dataset >> model >> grpo >> export


trl_rewards()
