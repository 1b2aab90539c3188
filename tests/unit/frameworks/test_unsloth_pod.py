"""Unsloth's program before torch is loaded: checks of image, dataset and arguments, and its environment."""

from __future__ import annotations

import dataclasses
import json
import os
from importlib import metadata

import pytest

from trainjob import InvalidSpec
from trainjob.frameworks.unsloth.pod.program import check_dataset, prepare, set_unsloth_environment
from trainjob.frameworks.unsloth.pod.run_arguments import parse_run_arguments
from trainjob.frameworks.unsloth.pod.trainer_arguments import build_trainer_arguments

TEXTS, PAIR = {"prompt": "q", "completion": "a"}, {"chosen": "a", "rejected": "b"}
CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def words_in(folder, method="sft", *options):
    words = ["--model", str(folder / "model"), "--dataset", str(folder / "rows.jsonl"), "--output", str(folder / "out")]
    return [*words, "--unsloth-version", "2026.10.9", *options, method]


def run_in(folder, method="sft", *options):
    return parse_run_arguments(words_in(folder, method, *options))


def write_files(folder, row, *, template=False):
    (folder / "rows.jsonl").write_text(json.dumps(row))
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text("{}")
    if template:
        (folder / "model" / "chat_template.jinja").write_text("{{ messages }}")


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("sft", TEXTS),
        ("sft", {"prompt": CHAT[:1], "completion": CHAT[1:]}),
        ("sft", {"messages": CHAT}),
        ("sft", {"text": "q a"}),
        ("sft", {"input_ids": [1, 2]}),
        ("dpo", {"prompt": "q", **PAIR}),
        ("dpo", {"chosen": CHAT, "rejected": CHAT}),
        ("kto", {**TEXTS, "label": True}),
        ("kto", {"prompt": "q", **PAIR}),
    ],
)
def test_rows_that_the_method_can_use_are_accepted(tmp_path, method, row):
    write_files(tmp_path, row, template=True)
    check_dataset(run_in(tmp_path, method))


@pytest.mark.parametrize(
    ("method", "row", "needed"),
    [
        ("sft", {"question": "q"}, "sft needs prompt + completion or messages or text or input_ids: "),
        ("sft", {"conversations": CHAT}, "sft needs prompt + completion or messages or text or input_ids: "),
        ("dpo", TEXTS, "dpo needs chosen + rejected: "),
        ("kto", TEXTS, "kto needs prompt + completion + label or chosen + rejected: "),
    ],
)
def test_missing_columns_are_refused_with_those_found_and_needed(tmp_path, method, row, needed):
    write_files(tmp_path, row)
    with pytest.raises(InvalidSpec) as raised:
        check_dataset(run_in(tmp_path, method))
    rename = "rename columns with columns={'NAME': 'COLUMN'}, or convert the dataset"
    assert str(raised.value) == f"dataset_path cannot be a dataset with {', '.join(row)}: {needed}{rename}"


def test_columns_have_the_names_of_the_request(tmp_path):
    write_files(tmp_path, {"question": "q", "answer": "a"})
    check_dataset(run_in(tmp_path, "sft", "--columns", '{"prompt": "question", "completion": "answer"}'))
    write_files(tmp_path, {"document": "t"})
    check_dataset(run_in(tmp_path, "sft", "--arguments", '{"dataset_text_field": "document"}'))


def test_the_rows_for_evaluation_are_checked_too(tmp_path):
    write_files(tmp_path, TEXTS)
    (tmp_path / "held.jsonl").write_text(json.dumps({"question": "q"}))
    with pytest.raises(InvalidSpec, match="a dataset with question"):
        check_dataset(run_in(tmp_path, "sft", "--eval-dataset", str(tmp_path / "held.jsonl")))


@pytest.mark.parametrize(
    ("method", "row", "advice"),
    [
        ("sft", {"messages": CHAT}, "give chat_template_path in arguments"),
        ("dpo", {"chosen": CHAT, "rejected": CHAT}, "use a model whose tokenizer has one"),
    ],
)
def test_conversations_need_a_chat_template(tmp_path, method, row, advice):
    write_files(tmp_path, row)
    with pytest.raises(InvalidSpec, match=f"its tokenizer has no chat template: {advice}"):
        check_dataset(run_in(tmp_path, method))
    check_dataset(run_in(tmp_path, method, "--arguments", '{"chat_template_path": "template.jinja"}'))


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(
        InvalidSpec, match=r"model_path cannot be .* it must be the folder of a model with config\.json"
    ):
        prepare(words_in(tmp_path))


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (None, "image cannot be the image of this pod: it must contain Unsloth 2026.10.9"),
        ("2026.9.1", "the image has Unsloth 2026.9.1: use an image with Unsloth 2026.10.9"),
    ],
)
def test_an_image_with_another_unsloth_is_refused(tmp_path, monkeypatch, found, rule):
    def find(name):
        if name != "unsloth" or found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", find)
    write_files(tmp_path, TEXTS)
    with pytest.raises(InvalidSpec) as raised:
        prepare(words_in(tmp_path))
    assert rule in str(raised.value)


def test_unsloth_neither_trains_on_a_cpu_nor_sends_statistics(tmp_path, monkeypatch):
    for name in ("UNSLOTH_DISABLE_CPU_FALLBACK", "UNSLOTH_DISABLE_STATISTICS", "UNSLOTH_COMPILE_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UNSLOTH_COMPILE_LOCATION", "/cache/compiled")
    set_unsloth_environment(tmp_path)
    assert (os.environ["UNSLOTH_DISABLE_CPU_FALLBACK"], os.environ["UNSLOTH_DISABLE_STATISTICS"]) == ("1", "1")
    assert os.environ["UNSLOTH_COMPILE_LOCATION"] == "/cache/compiled"


@dataclasses.dataclass
class Config:
    """The fields of a configuration of TRL that a test needs."""

    output_dir: str
    disable_tqdm: bool
    learning_rate: float = 1e-4
    report_to: str | list[str] = "none"


def test_the_trainer_gets_the_arguments_and_the_files_of_the_step(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL", raising=False)
    run = run_in(tmp_path, "sft", "--arguments", '{"learning_rate": 0.1}')
    expected = {"learning_rate": 0.1, "output_dir": str(tmp_path / "out"), "disable_tqdm": True}
    assert build_trainer_arguments(run, Config, "1.15.0") == expected
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", "https://trainer")
    assert build_trainer_arguments(run, Config, "1.15.0") == {**expected, "report_to": ["kubeflow"]}
    given = run_in(tmp_path, "sft", "--arguments", '{"report_to": ["wandb"]}')
    assert build_trainer_arguments(given, Config, "1.15.0")["report_to"] == ["wandb"]


def test_an_argument_that_the_images_trl_lacks_is_refused(tmp_path):
    run = run_in(tmp_path, "sft", "--arguments", '{"learning_rate": 0.1, "shuffle_dataset": true}')
    with pytest.raises(InvalidSpec) as raised:
        build_trainer_arguments(run, Config, "0.24.0")
    rule = "TRL 0.24.0 of the image has no such argument: use an image with a newer TRL"
    assert str(raised.value) == f"config.arguments.shuffle_dataset cannot be True: {rule}"
