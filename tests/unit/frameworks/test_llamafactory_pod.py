"""LLaMA-Factory's program before torch is loaded: checks of image and dataset, and the conversion of rows."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from trainjob import InvalidSpec
from trainjob.frameworks.fine_tuning import checks
from trainjob.frameworks.llamafactory.pod.conversations import convert_row
from trainjob.frameworks.llamafactory.pod.program import check_dataset, check_version_of_image
from trainjob.frameworks.llamafactory.pod.run_arguments import parse_run_arguments

USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
BAD, SYSTEM = {"role": "assistant", "content": "b"}, {"role": "system", "content": "s"}
EMPTY = {"role": "assistant", "content": ""}

ROWS = {
    "texts": ("sft", {"prompt": "q", "completion": "a"}, [USER], [ANSWER], ""),
    "texts with input": (
        "sft",
        {"prompt": "do", "query": "q", "completion": "a"},
        [{"role": "user", "content": "do\nq"}],
        [ANSWER],
        "",
    ),
    "system": ("sft", {"prompt": "q", "completion": "a", "system": "s"}, [USER], [ANSWER], "s"),
    "messages": ("sft", {"messages": [SYSTEM, USER, ANSWER, USER, BAD]}, [USER, ANSWER, USER], [BAD], "s"),
    "ShareGPT": (
        "sft",
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        [USER],
        [ANSWER],
        "",
    ),
    "conversations of prompt and answer": ("sft", {"prompt": [USER], "completion": [ANSWER]}, [USER], [ANSWER], ""),
    "a user's last message": ("sft", {"messages": [USER, USER]}, [USER, USER], [], ""),
    "a pair without answers": ("dpo", {"chosen": [USER], "rejected": [USER]}, [USER], [], ""),
    "plain text": ("pt", {"text": "q"}, [USER], [], ""),
    "pair of texts": ("dpo", {"prompt": "q", "chosen": "a", "rejected": "b"}, [USER], [ANSWER, BAD], ""),
    "pair of conversations": ("dpo", {"chosen": [USER, ANSWER], "rejected": [USER, BAD]}, [USER], [ANSWER, BAD], ""),
    "pair of answers": (
        "dpo",
        {"prompt": [SYSTEM, USER], "chosen": [ANSWER], "rejected": [BAD]},
        [USER],
        [ANSWER, BAD],
        "s",
    ),
    "good answer": ("kto", {"prompt": "q", "completion": "a", "label": True}, [USER], [ANSWER, EMPTY], ""),
    "bad answer": ("kto", {"prompt": "q", "completion": "b", "label": False}, [USER], [EMPTY, BAD], ""),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_row_becomes_messages(case):
    method, row, prompt, responses, system = ROWS[case]
    found = convert_row(row, method)
    assert (found["_prompt"], found["_response"], found["_system"]) == (prompt, responses, system)


@pytest.mark.parametrize("tools", ['[{"name": "f"}]', [{"name": "f"}]])
def test_tools_are_given_as_text(tools):
    found = convert_row({"messages": [USER, ANSWER], "tools": tools}, "sft")
    assert found["_tools"] == '[{"name": "f"}]'


@pytest.mark.parametrize(
    "message", [{"role": "critic", "content": "x"}, {"role": "user"}, {"role": "user", "content": 1}]
)
def test_a_message_without_role_or_text_is_refused(message):
    with pytest.raises(InvalidSpec, match="a message has one of the roles user, human, assistant"):
        convert_row({"messages": [message]}, "sft")


def run_in(folder, method, *options):
    words = ["--model", str(folder / "model"), "--dataset", str(folder / "rows.jsonl"), "--output", str(folder / "out")]
    return parse_run_arguments([*words, "--llamafactory-version", "0.9.5", *options, method])


def write_rows(folder, row):
    (folder / "rows.jsonl").write_text(json.dumps(row))
    (folder / "model").mkdir(exist_ok=True)
    return folder / "rows.jsonl"


@pytest.mark.parametrize("case", ROWS)
def test_the_columns_of_a_row_that_can_be_converted_are_accepted(case, tmp_path):
    method, row, *_ = ROWS[case]
    path = write_rows(tmp_path, row)
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages }}")
    check_dataset(run_in(tmp_path, method), path)


def test_missing_columns_are_refused(tmp_path):
    path = write_rows(tmp_path, {"instruction": "q", "output": "a"})
    rule = r"a dataset with instruction, output: sft needs prompt \+ completion or messages or conversations"
    with pytest.raises(InvalidSpec, match=rule):
        check_dataset(run_in(tmp_path, "sft"), path)
    columns = json.dumps({"prompt": "instruction", "completion": "output"})
    check_dataset(run_in(tmp_path, "sft", "--columns", columns), path)


def test_a_pair_of_texts_needs_a_prompt(tmp_path):
    path = write_rows(tmp_path, {"question": "q", "chosen": "a", "rejected": "b"})
    with pytest.raises(InvalidSpec, match="dpo needs the column prompt, unless chosen and rejected are conversations"):
        check_dataset(run_in(tmp_path, "dpo"), path)
    check_dataset(run_in(tmp_path, "dpo", "--columns", '{"prompt": "question"}'), path)


def test_conversations_need_a_template(tmp_path):
    path = write_rows(tmp_path, {"messages": [USER, ANSWER]})
    with pytest.raises(InvalidSpec, match="its tokenizer has no chat template: give template"):
        check_dataset(run_in(tmp_path, "sft"), path)
    check_dataset(run_in(tmp_path, "sft", "--arguments", '{"template": "llama3"}'), path)


@pytest.mark.parametrize(
    ("found", "rule"),
    [("", "image cannot be .* it must contain LLaMA-Factory 0.9.5"), ("0.9.4", "the image has LLaMA-Factory 0.9.4")],
)
def test_an_image_with_another_llamafactory_is_refused(tmp_path, monkeypatch, found, rule):
    monkeypatch.setattr(checks, "get_version", lambda _: found)
    with pytest.raises(InvalidSpec, match=rule):
        check_version_of_image(run_in(tmp_path, "sft"))


def test_the_versions_of_the_image_are_logged(tmp_path, monkeypatch, capsys):
    versions = {"llamafactory": "0.9.5", "torch": "2.13.0"}

    def find(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", find)
    check_version_of_image(run_in(tmp_path, "sft"))
    assert capsys.readouterr().out == "llamafactory: the image contains llamafactory 0.9.5, torch 2.13.0\n"
