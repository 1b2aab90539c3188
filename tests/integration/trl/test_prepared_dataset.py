"""A dataset of the hub whose rows the fetch prepares, and a training on them with an evaluation."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from trainjob import FineTune, InitializeDataset, RunKey, WorkspaceVolume, submit, wait
from trainjob.lifecycle import Listener
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

README = """---
configs:
- {config_name: plain, data_files: plain.jsonl}
- {config_name: hard, data_files: hard.jsonl}
---
"""


def test_a_training_uses_prepared_rows(cluster, unique, tmp_path, workspace):
    rows = [
        {"question": f"What is {number}?", "completion": f"It is {number}.", "number": number} for number in range(40)
    ]
    folder = tmp_path / "hub" / "datasets" / "demo" / "questions"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(README)
    (folder / "plain.jsonl").write_text('{"other": 1}\n')
    (folder / "hard.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.rmtree(workspace / "dataset")
    where, lines = WorkspaceVolume(node_path=str(workspace)), []

    def run(name, step):
        reference = submit(cluster, step, RunKey("test", "prepared", unique, name))
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        assert outcome.succeeded, lines

    with HubServer(tmp_path / "hub") as server:
        dataset = InitializeDataset(
            storage_uri="hf://demo/questions",
            endpoint=server.url,
            workspace=where,
            subset="hard",
            split="train[:32]",
            eval_fraction=0.25,
            columns={"prompt": "question"},
        )
        run("dataset", dataset)
    prepared = {
        name: [json.loads(line) for line in (workspace / "dataset" / name).read_text().splitlines()]
        for name in ("data/train.jsonl", "eval/eval.jsonl")
    }
    assert {name: len(found) for name, found in prepared.items()} == {"data/train.jsonl": 24, "eval/eval.jsonl": 8}
    expected = [
        {"prompt": row["question"], "completion": row["completion"], "number": row["number"]} for row in rows[:32]
    ]
    found = [row for rows in prepared.values() for row in rows]
    assert sorted(found, key=lambda row: row["number"]) == expected
    config = tiny_config(max_steps=2, columns={}, eval_dataset_path=dataset.eval_dataset_path)
    run("train", FineTune(model="m", workspace=where, config=config, image="trl"))
    assert any("eval_loss" in line for line in lines), lines
