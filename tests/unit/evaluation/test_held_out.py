"""Loss on held-out rows: forms of the rows, the tokens that count, and the standard error; without a model."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from trainjob.errors import InvalidSpec
from trainjob.frameworks.evaluation.comparison import compare
from trainjob.frameworks.evaluation.held_out import (
    Row,
    RowLoss,
    compute_losses,
    divide_sums,
    read_rows,
    summarize_losses,
)
from trainjob.frameworks.row_files import iterate_rows

BEGIN, END = 1, 2  # tokens that begin and end a text; the others are the characters
CHAT = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "bé"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"},
]


def render(messages, *, tokenize, add_generation_prompt):
    assert not tokenize
    text = "".join(f"<{each['role']}>{each['content']}|" for each in messages)
    return text + "<assistant>" * add_generation_prompt


@dataclass
class CharacterModel:
    """A model with a token for each character, whose loss is 1/8 for each token."""

    max_length: int = 1000
    begins_texts: bool = False
    chat_template: str | None = "template"
    seen: list = field(default_factory=list)
    eot_token_id: int = END
    prefix_token_id: int = BEGIN

    @property
    def tokenizer(self):
        return SimpleNamespace(
            chat_template=self.chat_template, name_or_path="/workspace/export", apply_chat_template=render
        )

    def tok_encode(self, text, add_special_tokens=None):
        begins = self.begins_texts and add_special_tokens is None
        return [BEGIN] * begins + [ord(each) for each in text]

    def _loglikelihood_tokens(self, requests):
        self.seen += [(context, tokens) for _, context, tokens in requests]
        return [(-len(tokens) / 8, False) for _, _, tokens in requests]


def write_lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_rows_are_read_from_all_files_of_a_folder(tmp_path):
    folder = tmp_path / "eval"
    folder.mkdir()
    write_lines(folder / "a.jsonl", [{"prompt": "p", "completion": "c", "id": 1}, {"text": "t"}])
    chats = [{"messages": CHAT}, {"prompt": CHAT[:1], "completion": CHAT[1:2]}]
    for number, chat in enumerate(chats):
        parquet.write_table(pa.Table.from_pylist([chat]), folder / f"b{number}.parquet")
    (folder / "README.md").write_text("no rows")
    expected = [Row("p", "c"), Row(text="t"), Row(messages=CHAT), Row(messages=CHAT[:2], first=1)]
    assert read_rows(folder, None, chat_template=False) == expected
    assert read_rows(folder, 3, chat_template=False) == expected[:3]
    [row, *_] = read_rows(folder / "a.jsonl", 1, chat_template=True)
    assert (row.first, [each["content"] for each in row.messages]) == (1, ["p", "c"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it must be a file in JSON Lines or Parquet with rows"),
        ('{"text": "a"}\n{"text"', "row 2: it must be JSON"),
        ('{"prompt": "a", "chosen": "b"}', "row 1: each row must have prompt and completion, messages with roles, or"),
        ('{"messages": [{"from": "human"}]}', "it has messages"),
        ('{"prompt": "a", "completion": null}', "it has prompt, completion"),
        ("[]", "it has list"),
    ],
)
def test_rows_of_another_form_are_refused_with_their_place(tmp_path, text, problem):
    (tmp_path / "eval.jsonl").write_text(text)
    with pytest.raises(InvalidSpec, match="held_out cannot be") as refused:
        read_rows(tmp_path / "eval.jsonl", None, chat_template=False)
    assert problem in str(refused.value)
    with pytest.raises(InvalidSpec, match="it must be a file in JSON Lines"):
        read_rows(tmp_path / "missing", None, chat_template=False)


@pytest.mark.parametrize("begins_texts", [False, True])
@pytest.mark.parametrize(
    ("row", "parts", "size"),
    [
        (Row("ab", "cé"), [("ab", "cé\2")], 3),
        (Row(text="abc"), [("\1", "abc\2")], 3),
        (Row(messages=CHAT), [("<user>a|<assistant>", "bé|"), ("<user>a|<assistant>bé|<user>c|<assistant>", "d|")], 4),
        (Row(messages=CHAT, first=2), [("<user>a|<assistant>bé|<user>c|<assistant>", "d|")], 1),
    ],
)
def test_the_tokens_that_a_training_learns_count(row, parts, size, begins_texts):
    model = CharacterModel(begins_texts=begins_texts)
    losses = compute_losses(model, [Row(messages=CHAT[:1]), row])
    assert losses == {"1": RowLoss(sum(len(text) for _, text in parts) / 8, sum(len(text) for _, text in parts), size)}
    seen = [tuple("".join(map(chr, tokens)).lstrip("\1") for tokens in each) for each in model.seen]
    assert seen == [(context.lstrip("\1"), text) for context, text in parts]
    assert all(context for context, _ in model.seen)


@given(st.integers(1, 9), st.text(max_size=12), st.text(min_size=1, max_size=40))
def test_a_long_text_is_divided_so_that_each_token_counts_once(longest, context, text):
    model = CharacterModel(max_length=longest)
    [loss] = compute_losses(model, [Row(context, text)]).values()
    divisions = [tokens for _, tokens in model.seen]
    assert [token for tokens in divisions for token in tokens] == [*map(ord, text), END][-loss.tokens :]
    assert loss.tokens >= len(text)  # a first character that begins texts is only a context
    assert all(before and len(before) + len(tokens) <= longest + 1 for before, tokens in model.seen)


@pytest.mark.parametrize(
    ("template", "rows", "problem"),
    [
        (None, [Row(messages=CHAT)], "/workspace/export: the rows are conversations, but the tokenizer in this folder"),
        ("template", [Row(messages=CHAT[:1])], "at least one must have a completion"),
    ],
)
def test_rows_that_a_model_cannot_score_are_refused(template, rows, problem):
    with pytest.raises(InvalidSpec) as refused:
        compute_losses(CharacterModel(chat_template=template), rows)
    assert problem in str(refused.value)


def test_a_chat_template_that_changes_earlier_turns_is_refused(monkeypatch):
    monkeypatch.setitem(globals(), "render", lambda messages, **_: f"{len(messages)} turns")
    with pytest.raises(InvalidSpec, match="the chat template in this folder changes earlier turns"):
        compute_losses(CharacterModel(), [Row(messages=CHAT)])


LOSSES = st.builds(RowLoss, st.floats(0, 1000), st.integers(1, 500), st.integers(1, 2000))


@given(st.lists(LOSSES, min_size=2, max_size=30))
def test_the_metrics_are_ratios_of_sums(losses):
    scores = summarize_losses({str(row): loss for row, loss in enumerate(losses)})
    total = sum(each.loss for each in losses)
    assert scores["loss"].value == pytest.approx(total / sum(each.tokens for each in losses))
    bits = total / math.log(2) / sum(each.bytes for each in losses)
    assert scores["bits_per_byte"].value == pytest.approx(bits)
    for score in scores.values():
        assert (score.higher_is_better, score.is_mean) == (False, False)
        assert divide_sums([*score.rows.values()]) == score.value


def test_the_standard_error_is_that_of_repeated_samples():
    generator = random.Random(3)  # noqa: S311 - only a sample

    def draw():
        tokens = [generator.randint(5, 50) for _ in range(200)]
        return {str(n): RowLoss(generator.gauss(2, 0.5) * each, each, each) for n, each in enumerate(tokens)}

    scores = [summarize_losses(draw())["loss"] for _ in range(300)]
    mean = sum(score.value for score in scores) / len(scores)
    deviation = math.sqrt(sum((score.value - mean) ** 2 for score in scores) / (len(scores) - 1))
    assert sum(score.stderr for score in scores) / len(scores) == pytest.approx(deviation, rel=0.1)


def test_a_model_that_gives_no_number_has_no_rows_to_compare():
    diverged = summarize_losses({"0": RowLoss(math.nan, 3, 3)})["loss"]
    assert math.isnan(diverged.value)
    assert diverged.rows == {}
    one = summarize_losses({"0": RowLoss(1.5, 3, 3)})["loss"]
    assert (one.value, one.stderr) == (0.5, None)
    assert compare(one, diverged, 0.95, divide_sums) is None
    assert compare(one, one, 0.95, divide_sums).high == 0


def test_a_folder_of_a_fetch_has_the_prepared_rows_alone(tmp_path):
    files = {
        ".trainjob-fetch/record.jsonl": '{"format": "trainjob-fetch"}',
        "source/rows.jsonl": '{"question": "q"}',
        "data/train.jsonl": '{"text": "a"}',
        "eval/eval.jsonl": '{"text": "b"}',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert [row for _, row in iterate_rows(tmp_path, "held_out")] == [{"text": "a"}, {"text": "b"}]
    (tmp_path / "data/train.jsonl").unlink()
    assert len([*iterate_rows(tmp_path, "held_out")]) == 2  # `source` is a folder like any other then
