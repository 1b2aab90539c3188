"""Batch inference with the demo's tiny model, on two nodes of the laptop cluster of which one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pyarrow.parquet import read_table

from tests.integration.evaluation.conftest import PYTHON, ROOT
from trainjob import Generate, RunKey, WorkspaceVolume, submit, wait
from trainjob.errors import CommandFailed
from trainjob.lifecycle import Listener
from trainjob.status import parse_step_result

pytestmark = [pytest.mark.lm_eval, pytest.mark.slow]
COPIES = 40  # of the 60 tickets
SHARDS = 10  # of 256 rows, the last one of 96


@pytest.fixture
def rows(workspace):
    """Return rows with prompts and their numbers; the workspace has them in `prompts`."""
    [file] = (workspace / "dataset/heldout").iterdir()
    tickets = read_table(file).to_pylist() * COPIES
    found = [{"id": number, "prompt": each["input"], "team": each["output"]} for number, each in enumerate(tickets)]
    (workspace / "prompts").mkdir()
    (workspace / "prompts/rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in found))
    return found


@pytest.fixture
def start(cluster, unique, workspace):
    """Return a function that submits a generation, and returns its reference."""

    def submit_step(name, **fields):
        given = {"input_path": "prompts", "model_path": "better", "chat_template": True, **fields}
        generation = {"max_new_tokens": 16, "do_sample": False, **given.pop("generation", {})}
        volume = WorkspaceVolume(node_path=str(workspace))
        step = Generate(workspace=volume, image="lm_eval", generation=generation, **given)
        return submit(cluster, step, RunKey("test", "generation", name, unique))

    return submit_step


@pytest.fixture
def run(cluster, start):
    """Return a function that runs a generation, and returns outcome, result and log."""

    def run_step(name, **fields):
        lines = []
        outcome = wait(cluster, start(name, **fields), listener=Listener(on_log=lambda line: lines.append(line.text)))
        return outcome, next(filter(None, map(parse_step_result, lines)), None), lines

    return run_step


def read_output(workspace, name):
    return [json.loads(line) for line in (workspace / name / "generated.jsonl").read_text().splitlines()]


def list_shards(workspace):
    return list((workspace / "answers").glob(".shards/*/??????.json"))


def find_node(job, rank):
    """Return the process of a node of a TrainJob."""
    wanted = {f"TRAINJOB_NAME={job}".encode(), f"PET_NODE_RANK={rank}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")) and (entry / "exe").resolve().name != "sh":
                return int(entry.name)
        except OSError:
            continue
    return None


def test_a_killed_node_loses_no_row_and_the_next_attempt_has_more_nodes(cluster, start, run, rows, workspace):
    killed = start("killed", output_path="answers", num_nodes=2)
    deadline = time.monotonic() + 120
    while len(list_shards(workspace)) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(find_node(killed.name, 1), signal.SIGKILL)
    outcome = wait(cluster, killed)
    assert not outcome.succeeded
    assert not (workspace / "answers/generated.jsonl").exists()
    finished = len(list_shards(workspace))
    assert 3 <= finished < SHARDS
    outcome, result, lines = run("again", output_path="answers", num_nodes=3, batch_size=4)
    assert outcome.succeeded, lines
    assert any(f"{finished} of {SHARDS} shards are of an earlier attempt" in line for line in lines), lines
    assert (result["rows"], result["shards"]) == (len(rows), SHARDS)
    assert result["tokens"] > 0 and result["seconds"] > 0
    assert result["tokens_per_second"] == pytest.approx(result["tokens"] / result["seconds"], rel=0.01)
    assert result["output"].endswith("/answers/generated.jsonl")
    found = read_output(workspace, "answers")
    assert [{name: row[name] for name in ("id", "prompt", "team")} for row in found] == rows
    assert sum(row["generated_tokens"] for row in found) == result["tokens"]
    outcome, _, lines = run("whole", output_path="whole")
    assert outcome.succeeded, lines
    assert found == read_output(workspace, "whole")
    command = [PYTHON, ROOT / "tests/integration/evaluation/transformers_answers.py", workspace / "better"]
    own = subprocess.run([*command, workspace / "prompts/rows.jsonl"], check=True, capture_output=True, text=True)
    assert [row["generated_text"] for row in found] == [json.loads(line) for line in own.stdout.splitlines()]
    assert sum(row["generated_text"] == row["team"] for row in found) > 0.9 * len(rows)
    outcome, same, lines = run("third", output_path="answers")  # everything is there
    assert same == result, lines
    assert not any(" tokens in " in line for line in lines)


def test_samples_depend_on_the_seed_and_not_on_the_nodes(run, rows, workspace):
    fields = {"limit": 600, "model_path": "worse", "seed": 3, "generation": {"do_sample": True}}
    for name, more in {"one": {}, "two": {"num_nodes": 2}, "other": {"seed": 4}}.items():
        outcome, result, lines = run(name, output_path=name, **{**fields, **more})
        assert outcome.succeeded, lines
        assert result["rows"] == 600
    assert read_output(workspace, "one") == read_output(workspace, "two") != read_output(workspace, "other")


def test_wrong_rows_are_refused_before_a_model_is_loaded(run, rows, workspace):
    (workspace / "prompts/rows.jsonl").write_text('{"question": "q"}\n')
    outcome, _, lines = run("wrong")
    with pytest.raises(CommandFailed, match=r"row 1: each row must have prompt, messages .*; it has question"):
        outcome.raise_for_failure()
    assert not any("Loading weights" in line for line in lines)
