"""A fetch takes everything of a model's repository but weights in other formats."""

from __future__ import annotations

import pytest

from tests.corpus.model_repositories import REPOSITORIES, WITHOUT_WEIGHTS
from tests.integration.programs.fetch.fetch_results import failure_message, read_contents, read_receipt
from trainjob.errors import FetchError
from trainjob.programs.fetch.selection import choose_files, describe_choice


@pytest.mark.parametrize("repository", REPOSITORIES, ids=lambda each: each.name)
def test_everything_that_transformers_loads_is_chosen(repository):
    chosen = choose_files("model", repository.files, (), repository.name)
    assert (chosen, sorted(set(repository.files) - set(chosen))) == (
        sorted(repository.loaded.split()),
        sorted(repository.left_out.split()),
    )


def test_the_corpus_has_all_kinds_of_repositories():
    families = " ".join(repository.family for repository in REPOSITORIES)
    assert len(REPOSITORIES) >= 25
    kinds = ("experts", "vision", "own code", "embedding", "encoder-decoder", "quantized", "adapter", "templates")
    assert [kind for kind in kinds if kind not in families] == []


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_a_model_without_weights_is_an_error_that_names_what_there_is(name):
    files = WITHOUT_WEIGHTS[name]
    with pytest.raises(FetchError, match=r"has no weights that transformers reads; it has ") as raised:
        choose_files("model", files, (), f"model {name}")
    assert files[1] in str(raised.value)
    assert choose_files("dataset", files, (), name) == sorted(files)


def test_given_patterns_replace_the_rule():
    files = ["config.json", "docs/a.md", "model.gguf", "original/model.safetensors"]
    assert choose_files("model", files, ["*.md"], "m") == ["config.json", "model.gguf", "original/model.safetensors"]
    assert choose_files("model", files, ["original/", "docs/*"], "m") == ["config.json", "model.gguf"]
    with pytest.raises(FetchError, match=r"m has no file to fetch; it has config\.json, docs/a\.md"):
        choose_files("model", files, ["*"], "m")


def test_the_log_names_what_is_left_out_and_the_programs():
    paths = [*(f"part-{number}.pth" for number in range(8)), "modeling_own.py", "model.safetensors"]
    sizes = dict.fromkeys(paths, 1500)
    assert describe_choice("model", choose_files("model", paths, (), "m"), sizes) == [
        "left out, 12.0 kB: part-0.pth, part-1.pth, part-2.pth, part-3.pth, part-4.pth, part-5.pth and 2 more",
        "the model has its own code, which runs only if a step trusts it: modeling_own.py",
    ]
    assert describe_choice("model", paths, sizes)[:-1] == []
    assert describe_choice("dataset", paths[:3], dict.fromkeys(paths[:3], 1)) == []


def test_patterns_that_leave_no_weights_are_in_the_log():
    sizes = {"config.json": 1, "model.gguf": 2, "model.safetensors": 3}
    chosen = choose_files("model", sizes, ["*.safetensors"], "m")
    assert describe_choice("model", chosen, sizes)[-1] == "ignore_patterns leave no weights that transformers reads"


@pytest.mark.parametrize(
    ("paths", "left_out"),
    {
        # A part of sentence-transformers has its own weights, in another format than the model's.
        "model.safetensors pytorch_model.bin 2_Dense/config.json 2_Dense/pytorch_model.bin": "pytorch_model.bin",
        "model.safetensors tokenizer.bin training_args.bin optimizer.bin": "optimizer.bin",
        "model_index.json unet/diffusion_pytorch_model.bin unet/x.safetensors vae/diffusion_pytorch_model.bin": (
            "unet/diffusion_pytorch_model.bin"
        ),
        "adapter_config.json adapter_model.bin": "",
    }.items(),
)
def test_formats_are_chosen_for_each_folder(paths, left_out):
    chosen = choose_files("model", paths.split(), (), "m")
    assert sorted(set(paths.split()) - set(chosen)) == left_out.split()


def test_binary_files_that_are_no_weights_do_not_count_as_weights():
    with pytest.raises(FetchError, match=r"has no weights that transformers reads; it has model\.bin"):
        choose_files("model", ["config.json", "model.bin", "tokenizer.bin", "training_args.bin"], (), "m")


FILES = ("chat_template.jinja", "additional_chat_templates/tool.jinja", "modeling_own.py", "qwen.tiktoken", "LICENSE")


def test_templates_code_and_licences_arrive(tmp_path, run_fetch, hub):
    for name in FILES:
        path = tmp_path / "hub" / "models/demo/tiny" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"content of {name}")
    done = run_fetch("model", "hf://demo/tiny", HF_ENDPOINT=hub.url)
    read_receipt(done)
    found = read_contents(tmp_path / "workspace" / "model")
    assert {name: found[name].decode() for name in FILES} == {name: f"content of {name}" for name in FILES}
    assert "runs only if a step trusts it: modeling_own.py" in done.stdout


def test_a_repository_without_weights_leaves_nothing_behind(tmp_path, run_fetch, hub):
    for name in ("model.safetensors", "pytorch_model.bin"):
        (tmp_path / "hub" / "models/demo/tiny" / name).unlink()
    assert "has no weights that transformers reads" in failure_message(
        run_fetch("model", "hf://demo/tiny", HF_ENDPOINT=hub.url)
    )
    assert not (tmp_path / "workspace" / "model").exists()
