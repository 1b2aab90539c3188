"""Datasets as people have them: the check agrees with what `datasets` loads, and names what a training cannot use."""

from __future__ import annotations

import datasets
import pytest

from tests.corpus.datasets import CASES
from trainjob import InvalidSpec
from trainjob.frameworks.fine_tuning import row_checks
from trainjob.frameworks.fine_tuning.rows import load_rows
from trainjob.frameworks.llamafactory.pod.conversations import convert_row, find_row_problem
from trainjob.frameworks.trl.pod.program import list_column_choices
from trainjob.frameworks.trl.pod.run_arguments import parse_run_arguments


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def check(case, folder):
    path = case.write(folder)
    return path, lambda: row_checks.check_rows_of(
        path, case.method, dict(case.columns), list_column_choices(case.method)
    )


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_the_expected_one(name, tmp_path, capsys):
    case = CASES[name]
    path, run = check(case, tmp_path / "data")
    if case.refusal:
        with pytest.raises(InvalidSpec) as refused:
            run()
        assert case.refusal in str(refused.value)
        return
    run()
    assert case.warning in capsys.readouterr().out
    assert bool(case.warning) == bool(capsys.readouterr().out or case.warning)
    words = ("--model", "m", "--dataset", str(path), "--output", "o", "--trl-version", "1.16.0", case.method)
    assert load_rows(parse_run_arguments(words))["train"].num_rows == case.rows


def test_the_check_ends_after_a_stated_number_of_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(row_checks, "MAX_ROWS", 5)
    (tmp_path / "train.jsonl").write_text('{"text": "a"}\n' * 7 + '{"text": null}\n')
    row_checks.check_rows_of(tmp_path, "sft", {}, list_column_choices("sft"))
    assert f"dataset: the first 5 rows of {tmp_path} were checked" in capsys.readouterr().out


@pytest.mark.parametrize("column", ["prompt", "completion"])
def test_llamafactory_trains_no_answer_none(column):
    row = {"prompt": "q", "completion": "a", column: None}
    found = find_row_problem(row, ("prompt", "completion"), "sft")
    assert found == (column, "the value is missing or null: remove the row, or fill the cell")
    assert find_row_problem({**row, column: 5}, ("prompt", "completion"), "sft") is None  # it becomes a text
    with pytest.raises(InvalidSpec, match="a text or a conversation"):
        convert_row(row, "sft")


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ('[{"role": "user"}]', "it contains JSON text: store the list itself"),
        ([], "the conversation has no messages"),
        (["text"], "it must be a text or a list of messages, but is a list"),
    ],
)
def test_llamafactory_trains_no_text_in_place_of_messages(messages, rule):
    column, found = find_row_problem({"messages": messages}, ("messages",), "sft")
    assert column == "messages"
    assert rule in found


def test_llamafactory_refuses_a_role_before_torch_is_loaded():
    messages = [{"role": "tool", "content": "x"}]
    column, rule = find_row_problem({"messages": messages}, ("messages",), "sft")
    assert column == "messages"
    assert "a message has one of the roles user, human" in rule


@pytest.mark.parametrize("name", ["folder", "folder/train.jsonl", "folder/linked.jsonl"])
def test_a_dataset_may_be_reached_by_links(tmp_path, name):
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "train.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "blob").write_text('{"text": "b"}\n')
    (tmp_path / "folder").symlink_to(tmp_path / "volume")
    if "linked" in name:
        (tmp_path / "volume" / "linked.jsonl").symlink_to(tmp_path / "blob")
    path = tmp_path / name
    row_checks.check_rows_of(path, "sft", {}, list_column_choices("sft"))
    words = ("--model", "m", "--dataset", str(path), "--output", "o", "--trl-version", "1.16.0", "sft")
    assert load_rows(parse_run_arguments(words))["train"].num_rows == 1
