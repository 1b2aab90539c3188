"""Files that programs read when they load an exported model, compared with those of the export.

The names are data: the programs are not installed where an export runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

__all__ = ["find_missing"]

# Any one of them has a tokenizer's vocabulary: transformers 5.23 (convert_slow_tokenizer.py,
# tokenization_utils_base.py). tekken.json is Mistral's own form, which vLLM reads.
_VOCABULARIES = re.compile(
    r"tokenizer\.json|tokenizer\.model(\.v\d+)?|tekken\.json|vocab\.(json|txt)|merges\.txt|spiece\.model"
    r"|sentencepiece\.bpe\.model|source\.spm|.*\.tiktoken"
)
_TEMPLATES = re.compile(r"chat_template\.(jinja|json)")
# Files that these programs read beside weights, configuration and vocabulary: transformers those of the tokenizer and
# the processor; sentence-transformers, and vLLM later than 0.24 (transformers_utils/config.py, get_pooling_config),
# those of the modules.
_READ_IF_PRESENT = re.compile(
    r"(tokenizer|processor|preprocessor|video_preprocessor)_config\.json|additional_chat_templates/.*\.jinja"
    r"|modules\.json|sentence_[\w-]+_config\.json|config_sentence_transformers\.json|\d+_\w+/config\.json"
)
_GENERATION = "generation_config.json"  # also read by vLLM, for its default values of sampling
_GENERATES = re.compile(r".*(ForCausalLM|ForConditionalGeneration|LMHeadModel)")


def find_missing(files: Collection[str], base_files: Collection[str], config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence about each file that programs miss when they load the export.

    Args:
        files: names of the exported files.
        base_files: names of the files in the base model's folder.
        config: content of the exported `config.json`.
    """
    for kind, names in (("tokenizer", _VOCABULARIES), ("chat template", _TEMPLATES)):
        if any(map(names.fullmatch, base_files)) and not any(map(names.fullmatch, files)):
            yield f"the base model has a file with its {kind}, and the exported model has none"
    generates = any(_GENERATES.fullmatch(name) for name in config.get("architectures") or ())
    for name in sorted(set(base_files) - set(files)):
        if _READ_IF_PRESENT.fullmatch(name) or (name == _GENERATION and generates):
            yield f"the base model has {name}, and the exported model does not"
    for name in _list_own_code(config.get("auto_map")):
        if name not in files:
            yield f"config.json names the model's own code {name}, which is not in the exported model"


def _list_own_code(auto_map: Any) -> Iterator[str]:
    """Yield the names of the files with a model's own code."""
    for reference in auto_map.values() if isinstance(auto_map, Mapping) else ():
        for name in reference if isinstance(reference, list) else [reference]:
            if isinstance(name, str) and "--" not in name:  # otherwise the code is in another repository
                yield f"{name.split('.')[0]}.py"
