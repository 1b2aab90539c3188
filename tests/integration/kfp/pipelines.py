"""Pipelines with plain commands instead of trainings, and trainings of the demo's tiny model.

The program runs one of them, or a component, with `kfp.local`: pipelines.py NAME FOLDER [ARGUMENT=VALUE ...]
"""

import json
import sys
from collections import Counter

from kfp import compiler, components, dsl, local

from trainjob_kfp import (
    cleanup,
    evaluate,
    evaluate_model,
    export_model,
    fine_tune,
    initialize_dataset,
    initialize_model,
    promote_model,
    rollback_model,
    source,
    train,
)
from trainjob_kfp.image import BASE_IMAGE

# A container that is restarted in place hangs again.
HANG_ONCE = """
import os, time
from pathlib import Path
marker = Path(os.environ["MARKER"])
for step in range(1, 4):
    print({"loss": 1 / step, "epoch": step / 3, "step": step, "max_steps": 3, "num_train_epochs": 1}, flush=True)
    if step == 2 and (not marker.exists() or marker.read_text() == os.environ["POD"]):
        marker.write_text(os.environ["POD"])
        time.sleep(10_000)
"""


@dsl.pipeline
def chain(workspace: str, mark: str):
    first = train(
        image="busybox",
        workspace=workspace,
        command=["sh", "-c", "echo $MARK > /workspace/mark; echo written"],
        env={"MARK": "a-mark"},
    )
    second = train(image="busybox", workspace=workspace, command=["cat", "/workspace/mark"], args=[mark])
    second.after(first)


@dsl.pipeline
def pass_outputs():
    first = train(image="busybox", command=["sh", "-c", "echo first"])
    train(image="busybox", command=["echo"], args=[first.outputs["job"], first.outputs["status"]])


# The progress lines of TorchTune 0.6.1 for each step.
FRAMES = "; ".join(
    f"echo '1|{step}|Loss: {loss}:  25%|##   | {step}/4 [00:01<00:03]'" for step, loss in ((1, 3.5), (4, 0.5))
)


@dsl.pipeline
def learning():
    train(image="busybox", command=["sh", "-c", f"echo 'epochs: 1'; {FRAMES}"])


@dsl.pipeline
def failing():
    broken = train(image="busybox", command=["sh", "-c", "echo about to fail; echo 'ValueError: row 7' >&2; exit 3"])
    train(image="busybox", command=["echo", "never"]).after(broken)


@dsl.pipeline
def slow(go: str):
    """Run until the file `go` exists."""
    script = 'echo started; until [ -e "$GO" ]; do sleep 0.1; done; echo finished'
    train(image="busybox", command=["sh", "-c", script], env={"GO": go})


@dsl.pipeline
def hanging(marker: str):
    """Stop to make steps in the first attempt, which creates the file `marker`."""
    train(
        image="python",
        command=["python", "-c", HANG_ONCE],
        env={"MARKER": marker, "POD": {"fieldRef": {"fieldPath": "metadata.name"}}},
        watchdog={"silence": "3s", "action": "restart"},
    )


@dsl.pipeline
def retried():
    train(image="busybox", command=["sh", "-c", "echo started; sleep 4; echo finished"]).set_retry(1)


@dsl.pipeline
def endless():
    train(image="busybox", command=["sh", "-c", "echo started; sleep 600"])


@dsl.pipeline
def side_by_side():
    with dsl.ParallelFor(["a", "b", "c"]) as letter:
        train(image="busybox", command=["echo", letter])


@dsl.pipeline
def wrong(workspace: str, uri: str = "acme/tickets"):
    """Fail in the first step; a constant URI would fail when the pipeline is compiled."""
    dataset = initialize_dataset(storage_uri=uri, workspace=workspace)
    fine_tune(model="llama3.2-1b", framework="torchtune", workspace=workspace).after(dataset)


