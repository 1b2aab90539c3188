"""TRL's program before torch is loaded: arguments, columns, rewards, and records of checkpoints."""

from __future__ import annotations

import contextlib
import importlib.util
import json

import pytest

from trainjob import FineTune, InvalidSpec, TRLConfig, TRLLoraConfig
from trainjob.frameworks.fine_tuning.row_checks import check_rows_of
from trainjob.frameworks.trl.pod.model_arguments import choose_model_arguments
from trainjob.frameworks.trl.pod.program import (
    check_datasets,
    check_models,
    list_column_choices,
    reward_names,
    write_reward_modules,
)
from trainjob.frameworks.trl.pod.run_arguments import parse_run_arguments
from trainjob.manifest.steps import to_trainjob


def write_jsonl(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_program_parses_what_the_core_builds():
    def reward(completions, **_):
        return [1.0 for _ in completions]

    step = FineTune(
        model="tiny",
        workspace="w",
        output_path="o",
        config=TRLConfig(
            method="grpo",
            columns={"prompt": "a question"},
            reward_functions=(reward, "a.b"),
            teacher_path=None,
            eval_dataset_path="held",
            peft_config=TRLLoraConfig(lora_rank=2),
            pip_index_url="https://index.example/simple",
            wheels_path="wheels",
            arguments={"reward_weights": [1.0, 2.0], "beta": 0.1},
        ),
    )
    run = parse_run_arguments(list(to_trainjob(step, run="r").trainer.args))
    assert (json.loads(run.run)["run"], run.method, run.model_name, str(run.output)) == (
        "r",
        "grpo",
        "tiny",
        "/workspace/output/o",
    )
    assert (run.columns, run.merge, str(run.wheels)) == ({"prompt": "a question"}, True, "/workspace/wheels")
    assert [str(path) for path in run.inputs] == [
        "/workspace/model",
        "/workspace/dataset/data",
    ]
    assert run.trl_arguments[-4:] == ("--reward_weights", "1.0", "2.0", "--beta=0.1")
    assert [reward.partition(":")[0] for reward in run.rewards] == ["reward", "a.b"]


def test_a_reward_function_arrives_as_a_module(tmp_path):
    def first_word(completions, word="Route", **_):
        """Return 1.0 for an answer that starts with the word."""
        return [float(text.startswith(word)) for text in completions]

    step = FineTune(model="m", workspace="w", config=TRLConfig(method="rloo", reward_functions=("a.b", first_word)))
    rewards = parse_run_arguments(list(to_trainjob(step).trainer.args)).rewards
    write_reward_modules(rewards, tmp_path)
    assert reward_names(rewards) == ["a.b", "trainjob_reward_1.first_word"]
    [file] = tmp_path.iterdir()
    spec = importlib.util.spec_from_file_location("trainjob_reward_1", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.first_word(["Route to x", "no"]) == [1.0, 0.0]


COLUMNS = {
    "sft": [{"prompt", "completion"}, {"messages"}, {"text", "id"}],
    "dpo": [{"chosen", "rejected"}, {"prompt", "chosen", "rejected"}],
    "kto": [{"prompt", "completion", "label"}, {"chosen", "rejected"}],
    "reward": [{"chosen", "rejected"}],
    "grpo": [{"prompt", "answer"}],
    "rloo": [{"prompt"}],
    "distillation": [{"prompt"}],
}


def row_of(names):
    return {name: True if name == "label" else "a text" for name in names}


@pytest.mark.parametrize("method", COLUMNS)
def test_the_columns_that_a_method_needs_are_enough(method, tmp_path):
    for names in COLUMNS[method]:
        values = row_of(names)
        if "messages" in names:
            values["messages"] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        path = write_jsonl(tmp_path / "rows.jsonl", values)
        found = check_rows_of(path, method, {}, list_column_choices(method))
        assert (found.columns, found.has_conversations) == (set(names), "messages" in names)


@pytest.mark.parametrize("method", COLUMNS)
def test_missing_columns_are_refused_with_those_found_and_needed(method, tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", {"question": "q", "answer": "a"})
    with pytest.raises(InvalidSpec, match="a dataset with question, answer") as raised:
        check_rows_of(path, method, {}, list_column_choices(method))
    assert f"{method} needs " in str(raised.value)
    assert all(name in str(raised.value) for name in min(COLUMNS[method], key=len) - {"text", "id"})


def test_columns_are_renamed_before_the_check(tmp_path):
    answer = [{"role": "assistant", "content": "a"}]
    path = write_jsonl(tmp_path / "rows.jsonl", {"question": [{"role": "user", "content": "q"}], "answer": answer})
    choices = list_column_choices("sft")
    found = check_rows_of(path, "sft", {"prompt": "question", "completion": "answer"}, choices)
    assert (found.columns, found.has_conversations) == ({"prompt", "completion"}, True)
    with pytest.raises(InvalidSpec, match=r"config\.columns cannot be 'answers': .* has the columns question, answer"):
        check_rows_of(path, "sft", {"prompt": "question", "completion": "answers"}, choices)


def test_the_text_column_may_have_another_name(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", {"document": "t"})
    assert not check_rows_of(path, "sft", {}, list_column_choices("sft", "document")).has_conversations


def run_in(folder, *words):
    paths = {"--model": folder / "model", "--dataset": folder / "rows.jsonl", "--output": folder / "output"}
    given = [str(word) for pair in paths.items() for word in pair]
    return parse_run_arguments([*given, "--trl-version", "1.16.0", *words])


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "model-1b").mkdir()
    with pytest.raises(InvalidSpec, match=r"model_path cannot be .*/model: .* contains model-1b"):
        check_models(run_in(tmp_path, "sft"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    check_models(run_in(tmp_path, "sft"))
    with pytest.raises(InvalidSpec, match=r"config\.teacher_path"):
        check_models(run_in(tmp_path, "--teacher", str(tmp_path / "model-1b"), "distillation"))


def test_a_type_of_model_that_trl_cannot_train_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama4_text"}')
    with pytest.raises(InvalidSpec, match=r"llama4_text: TRL 1\.16\.0 cannot compute the loss of sft"):
        check_models(run_in(tmp_path, "sft"))
    check_models(run_in(tmp_path, "dpo"))


@pytest.mark.parametrize(
    ("kind", "method", "given", "chosen"),
    [
        ("granitemoe", "sft", {}, ["--router_aux_loss_coef=0.0"]),
        ("granitemoe", "sft", {"router_aux_loss_coef": 0.1}, []),
        ("granitemoe", "dpo", {}, []),
        ("jetmoe", "dpo", {}, ["--gradient_checkpointing=false"]),
        ("jetmoe", "dpo", {"gradient_checkpointing": True}, []),
        ("llama", "sft", {}, []),
    ],
)
def test_arguments_follow_from_the_type_of_the_model(kind, method, given, chosen):
    assert list(choose_model_arguments(kind, method, given)) == chosen


@pytest.mark.parametrize(
    ("tokens", "words", "is_refused"),
    [
        ({}, (), True),
        ({"pad_token": None}, (), True),
        ({"eos_token": "</s>"}, (), False),
        ({"pad_token": {"content": "<pad>"}}, (), False),
        ({"tokenizer_class": "GPT2Tokenizer"}, (), False),  # it has tokens of its own
        ({}, ("--pad_token=<pad>",), False),
    ],
)
def test_a_tokenizer_needs_a_token_for_padding(tmp_path, tokens, words, is_refused):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(settings))
    refusal = pytest.raises(InvalidSpec, match="its tokenizer has no pad_token and no eos_token")
    with refusal if is_refused else contextlib.nullcontext():
        check_models(run_in(tmp_path, "sft", *words))


def test_conversations_need_a_chat_template(tmp_path):
    (tmp_path / "model").mkdir()
    write_jsonl(tmp_path / "rows.jsonl", {"messages": [{"role": "user", "content": "c"}]})
    with pytest.raises(InvalidSpec, match="its tokenizer has no chat template"):
        check_datasets(run_in(tmp_path, "sft"))
    check_datasets(run_in(tmp_path, "sft", "--chat_template_path=x"))
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    check_datasets(run_in(tmp_path, "sft"))


@pytest.mark.parametrize(
    ("words", "step", "epoch", "is_included"),
    [
        ((), 100, 2.5, True),
        (("--max_steps=100",), 100, 9, True),
        (("--max_steps=99",), 100, 1, False),
        (("--max_steps=-1", "--num_train_epochs=3"), 100, 3.0, True),
        (("--num_train_epochs=2.4",), 100, 2.5, False),
    ],
)
def test_a_checkpoint_beyond_the_length_of_the_training_is_not_used(tmp_path, words, step, epoch, is_included):
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": epoch}))
    assert run_in(tmp_path, "sft", *words).includes(tmp_path) == is_included
