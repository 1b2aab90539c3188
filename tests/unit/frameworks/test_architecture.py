"""Models that a method cannot train, or whose adapter cannot be merged, are refused from their config.json."""

from __future__ import annotations

import contextlib
import importlib.util
import json

import pytest

from tests.corpus.model_repositories import REPOSITORIES
from trainjob import InvalidSpec
from trainjob.frameworks.fine_tuning.architecture import check_architecture
from trainjob.frameworks.trl.pod.run_arguments import parse_run_arguments

LORA = ("--use_peft=true",)
GPTQ = {"architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "gptq", "bits": 4}}
MXFP4 = {"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}}
T5 = {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
VISION = {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {}}
OWN_CODE = {"architectures": ["OwnModel"], "auto_map": {"AutoModelForCausalLM": "a.B"}}
# Configuration, method, merge, TRL's arguments.
ACCEPTED = {
    "Llama": ({"architectures": ["LlamaForCausalLM"]}, "sft", True, LORA),
    "GPT-2": ({"architectures": ["GPT2LMHeadModel"]}, "dpo", False, ()),
    "own code": (OWN_CODE, "sft", True, (*LORA, "--trust_remote_code=true")),
    "without architectures": ({"model_type": "llama"}, "sft", False, ()),
    "classifier": ({"architectures": ["LlamaForSequenceClassification"]}, "reward", False, ()),
    "quantized without a merge": (GPTQ, "sft", False, LORA),
    "loaded in 16 bits": (MXFP4, "sft", True, LORA),
}
REFUSED = {
    "T5": (T5, "sft", "model_path", "encoder"),
    "BERT": ({"architectures": ["BertForMaskedLM"]}, "sft", "model_path", "a BertForMaskedLM"),
    "embeddings": ({"architectures": ["MistralModel"]}, "dpo", "model_path", "dpo trains models that generate text"),
    "classifier": ({"architectures": ["LlamaForSequenceClassification"]}, "sft", "model_path", "generate text"),
    "GPTQ with a merge": (GPTQ, "sft", "config.peft_config.merge", 'merge=False and export with adapter="keep"'),
}


def check(folder, config, method="sft", *, merge=False, arguments=()):
    folder.joinpath("config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    paths = ("--model", str(folder), "--dataset", "d", "--output", "o", "--trl-version", "1.16.0")
    check_architecture(parse_run_arguments([*paths, *(["--merge"] * merge), method, *arguments]))


@pytest.fixture
def all_packages(monkeypatch):
    """Let each package of an image be found."""
    found = importlib.util.find_spec("json")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)


@pytest.mark.parametrize(("config", "method", "merge", "arguments"), ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.usefixtures("all_packages")
def test_a_model_that_can_be_trained_is_accepted(tmp_path, config, method, merge, arguments):
    check(tmp_path, config, method, merge=merge, arguments=arguments)


@pytest.mark.parametrize(("config", "method", "field", "text"), REFUSED.values(), ids=REFUSED)
@pytest.mark.usefixtures("all_packages")
def test_another_model_is_refused(tmp_path, config, method, field, text):
    with pytest.raises(InvalidSpec) as refused:
        check(tmp_path, config, method, merge=True, arguments=LORA)
    [problem] = refused.value.problems
    assert problem.field == field
    assert text in str(problem)


def test_all_weights_of_a_quantized_model_are_not_trained(tmp_path):
    with pytest.raises(InvalidSpec, match="quantized weights cannot be trained: give peft_config"):
        check(tmp_path, GPTQ)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_configuration_is_refused(tmp_path, content):
    with pytest.raises(InvalidSpec, match="not a JSON object"):
        check(tmp_path, content)


@pytest.mark.parametrize("missing", ["PIL", "torchvision", None])
def test_a_multimodal_model_needs_two_packages(tmp_path, monkeypatch, missing):
    found = importlib.util.find_spec("json")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else found)
    if missing is None:
        check(tmp_path, VISION)
        return
    with pytest.raises(InvalidSpec, match=f"its processor needs {'pillow' if missing == 'PIL' else missing}: "):
        check(tmp_path, VISION)


# A part of the family's name in the corpus, and of the problem of LoRA with a merge.
REFUSED_FAMILIES = {
    "encoder-decoder": "an encoder and a decoder",
    "embedding": "generate text",
    "quantized": "cannot be merged",
    "DeepSeek": "cannot be merged into weights that are quantized with fp8",
    "vision": "its processor needs pillow and torchvision",
}


@pytest.mark.parametrize("repository", [each for each in REPOSITORIES if each.config], ids=lambda each: each.name)
def test_each_popular_model_is_accepted_or_refused_with_the_reason(tmp_path, monkeypatch, repository):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    expected = [text for family, text in REFUSED_FAMILIES.items() if family in repository.family]
    try:
        check(tmp_path, repository.config, merge=True, arguments=LORA)
        found = ""
    except InvalidSpec as refusal:
        found = str(refusal)
    assert bool(found) == bool(expected)
    assert all(text in found for text in expected)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
def test_the_packages_of_a_quantization_are_named(tmp_path, monkeypatch, method):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    config = {**GPTQ, "quantization_config": {"quant_method": method}}
    package = "bitsandbytes" if method == "bitsandbytes" else "gptqmodel"
    with pytest.raises(InvalidSpec, match=f"the quantized model needs .*{package}: give an image with"):
        check(tmp_path, config, arguments=LORA)


@pytest.mark.parametrize(
    ("kind", "words", "is_refused"),
    [("own", (), True), (None, (), True), ("own", ("--trust_remote_code=true",), False), ("gpt-neo", (), False)],
)
def test_code_of_the_model_runs_only_if_it_is_trusted(tmp_path, monkeypatch, kind, words, is_refused):
    """A model of a type that transformers knows needs no code of its own."""
    package = tmp_path / "transformers"
    (package / "models" / "gpt_neo").mkdir(parents=True)
    (package / "models" / "gpt_neo" / "__init__.py").touch()
    found = importlib.util.spec_from_file_location("transformers", package / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    config = {"auto_map": {"AutoConfig": "a.B"}, **({"model_type": kind} if kind else {})}
    with pytest.raises(InvalidSpec, match="trust_remote_code=True") if is_refused else contextlib.nullcontext():
        check(tmp_path, config, arguments=words)


TOKENS = {
    "tokenizer.json": {"added_tokens": [{"id": 3, "content": "<pad>"}, {"id": 400, "content": "<new>"}]},
    "added_tokens.json": {"<pad>": 3, "<new>": 400},
}
VOCABULARIES = {
    "by number": {"a": 0, "<new>": 400},
    "in order": [[str(number), 0.0] for number in range(400)] + [["<new>", 0]],
}


@pytest.mark.parametrize("sizes", [{"vocab_size": 400}, {"text_config": {"vocab_size": 400}}])
@pytest.mark.parametrize("name", TOKENS)
def test_a_token_without_an_embedding_is_refused_if_texts_contain_it(tmp_path, capsys, name, sizes):
    (tmp_path / name).write_text(json.dumps(TOKENS[name]))
    check(tmp_path, sizes)
    assert capsys.readouterr().out == "the model has no embedding for the token '<new>', so no row may contain it\n"
    for settings in ({"eos_token": "<new>"}, {"pad_token": {"content": "<new>"}}, {"chat_template": "{{ x }}<new>"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(InvalidSpec, match=r"no embedding for, such as '<new>': .* with its 400 tokens"):
            check(tmp_path, sizes)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "chat_template.jinja").write_text("<new>{{ x }}")
    with pytest.raises(InvalidSpec, match="no embedding for"):
        check(tmp_path, sizes)
    for larger in (401, 512):  # vocabularies are often padded
        check(tmp_path, {"vocab_size": larger})
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize("vocabulary", VOCABULARIES.values(), ids=VOCABULARIES)
def test_a_vocabulary_longer_than_the_embeddings_is_refused(tmp_path, vocabulary):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
    with pytest.raises(InvalidSpec, match="no embedding for, such as '<new>'"):
        check(tmp_path, {"vocab_size": 400})
    check(tmp_path, {"vocab_size": 401})


@pytest.mark.parametrize("content", ["", "[]", '{"added_tokens": 1}', '{"added_tokens": [{}]}'])
def test_a_tokenizer_that_cannot_be_read_is_left_to_the_training(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    check(tmp_path, {"vocab_size": 4})