@dsl.pipeline(pipeline_config=dsl.PipelineConfig(workspace=dsl.WorkspaceConfig(size="1Gi")))
def own_workspace():
    written = train(
        image="busybox",
        workspace=dsl.WORKSPACE_PATH_PLACEHOLDER,
        command=["sh", "-c", "echo a-mark > /workspace/mark"],
    )
    read = train(
        image="busybox", workspace=dsl.WORKSPACE_PATH_PLACEHOLDER, command=["cat"], args=["/workspace/mark"]
    ).after(written)
    train(
        image="busybox",
        workspace=f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/deep/below",
        command=["sh", "-c", "echo below > /workspace/mark"],
    ).after(read)


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def repeat(text: str):
    print(f"received: {text}")


def count_down():
    for step in (1, 2):
        print(f"Step {step} | loss:{1 / step}", flush=True)


@dsl.pipeline
def tracked(server: str, python: str):
    trained = train(
        function=source(count_down),
        env={"TRAINJOB_TRACKING_PYTHON": python},
        tracking={"backend": "mlflow", "tracking_uri": server, "experiment": "tracked-pipelines"},
    )
    repeat(text=trained.outputs["tracking_url"])


class Words:
    def __init__(self, words: list[str]) -> None:
        self.counts = Counter(words)

    def share(self, word: str) -> float:
        return divide(self.counts[word], self.counts.total())


def divide(part, whole):
    return part / whole


def count(words, word):
    from collections import Counter  # noqa: F401 - the class uses it

    return {"share": Words(words).share(word), "words": len(words)}


def compute_score(right, total):
    print(f"{right} of {total}")
    return {"exact_match": right / total}


@dsl.pipeline
def from_a_function():
    counted = train(function=source(count, Words, divide), function_args={"words": ["a", "b", "a", "c"], "word": "a"})
    repeat(text=counted.outputs["result"])


@dsl.pipeline
def branch(passed: bool):
    with dsl.If(passed == True):  # noqa: E712 - kfp turns this comparison into a condition
        train(image="busybox", command=["echo", "good enough"])
    with dsl.If(passed == False):  # noqa: E712
        train(image="busybox", command=["echo", "too bad"])


@dsl.pipeline
def gated():
    with dsl.ExitHandler(cleanup()):
        scored = evaluate(
            function=compute_score, function_args={"right": 2, "total": 4}, metric="exact_match", minimum=0.75
        )
        branch(passed=scored.outputs["passed"])


@dsl.pipeline
def kept_job_with_cleanup():
    with dsl.ExitHandler(cleanup()):
        kept = train(image="busybox", command=["sh", "-c", "echo started; sleep 600"], on_kill="keep")
        train(image="busybox", command=["echo", "never"]).after(kept)


@dsl.pipeline
def follow(passed: bool):
    with dsl.If(passed == True):  # noqa: E712 - kfp builds the condition from this comparison
        train(image="lm_eval", command=["echo", "promoted"])


@dsl.pipeline
def compared(workspace: str, model: str, champion: str):
    scored = evaluate_model(
        workspace=workspace,
        model_path=model,
        champion_path=champion,
        task_path="tasks",
        tasks=["tickets_choice"],
        chat_template=True,
        gates={"tickets_choice/acc": {"better_than_champion": True}},
        image="lm_eval",
        env={"HF_HUB_OFFLINE": "1"},
    )
    follow(passed=scored.outputs["passed"])


def serve(uri):
    import os
    from pathlib import Path

    Path(os.environ["FOLDER"], "served").write_text(uri)


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def report(promoted: bool, served: str, rolled_back: bool, earlier: str):
    print(f"promoted {promoted} {served}, rolled back {rolled_back} {earlier}")


@dsl.pipeline
def promoted(model: str, service: str, folder: str):
    place = {"service": service, "function": source(serve), "env": {"FOLDER": folder}}
    first = promote_model(model=model, **place)
    undo = rollback_model(**place).after(first)
    report(
        promoted=first.outputs["promoted"],
        served=first.outputs["served_model"],
        rolled_back=undo.outputs["rolled_back"],
        earlier=undo.outputs["earlier_model"],
    )


