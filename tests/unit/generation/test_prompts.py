"""Prompts of rows, and settings of the engines; without a model."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet

from trainjob.errors import InvalidSpec
from trainjob.frameworks.generation.engines import ENGINES, Settings, convert_settings
from trainjob.frameworks.generation.program import main
from trainjob.frameworks.generation.prompts import Prompt, encode_prompts, parse_prompt, read_prompts

USER, ASSISTANT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("row", "chat_template", "expected"),
    [
        ({"prompt": "q", "completion": "a", "id": 7}, False, Prompt("q")),
        ({"prompt": "q", "completion": "a"}, True, Prompt(messages=[USER])),
        ({"prompt": [USER], "completion": [ASSISTANT]}, False, Prompt(messages=[USER])),
        ({"messages": [USER, ASSISTANT]}, False, Prompt(messages=[USER])),
        ({"messages": [USER, ASSISTANT, USER]}, True, Prompt(messages=[USER, ASSISTANT, USER])),
        ({"text": "t"}, True, Prompt("t")),
    ],
)
def test_the_prompt_is_what_comes_before_the_answer(row, chat_template, expected):
    assert parse_prompt(row, "row 1", chat_template=chat_template) == expected


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"prompt": ""}, "each row must have prompt, messages with roles before an answer, or text; it has prompt"),
        ({"messages": [ASSISTANT]}, "messages with roles before an answer"),
        ({"messages": [{"content": "q"}]}, "messages with roles before an answer"),
        ({"instruction": "q"}, "it has instruction"),
        (["q"], "it has list"),
        ({"prompt": "q", "generated_text": "a"}, "it has generated_text or generated_tokens, which this step adds"),
    ],
)
def test_a_row_of_another_form_is_refused_with_its_place(tmp_path, row, problem):
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps({'text': 't'})}\n{json.dumps(row)}\n")
    with pytest.raises(InvalidSpec) as refused:
        read_prompts(tmp_path, None, chat_template=False)
    assert f"input_path cannot be {file}, row 2: " in str(refused.value)
    assert problem in str(refused.value)
    assert read_prompts(tmp_path, 1, chat_template=False) == ([{"text": "t"}], [Prompt("t")])


def test_rows_of_parquet_are_rows_too(tmp_path):
    parquet.write_table(pa.Table.from_pylist([{"messages": [USER, ASSISTANT], "id": 3}]), tmp_path / "a.parquet")
    rows, prompts = read_prompts(tmp_path / "a.parquet", None, chat_template=False)
    assert (rows, prompts) == ([{"messages": [USER, ASSISTANT], "id": 3}], [Prompt(messages=[USER])])
    with pytest.raises(InvalidSpec, match="must be a file in JSON Lines or Parquet with rows"):
        read_prompts(tmp_path / "missing", None, chat_template=False)


class Tokenizer:
    name_or_path = "/workspace/export"

    def __init__(self, chat_template="template"):
        self.chat_template = chat_template

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt):
        assert add_generation_prompt and not tokenize
        return "".join(f"<{each['content']}>" for each in messages)

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [1] * add_special_tokens + [ord(letter) for letter in text]}


def test_a_chat_template_writes_its_own_special_tokens():
    found = encode_prompts(Tokenizer(), [Prompt("q"), Prompt(messages=[USER])], 3)
    assert [[*ids] for ids in found] == [[1, ord("q")], [ord("<"), ord("q"), ord(">")]]


def test_a_prompt_that_is_too_long_is_refused():
    with pytest.raises(InvalidSpec, match=r"row 2 of all, with 3 tokens.*2 tokens are left for a prompt"):
        encode_prompts(Tokenizer(), [Prompt("q"), Prompt("qq")], 2)
    with pytest.raises(InvalidSpec, match="the tokenizer in this folder has no chat template"):
        encode_prompts(Tokenizer(None), [Prompt(messages=[USER])], None)


def test_settings_mean_the_same_for_vllm():
    sampled = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "bos_token_id": 1}
    assert convert_settings({"max_new_tokens": 64, "min_new_tokens": 2}, {}) == {
        "max_tokens": 64,
        "min_tokens": 2,
        "temperature": 0.0,
    }
    assert convert_settings({"stop": ["\n"]}, sampled) == {"temperature": 0.6, "top_p": 0.9, "stop": ["\n"]}
    assert convert_settings({"top_p": 0.5}, sampled) == {"temperature": 0.6, "top_p": 0.5}
    assert convert_settings({"do_sample": False}, sampled)["temperature"] == 0.0


def test_an_image_without_vllm_is_refused(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(InvalidSpec, match="it must contain vllm, because"):
        ENGINES["vllm"](tmp_path, Tokenizer(), Settings("vllm"))


def test_a_folder_without_a_model_is_refused_first(tmp_path, capsys):
    assert main(["--model", str(tmp_path), "--rows", "r", "--output", "o"]) == 2
    assert "model_path cannot be" in capsys.readouterr().err
