"""Tiny models of many families through all steps, run with the libraries of the environment `trl`.

python trained_families.py TOKENIZER DATASETS FOLDER     print for each family: the result of each step, as JSON

Each model is saved by transformers, served by the laptop's hub, and fetched, checked, trained and exported by the
modules of the pods. Each training is a process of its own.
"""
# The environment in which types are checked has none of these libraries.
# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import PeftModel

from tests.integration.trl.merged_families import FAMILIES, build_model, build_own_model, build_vision_model
from trainjob.frameworks.fine_tuning import merging
from trainjob.frameworks.fine_tuning.architecture import check_architecture
from trainjob.frameworks.fine_tuning.start import Start
from trainjob.frameworks.trl.pod import program, training
from trainjob.frameworks.trl.pod.run_arguments import RunArguments, parse_run_arguments
from trainjob.programs.export.program import Export, export_model
from trainjob.programs.fetch.program import Fetch, fetch
from trainjob_local.demo.hub import HubServer

STEPS = ("fetch", "SFT, all weights", "SFT, LoRA", "DPO, LoRA", "merge", "export", "load", "logits")
_TRAININGS = {
    "SFT, all weights": ("sft", ()),
    "SFT, LoRA": ("sft", ("--use_peft=true",)),
    "DPO, LoRA": ("dpo", ("--use_peft=true",)),
}
_ARGUMENTS = (
    *("--max_steps=2", "--bf16=false", "--report_to=none", "--logging_steps=1", "--per_device_train_batch_size=2"),
    *("--learning_rate=0.01", "--logging_nan_inf_filter=false", "--save_strategy=no"),
)
VISION = ("llava", "qwen2-vl", "qwen2.5-vl", "mistral3")
"""Families that read images; they are trained with text."""
_IMAGE_TOKENS = [
    *("<image>", "<video>", "[IMG]", "[IMG_BREAK]", "[IMG_END]"),
    *("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
]
_TEXT = "The router does not work."


def build_processor(family: str, tokenizer: Any) -> Any:
    """Return the processor of a model that reads images."""
    if family == "llava":
        images = transformers.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
        return transformers.LlavaProcessor(images, tokenizer, patch_size=14, chat_template=tokenizer.chat_template)
    if family == "mistral3":
        images = transformers.PixtralImageProcessor(size={"longest_edge": 28}, patch_size={"height": 14, "width": 14})
        return transformers.PixtralProcessor(images, tokenizer, patch_size=14, chat_template=tokenizer.chat_template)
    images, videos = transformers.Qwen2VLImageProcessor(), transformers.Qwen2VLVideoProcessor()
    kind = {"qwen2-vl": transformers.Qwen2VLProcessor, "qwen2.5-vl": transformers.Qwen2_5_VLProcessor}[family]
    return kind(images, tokenizer, videos, chat_template=tokenizer.chat_template)


def save_model(family: str, folder: Path, tokenizer: Any) -> None:
    if family in VISION:
        tokenizer.add_tokens(_IMAGE_TOKENS, special_tokens=True)
        build_vision_model(family, len(tokenizer)).save_pretrained(folder)
        build_processor(family, tokenizer).save_pretrained(folder)
    elif family == "own code":
        build_own_model(folder, len(tokenizer))
    else:
        build_model(family, len(tokenizer)).save_pretrained(folder)
    if family not in VISION:
        tokenizer.save_pretrained(folder)
    (folder / "LICENSE").write_text("Apache License 2.0")


def make_run(family: str, model: Path, datasets: Path, output: Path, step: str) -> RunArguments:
    method, lora = _TRAININGS[step]
    trust = ["--trust_remote_code=true"] if family == "own code" else []
    data = {"sft": "data", "dpo": "pairs"}[method]
    columns = {"sft": {"prompt": "input", "completion": "output"}, "dpo": {}}[method]
    options = ("--model", model, "--dataset", datasets / data, "--output", output, "--columns", json.dumps(columns))
    words = [*map(str, options), "--trl-version", "1.16.0", *(["--merge"] if lora else []), method]
    return parse_run_arguments([*words, *_ARGUMENTS, *lora, *trust])


def check_and_train(run: RunArguments) -> None:
    """Check the input as the program in the pod does, and train."""
    program.check_models(run)
    check_architecture(run)
    program.check_datasets(run)
    run.output.mkdir(parents=True)
    (run.output / "trainjob_run.json").write_text(json.dumps({**training.describe(run), "method": run.method}))
    training.train(run, Start("owner", "", "nonce"))


def run_in_process(work: Callable[[], None], log: Path) -> str:
    """Run a function in a process of its own; return `ok`, or the last line of its output."""
    child = os.fork()
    if not child:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                work()
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the log has the reason
                traceback.print_exc()
                file.flush()
                os._exit(1)
    _, status = os.waitpid(child, 0)
    return "ok" if status == 0 else log.read_text(errors="replace").splitlines()[-1]


def compare(expected: Any, found: Any) -> str:
    difference = (expected - found).abs().max().item()
    return f"ok ({difference:.0e})" if difference < 1e-3 else f"differs by {difference:.2g}"


def compare_configurations(base: Path, trained: Path) -> str:
    """Compare a setting of servers; gradient checkpointing changes `use_cache`."""
    found = [json.loads((folder / "config.json").read_text()).get("use_cache") for folder in (base, trained)]
    return "ok" if found[0] == found[1] else f"use_cache is {found[1]}, not {found[0]}"


def compute(model: Any, tokens: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits.float()


def try_family(family: str, hub: Path, url: str, datasets: Path, folder: Path, tokenizer: Any) -> dict[str, str]:
    results = dict.fromkeys(STEPS, "-")
    source, model = hub / "models" / "demo" / family.replace(" ", "-"), folder / "model"
    save_model(family, source, tokenizer)
    fetch(Fetch("model", model, f"hf://demo/{source.name}", environment={"ENDPOINT": url}), lambda _: None)
    names = [{path.name for path in each.rglob("*") if path.is_file()} for each in (source, model)]
    missing = names[0] - names[1]
    results["fetch"] = f"ok ({len(names[0])} files)" if not missing else f"lacks {', '.join(sorted(missing))}"
    for step in _TRAININGS:
        run = make_run(family, model, datasets, folder / "output" / step.replace(", ", "-").replace(" ", "-"), step)
        results[step] = run_in_process(functools.partial(check_and_train, run), folder / f"{run.output.name}.log")
        if results[step] != "ok":
            return results
    results["SFT, all weights"] = compare_configurations(model, folder / "output" / "SFT-all-weights")
    lora = make_run(family, model, datasets, folder / "output" / "SFT-LoRA", "SFT, LoRA")
    tokens = tokenizer(_TEXT, return_tensors="pt").input_ids
    expected = compute(PeftModel.from_pretrained(merging._load_model(lora, model), lora.output), tokens)
    results["merge"] = compare(expected, compute(merging._load_model(lora, lora.output / "merged"), tokens))
    exported = folder / "export"
    receipt = export_model(Export(lora.output, model, str(exported)), lambda _: None)
    results["export"] = f"ok ({receipt.files} files)"
    loaded = merging._load_model(lora, exported)
    transformers.AutoTokenizer.from_pretrained(exported).apply_chat_template([{"role": "user", "content": "q"}])
    results["load"] = "ok"
    results["logits"] = compare(expected, compute(loaded, tokens))
    return results


def main(tokenizer_folder: str, datasets: str, root: str) -> None:
    torch.set_num_threads(1)  # a process that was forked from one with several threads waits for them forever
    transformers.logging.set_verbosity_error()
    for method in {method for method, _ in _TRAININGS.values()}:  # once for all processes
        importlib.import_module(f"trl.trainer.{method}_trainer")
        importlib.import_module(f"trl.scripts.{method}")
    hub = Path(root) / "hub"
    hub.mkdir(parents=True)
    with HubServer(hub) as server:
        for number, family in enumerate((*FAMILIES, *VISION, "own code")):
            tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
            folder = Path(root) / str(number)
            folder.mkdir()
            with contextlib.redirect_stdout(sys.stderr):
                try:
                    results = try_family(family, hub, server.url, Path(datasets), folder, tokenizer)
                except Exception as error:  # noqa: BLE001 - it is a result
                    traceback.print_exc()
                    results = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"family": family, **results}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
