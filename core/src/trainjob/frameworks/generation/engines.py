"""Libraries that generate: transformers, and vLLM, each with the same interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.generation.shards import Answer
from trainjob.frameworks.model_folder import PRECISIONS

__all__ = ["ENGINES", "Engine", "Settings", "convert_settings"]

_DEFAULTS = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_VLLM_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}


@dataclass(frozen=True)
class Settings:
    """Settings of the generation.

    Attributes:
        engine: `transformers` or `vllm`.
        generation: arguments of the generation, such as `{"max_new_tokens": 64}`.
        batch_size: rows at once; vLLM decides it itself.
        precision: `auto` (that of the model), `fp32`, `bf16` or `fp16`.
        seed: seed of the generation.
    """

    engine: str = "transformers"
    generation: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 8
    precision: str = "auto"
    seed: int = 0


class Engine(Protocol):
    """A loaded model."""

    def generate(self, prompts: Sequence[Sequence[int]], seed: int) -> Iterator[Mapping[int, Answer]]:
        """Yield the answers of some prompts by their numbers, until all have one.

        Args:
            prompts: token ids of the prompts.
            seed: seed of the prompts; the answers depend on nothing that was generated before.
        """


class _Transformers:
    def __init__(self, folder: Path, tokenizer: Any, settings: Settings) -> None:
        """Load the model; its layers are divided among several GPUs."""
        import torch
        from transformers import AutoModelForCausalLM

        self._tokenizer, self._settings = tokenizer, settings
        several = {"device_map": "auto"} if torch.cuda.device_count() > 1 else {}
        model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=PRECISIONS[settings.precision], **several)
        self._model = model if several else model.to("cuda" if torch.cuda.is_available() else "cpu")
        given = settings.generation.get("eos_token_id", model.generation_config.eos_token_id)
        self._ends = {given} if isinstance(given, int) else {*(given or ())}
        pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self._pad = 0 if pad is None else pad

    def generate(self, prompts: Sequence[Sequence[int]], seed: int) -> Iterator[dict[int, Answer]]:
        """Yield the answers of each batch; prompts of similar length are in the same one."""
        import torch

        torch.manual_seed(seed)
        size = self._settings.batch_size
        order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]), reverse=True)
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            longest = max(len(prompts[number]) for number in numbers)
            missing = [longest - len(prompts[number]) for number in numbers]
            ids = [[self._pad] * count + [*prompts[number]] for count, number in zip(missing, numbers, strict=True)]
            mask = [[0] * count + [1] * (longest - count) for count in missing]
            with torch.inference_mode():
                found = self._model.generate(
                    input_ids=torch.tensor(ids, device=self._model.device),
                    attention_mask=torch.tensor(mask, device=self._model.device),
                    pad_token_id=self._pad,
                    tokenizer=self._tokenizer,  # for `stop_strings`
                    **self._settings.generation,
                )
            answers = found[:, longest:].tolist()
            yield {number: self._decode(tokens) for number, tokens in zip(numbers, answers, strict=True)}

    def _decode(self, tokens: Sequence[int]) -> Answer:
        """Return an answer without what follows its end."""
        end = next((number for number, token in enumerate(tokens, start=1) if token in self._ends), len(tokens))
        while end and tokens[end - 1] == self._pad and self._pad not in self._ends:
            end -= 1
        return Answer(self._tokenizer.decode(tokens[:end], skip_special_tokens=True), end)


class _Vllm:
    def __init__(self, folder: Path, tokenizer: Any, settings: Settings) -> None:  # noqa: ARG002 - vLLM loads its own
        """Load the model on all GPUs of the node.

        Raises:
            InvalidSpec: the image has no vLLM.
        """
        try:
            import torch
            import vllm
        except ImportError as error:
            rule = f"it must contain vllm, because the engine is vllm: {error}"
            raise InvalidSpec(Problem("image", "the image of this pod", rule)) from None
        gpus = max(1, torch.cuda.device_count())
        dtype = PRECISIONS[settings.precision]
        self._model = vllm.LLM(model=str(folder), dtype=dtype, tensor_parallel_size=gpus, seed=settings.seed)
        self._arguments = convert_settings(settings.generation, read_object(folder / "generation_config.json"))
        self._parameters = vllm.SamplingParams

    def generate(self, prompts: Sequence[Sequence[int]], seed: int) -> Iterator[dict[int, Answer]]:
        """Yield the answers of all prompts at once, because vLLM forms the batches."""
        given = [{"prompt_token_ids": [*prompt]} for prompt in prompts]
        found = self._model.generate(given, self._parameters(**{**self._arguments, "seed": seed}), use_tqdm=False)
        outputs = [each.outputs[0] for each in found]
        yield {number: Answer(output.text, len(output.token_ids)) for number, output in enumerate(outputs)}


def convert_settings(generation: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of vLLM's `SamplingParams` for those of transformers' `generate`.

    Others than those that both have are passed on, and vLLM refuses what it does not know.

    Args:
        generation: arguments of the generation.
        defaults: content of the model's `generation_config.json`.
    """
    merged = {**{name: defaults[name] for name in _DEFAULTS if defaults.get(name) is not None}, **generation}
    is_sampled = merged.pop("do_sample", False)
    found = {_VLLM_NAMES.get(name, name): value for name, value in merged.items()}
    return found if is_sampled else {**found, "temperature": 0.0}


ENGINES = {"transformers": _Transformers, "vllm": _Vllm}
"""Classes of the engines by the value of the step's `engine`."""