@dsl.pipeline
def trl_sft(workspace: str):
    fine_tune(
        model="tiny-llama",
        framework="trl",
        method="sft",
        workspace=workspace,
        epochs=1.0,
        batch_size=8,
        learning_rate=3e-3,
        arguments={"logging_steps": 4},
        config={
            "columns": {"prompt": "input", "completion": "output"},
            "precision": "fp32",
            "seed": 7,
            "eval_dataset_path": "heldout",
        },
        image="trl",
    )


@dsl.pipeline
def trl_dpo(workspace: str):
    fine_tune(
        model="tiny-llama",
        framework="trl",
        method="dpo",
        workspace=workspace,
        dataset_path="pairs",
        output_path="preferences",
        max_steps=6,
        batch_size=8,
        learning_rate=1e-3,
        lora_rank=4,
        config={"precision": "fp32", "seed": 7},
        arguments={"logging_steps": 2, "beta": 0.1},
        image="trl",
    )


SAVING = {"save_strategy": "steps", "save_steps": 4}


@dsl.pipeline
def llamafactory_chain(workspace: str, sft_env: dict, dpo_env: dict):
    """Run SFT and DPO with LoRA, whose pods a test kills, and an export after each."""
    dataset = initialize_dataset(storage_uri="hf://demo/tickets", workspace=workspace)
    model = initialize_model(storage_uri="hf://demo/tiny-llama", workspace=workspace)
    sft = fine_tune(
        model="tiny-llama",
        framework="llamafactory",
        method="sft",
        workspace=workspace,
        dataset_path="chats",
        output_path="sft",
        max_steps=12,
        batch_size=8,
        learning_rate=1e-2,
        lora_rank=4,
        config=SAVING,
        arguments={"logging_steps": 2},
        env=sft_env,
        attempts=2,
    ).after(dataset, model)
    merged = export_model(workspace=workspace, output_path="sft", destination="/workspace/merged").after(sft)
    dpo = fine_tune(
        model="tiny-llama",
        framework="llamafactory",
        method="dpo",
        workspace=workspace,
        model_path="merged",
        dataset_path="pairs",
        output_path="dpo",
        max_steps=12,
        batch_size=8,
        learning_rate=1e-3,
        lora_rank=4,
        config=SAVING,
        arguments={"logging_steps": 2},
        env=dpo_env,
        attempts=2,
    ).after(merged)
    export_model(workspace=workspace, output_path="dpo", destination="/workspace/export").after(dpo)


@dsl.pipeline
def other_framework(workspace: str):
    """Run the framework of the example package in tests/support/line_framework."""
    fine_tune(model="line", framework="line", workspace=workspace, config={"steps": 300}, image="python:3.11")


def count_letters(completions, **kwargs):
    import string

    return [float(sum(letter in string.ascii_letters for letter in text)) for text in completions]


@dsl.pipeline
def trl_grpo(workspace: str):
    fine_tune(
        model="tiny-llama",
        framework="trl",
        method="grpo",
        workspace=workspace,
        max_steps=6,
        batch_size=8,
        learning_rate=3e-3,
        arguments={"logging_steps": 2, "num_generations": 4, "max_completion_length": 8},
        config={
            "columns": {"prompt": "input"},
            "reward_functions": [source(count_letters)],
            "precision": "fp32",
            "seed": 7,
        },
        image="trl",
    )


if __name__ == "__main__":
    name, folder, *arguments = sys.argv[1:]
    compiler.Compiler().compile(globals()[name], f"{folder}/{name}.yaml")
    local.init(
        local.SubprocessRunner(use_venv=False),
        pipeline_root=f"{folder}/outputs",
        workspace_root=f"{folder}/workspace",
        raise_on_error=True,
    )
    parameters = dict(word.split("=", 1) for word in arguments)
    for key in {"command", "sft_env", "dpo_env"} & set(parameters):
        parameters[key] = json.loads(parameters[key])
    components.load_component_from_file(f"{folder}/{name}.yaml")(**parameters)
