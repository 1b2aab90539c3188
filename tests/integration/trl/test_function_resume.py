"""A Python function that uses transformers' Trainer resumes like TRL's methods."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from tests.support.changed_trainings import CHANGES
from tests.support.interrupted_trainings import KILLER_PROGRAM, resumed_steps
from trainjob import CustomTrainer, RunKey, TrainJob, WorkspaceVolume, submit, wait
from trainjob.lifecycle import Listener

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


def train(name, max_steps):
    """Run the training of the tiny model, and save it."""
    import os

    from datasets import load_dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
    )

    from trainjob.frameworks.transformers.callback import CheckpointCallback
    from trainjob.frameworks.transformers.start import find_checkpoint_to_resume

    root = os.environ["ROOT"]  # a laptop cluster replaces /workspace in variables, but not in code
    output = f"{root}/output/{name}"
    tokenizer = AutoTokenizer.from_pretrained(f"{root}/model")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.convert_ids_to_tokens(0)
    rows = load_dataset(f"{root}/dataset/data", split="train")
    rows = rows.map(lambda row: tokenizer(row["input"] + row["output"]), remove_columns=rows.column_names)
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(f"{root}/model"),
        args=TrainingArguments(
            output_dir=output,
            max_steps=max_steps,
            save_steps=4,
            save_total_limit=2,
            logging_steps=2,
            use_cpu=True,
            disable_tqdm=True,
            report_to="none",
        ),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[CheckpointCallback()],
    )
    trainer.train(resume_from_checkpoint=find_checkpoint_to_resume(output))
    trainer.save_model(output)
    return trainer.state.global_step


@pytest.fixture
def run_function(cluster, unique, workspace, torchrun_lock):
    """Return a function that trains, and returns the outcome and the log."""

    def run(name, processes, trainer_fields=None, fields=None, **env):
        lines: list[str] = []
        trainer = CustomTrainer(
            func=train,
            func_args={"name": name, "max_steps": 12},
            num_proc_per_node=processes,
            resume=True,
            env={"ROOT": "/workspace", **env},
            **{"image": "trl", **(trainer_fields or {})},
        )
        job = TrainJob(trainer=trainer, workspace=WorkspaceVolume(node_path=str(workspace)), **(fields or {}))
        reference = submit(cluster, job, RunKey("test", "function", unique, name))
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        return outcome, lines

    return run


@pytest.mark.parametrize("processes", [1, 2])
def test_a_function_that_is_killed_while_it_saves_resumes(run_function, workspace, tmp_path, processes, evidence):
    outputs, killed = workspace / "output", tmp_path / "killed"
    outcome, lines = run_function("unbroken", processes)
    outcome.raise_for_failure()
    assert (resumed_steps(lines), "trainjob result: 12" in lines) == ([], True)
    assert (outcome.progress.step, outcome.progress.total) == (12, 12)

    folder = tmp_path / "killer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(KILLER_PROGRAM)
    environment = {
        "PYTHONPATH": str(folder),
        "KILLED": str(killed),
        "KILL_AT": "checkpoint-8/trainer_state.json",
    }
    outcome, _ = run_function("broken", processes, **environment)
    assert (outcome.phase.value, killed.exists()) == ("Failed", True)
    # The request changes in everything that does not decide the weights.
    changed = {name: value for each in CHANGES for name, value in each.items() if name != "env"}
    trainer = {"image": "trl-next", "resources_per_node": {"memory": "3Gi"}}
    outcome, lines = run_function("broken", processes, trainer, changed, NCCL_DEBUG="INFO", **environment)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [4]
    assert filecmp.cmp(
        Path(outputs, "unbroken", "model.safetensors"), Path(outputs, "broken", "model.safetensors"), shallow=False
    )
    evidence("features", row="resume", cell="real run")


def test_a_function_starts_from_a_checkpoint_of_another_training(run_function, workspace):
    """It has the same hyperparameters, and ends with the same weights: moments and position are continued."""
    outcome, _ = run_function("first", 1)
    outcome.raise_for_failure()
    outcome, lines = run_function("next", 1, {"resume_from": {"folder": "output/first", "step": 8}})
    outcome.raise_for_failure()
    [start] = [line for line in lines if line.startswith("starts from ")]
    assert start.startswith("starts from step 8 of run first (")
    assert "trainjob result: 12" in lines
    models = [workspace / "output" / name / "model.safetensors" for name in ("first", "next")]
    assert filecmp.cmp(*models, shallow=False)
