"""Evaluations of a known better and a known worse model, on the laptop cluster and as a program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from pyarrow.parquet import read_table

from tests.integration.evaluation.conftest import PYTHON, ROOT, TASKS
from tests.support.code_blocks import ALL_BLOCKS
from trainjob import Evaluate, RunKey, WorkspaceVolume, submit, wait
from trainjob.errors import CommandFailed
from trainjob.lifecycle import Listener
from trainjob.status import parse_step_result

pytestmark = [pytest.mark.lm_eval, pytest.mark.slow]
GATES = {
    "tickets/exact_match": {"minimum": 0.9, "better_than_champion": True},
    "tickets_choice/acc": {"not_worse_than_champion": 0.02},
    "tickets_loss/bits_per_byte": {"maximum": 100, "better_than_champion": True},
}


@pytest.fixture
def evaluate(cluster, unique, workspace):
    """Return a function that runs an evaluation, and returns outcome, result and log."""

    def run(model, champion, **fields):
        step = Evaluate(
            workspace=WorkspaceVolume(node_path=str(workspace)),
            image="lm_eval",
            env={"HF_HUB_OFFLINE": "1"},
            model_path=model,
            champion_path=champion,
            **{"tasks": [*TASKS], "task_path": "tasks", "chat_template": True, "gates": GATES, **fields},
        )
        lines = []
        reference = submit(cluster, step, RunKey("test", "evaluation", unique, model))
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        result = next(filter(None, map(parse_step_result, reversed(lines))), None)
        return outcome, result, lines

    return run


def test_the_better_model_passes_and_its_scores_are_those_of_the_harness(evaluate, workspace, tmp_path):
    outcome, result, lines = evaluate("better", "worse")
    assert outcome.succeeded, lines
    assert result["passed"], lines
    assert result["differences"]["tickets/exact_match"]["low"] > 0
    loss, champion = (result[role]["tickets_loss/bits_per_byte"]["value"] for role in ("scores", "champion_scores"))
    difference = result["differences"]["tickets_loss/bits_per_byte"]
    assert difference["value"] == pytest.approx(champion - loss)
    assert 0 < difference["low"] < difference["value"] < difference["high"]
    assert (difference["rows"], difference["resamples"]) == (60, 10_000)
    assert result == {
        **json.loads((workspace / "evaluation/report.json").read_text()),
        "report": str(workspace / "evaluation/report.json"),
    }
    samples = (workspace / "evaluation/model/tickets.samples.jsonl").read_text().splitlines()
    assert len(samples) == 60
    assert all(json.loads(sample)["exact_match"] in (0.0, 1.0) for sample in samples)
    for role, model in (("scores", "better"), ("champion_scores", "worse")):
        own = run_harness(workspace, model, tmp_path / model)
        assert {name: (score["value"], score["stderr"]) for name, score in result[role].items()} == own


def run_harness(workspace, model, output):
    """Return value and standard error of each metric, as the harness writes them."""
    settings = ["--batch_size", "8", "--seed", "0", "--apply_chat_template", "--include_path", "tasks"]
    words = ["run", "--model", "hf", "--model_args", f"pretrained={workspace / model}", "--device", "cpu"]
    command = [PYTHON, "-m", "lm_eval", *words, *settings, "--tasks", ",".join(TASKS), "--output_path", output]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, cwd=workspace, env=environment, check=True, stdout=subprocess.DEVNULL)
    [file] = output.rglob("results_*.json")
    found = json.loads(file.read_text())["results"]
    return {
        f"{task}/{key.removesuffix(',none')}": (
            value,
            None if metrics[f"{key[:-5]}_stderr,none"] == "N/A" else metrics[f"{key[:-5]}_stderr,none"],
        )
        for task, metrics in found.items()
        for key, value in metrics.items()
        if key.endswith(",none") and not key.endswith("_stderr,none")
    }


def test_the_task_of_the_page_scores_prepared_rows(evaluate, workspace):
    [task] = [block for block in ALL_BLOCKS if block.title == "tasks/tickets.yaml"]
    (workspace / "documented").mkdir()
    (workspace / "documented/tickets.yaml").write_text(task.text)
    rows = [{"prompt": row["input"], "completion": row["output"]} for row in read_tickets(workspace)]
    write_rows(workspace / "dataset/eval/eval.jsonl", rows)
    fields = {"tasks": ["tickets"], "task_path": "documented", "held_out": "dataset/eval/eval.jsonl", "gates": {}}
    outcome, result, lines = evaluate("better", None, **fields)
    assert outcome.succeeded, lines
    assert result["scores"]["tickets/exact_match"]["value"] > 0.9
    assert result["scores"]["held_out/loss"]["value"] < 0.5  # with the chat template, as in the training


def read_tickets(workspace):
    [file] = (workspace / "dataset/heldout").iterdir()
    return read_table(file).to_pylist()


def write_rows(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_the_loss_on_held_out_rows_is_that_of_transformers(evaluate, workspace):
    tickets = read_tickets(workspace)
    turns = [
        [{"role": "user", "content": each["input"]}, {"role": "assistant", "content": each["output"]}]
        for each in tickets
    ]
    rows = [{"messages": [*turn, *turns[number - 1]]} for number, turn in enumerate(turns[:30])]
    rows += [{"prompt": each["input"], "completion": f" {each['output']}"} for each in tickets[30:45]]
    rows += [{"text": f"{each['input']} {each['output']}"} for each in tickets[45:]]
    write_rows(workspace / "dataset/eval/eval.jsonl", rows)
    gate = {"maximum": 100, "better_than_champion": True}
    gates = {"held_out/loss": gate, "held_out/bits_per_byte": gate}
    fields = {"tasks": [], "held_out": "dataset/eval", "chat_template": False, "gates": gates}
    outcome, result, lines = evaluate("better", "worse", **fields)
    assert outcome.succeeded, lines
    program = ROOT / "tests/integration/evaluation/transformers_loss.py"
    for role, model in (("scores", "better"), ("champion_scores", "worse")):
        command = [PYTHON, program, workspace / model, workspace / "dataset/eval/eval.jsonl"]
        expected = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        found = {name.removeprefix("held_out/"): score["value"] for name, score in result[role].items()}
        assert found == pytest.approx(expected, rel=1e-4)
    assert result["scores"]["held_out/loss"]["value"] < result["champion_scores"]["held_out/loss"]["value"]
    assert all(0 < score["stderr"] < score["value"] for score in result["scores"].values())
    assert result["differences"]["held_out/loss"]["rows"] == len(rows) == 60
    assert result["passed"] == all(difference["low"] > 0 for difference in result["differences"].values())
    samples = (workspace / "evaluation/model/held_out.samples.jsonl").read_text().splitlines()
    assert len(samples) == 60
    assert json.loads(samples[0]).keys() == {"row", "loss", "tokens", "bytes"}


def mean_loss(model_path):
    import json
    from pathlib import Path

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(model_path), AutoModelForCausalLM.from_pretrained(model_path)
    found = []
    for line in Path("dataset/eval/eval.jsonl").read_text().splitlines():
        ids = tokenizer(json.loads(line)["text"], add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]])
        with torch.no_grad():
            found.append({"likelihood": -model(input_ids=ids, labels=ids).loss})
    return found


def raises(model_path):
    raise ValueError(f"{model_path} has no rows")


def test_a_function_scores_both_models_row_by_row(evaluate, workspace):
    write_rows(workspace / "dataset/eval/eval.jsonl", [{"text": row["output"]} for row in read_tickets(workspace)])
    gates = {"mean_loss/likelihood": {"minimum": -100, "better_than_champion": True}}
    fields = {"tasks": [], "held_out": "dataset/eval", "function": mean_loss, "gates": gates, "chat_template": False}
    outcome, result, lines = evaluate("better", "worse", **fields)
    assert outcome.succeeded, lines
    assert result["passed"], result
    assert result["differences"]["mean_loss/likelihood"]["rows"] == 60
    for role in ("model", "champion"):
        files = (workspace / "evaluation" / role / f"{name}.samples.jsonl" for name in ("held_out", "mean_loss"))
        held_out, rows = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
        expected = [-each["loss"] / each["tokens"] for each in held_out]
        assert [row["likelihood"] for row in rows] == pytest.approx(expected, rel=1e-4)


def test_an_error_of_the_function_is_in_the_log(evaluate):
    outcome, _, lines = evaluate("better", None, tasks=[], function=raises, gates={})
    assert not outcome.succeeded
    assert any("in raises" in line for line in lines), lines  # the traceback
    with pytest.raises(CommandFailed, match=r"the function raises failed: ValueError: .* has no rows"):
        outcome.raise_for_failure()
    assert not any("Loading weights" in line for line in lines)


def test_a_worse_model_is_a_result_and_no_error(evaluate):
    outcome, result, lines = evaluate("worse", "better")
    assert outcome.succeeded, lines
    assert not result["passed"]
    assert [gate["passed"] for gate in result["gates"]] == [False, False, False, True, False]
    assert result["differences"]["tickets/exact_match"]["high"] < 0


def test_an_equal_model_is_not_worse_and_not_better(evaluate, workspace):
    shutil.copytree(workspace / "better", workspace / "same")
    gate = {"not_worse_than_champion": 0, "better_than_champion": True}
    _, result, lines = evaluate("better", "same", tasks=["tickets"], gates={"tickets/exact_match": gate})
    assert [gate["passed"] for gate in result["gates"]] == [True, False], lines
    expected = {"value": 0.0, "low": 0.0, "high": 0.0, "rows": 60, "resamples": 10_000}
    assert result["differences"]["tickets/exact_match"] == expected


def test_the_first_model_passes_only_if_a_missing_champion_is_allowed(evaluate):
    gates = {"tickets_choice/acc": {"minimum": 0.9, "better_than_champion": True}}
    fields = {"tasks": ["tickets_choice"], "gates": gates, "allow_missing_champion": True}
    outcome, result, lines = evaluate("better", "champion", **fields)
    assert outcome.succeeded, lines
    assert [gate["found"] for gate in result["gates"]] == ["1", "there is no champion yet"]
    assert result["passed"]
    outcome, _, lines = evaluate("better", "champion", **{**fields, "allow_missing_champion": False})
    assert not outcome.succeeded
    assert any("champion_path cannot be" in line for line in lines), lines


def test_the_model_of_another_run_is_refused(evaluate, workspace):
    record = {"trained_by": "tune-abc", "workflow_run": "airflow/tickets/other"}
    (workspace / "better/manifest.json").write_text(json.dumps(record))
    outcome, _, lines = evaluate("better", None, tasks=["tickets"], gates={})
    assert not outcome.succeeded
    assert any("is of TrainJob tune-abc" in line for line in lines)
    outcome, result, lines = evaluate("better", None, tasks=["tickets"], gates={}, after_jobs=["tune-abc"])
    assert outcome.succeeded, lines
    assert result["champion_scores"] == {}


def test_wrong_input_is_refused_before_a_model_is_loaded(evaluate, workspace):
    outcome, _, lines = evaluate("missing", None, tasks=["tickets"], gates={})
    with pytest.raises(CommandFailed, match="it must be the folder of a model"):
        outcome.raise_for_failure()
    outcome, _, lines = evaluate("better", None, tasks=["arc_esy", "ai2_arc"], gates={})
    assert any("did you mean arc_easy" in line for line in lines), lines
    assert any("ai2_arc: it is a tag of several tasks" in line for line in lines), lines
    assert not any("Loading weights" in line for line in lines)


# -- the program, killed -----------------------------------------------------------------------------------------------


def start_program(workspace, tasks=("--task", "tickets_choice", "--task", "tickets"), **variables):
    folders = ["--model", workspace / "better", "--champion", workspace / "worse", "--task-folder", workspace / "tasks"]
    more = ["--output", workspace / "evaluation", "--workspace", workspace, "--chat-template"]
    command = [PYTHON, "-m", "trainjob.frameworks.evaluation", *folders, *more, *tasks]
    paths = {"PYTHONPATH": str(ROOT / "core/src"), "HF_HUB_OFFLINE": "1", "TRAINJOB_WORKFLOW_RUN": "airflow/d/r"}
    environment = {**os.environ, **paths, **variables}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True
    )


def count_reused(text):
    return text.count("scored by an earlier attempt")


def test_a_killed_evaluation_continues_with_the_next_task_and_has_the_same_result(workspace, tmp_path):
    whole, _ = start_program(workspace).communicate()
    first, report = workspace / "evaluation/model/tickets_choice.json", workspace / "evaluation/report.json"
    expected = json.loads(report.read_text())
    shutil.rmtree(workspace / "evaluation")
    program = start_program(workspace)
    while not first.exists():
        assert program.poll() is None
        time.sleep(0.02)
    os.killpg(program.pid, signal.SIGKILL)
    program.communicate()
    assert not report.exists()
    again, _ = start_program(workspace).communicate()
    assert count_reused(whole) == 0
    assert count_reused(again) >= 1
    assert json.loads(report.read_text()) == expected
    everything, _ = start_program(workspace).communicate()
    assert count_reused(everything) == 4
    other_run, _ = start_program(workspace, TRAINJOB_WORKFLOW_RUN="airflow/d/other").communicate()
    assert count_reused(other_run) == 0
    assert json.loads(report.read_text()) == expected
    os.utime(workspace / "worse/model.safetensors")
    changed_champion, _ = start_program(workspace, TRAINJOB_WORKFLOW_RUN="airflow/d/other").communicate()
    assert count_reused(changed_champion) == 2
    rows = next((workspace / "dataset/heldout").iterdir())
    os.utime(rows)
    changed_rows, _ = start_program(workspace, TRAINJOB_WORKFLOW_RUN="airflow/d/other").communicate()
    assert count_reused(changed_rows) == 0


def test_held_out_rows_are_scored_again_only_if_they_have_changed(workspace):
    rows = [{"text": row["input"]} for row in read_tickets(workspace)]
    write_rows(workspace / "rows.jsonl", rows)
    words = ("--held-out", workspace / "rows.jsonl", "--limit", "40")
    start_program(workspace, words).communicate()
    report = json.loads((workspace / "evaluation/report.json").read_text())
    assert report["differences"]["held_out/loss"]["rows"] == 40
    again, _ = start_program(workspace, words).communicate()
    assert count_reused(again) == 2
    assert json.loads((workspace / "evaluation/report.json").read_text()) == report
    write_rows(workspace / "rows.jsonl", rows[1:])
    changed, _ = start_program(workspace, words).communicate()
    assert count_reused(changed) == 0
