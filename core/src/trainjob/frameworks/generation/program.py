"""The generation program, from its arguments to its exit code.

Exit codes: 0 all rows have an answer, 1 failed, 2 wrong arguments or input.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainjob.credentials import clean_environment, redact_credentials
from trainjob.errors import InvalidSpec, TrainJobError
from trainjob.frameworks.generation.engines import ENGINES, Engine, Settings
from trainjob.frameworks.generation.prompts import encode_prompts, read_prompts
from trainjob.frameworks.generation.shards import Answer, ShardFiles, run_shards
from trainjob.frameworks.model_folder import find_problem, import_with_torch
from trainjob.frameworks.row_files import describe_files
from trainjob.job_variables import JOB_VARIABLE, RUN_VARIABLE, get_node_rank
from trainjob.version import check_version

__all__ = ["Generation", "generate", "main"]

_SHARD_ROWS = {"transformers": 256, "vllm": 2048}  # vLLM gets all of them at once, and is slow at their end
_MAX_NEW_TOKENS = 256  # the libraries' own defaults are 20 and 16


@dataclass(frozen=True)
class Generation:
    """The request of a generation.

    Attributes:
        model: folder of the model.
        rows: file or folder with the rows.
        output: folder of the output.
        limit: number of rows; None for all.
        chat_template: whether a `prompt` is the turn of a user, in the form of the tokenizer's chat template.
        settings: how answers are generated.
    """

    model: Path
    rows: Path
    output: Path
    limit: int | None = None
    chat_template: bool = False
    settings: Settings = field(default_factory=Settings)


def generate(request: Generation) -> dict[str, Any] | None:
    """Generate answers together with the other nodes, until all rows have one.

    Returns:
        The numbers of all nodes and attempts, on the node that merges the shards; None on the others.

    Raises:
        InvalidSpec: the folder has no model, or rows have a wrong form.
        RuntimeError: a library cannot be installed.
        OSError: the output cannot be written.
    """
    if problem := find_problem("model_path", request.model):
        raise InvalidSpec([problem])
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    library, settings = import_with_torch("transformers"), request.settings
    rows, prompts = read_prompts(request.rows, request.limit, chat_template=request.chat_template)
    tokenizer = library.AutoTokenizer.from_pretrained(str(request.model))
    config = library.AutoConfig.from_pretrained(str(request.model)).get_text_config()
    context = getattr(config, "max_position_embeddings", None)
    longest = context - settings.generation.get("max_new_tokens", 0) if context else None
    encoded, rank = encode_prompts(tokenizer, prompts, longest), get_node_rank()
    conditions = {
        # Another attempt may have less memory, and needs smaller batches.
        "settings": {name: value for name, value in asdict(settings).items() if name != "batch_size"},
        "library": library.__version__,
        "workflow_run": os.environ.get(RUN_VARIABLE, ""),
        "model": describe_files(request.model),
        "input": [str(request.rows), describe_files(request.rows)],
        "chat_template": request.chat_template,
    }
    size, job = _SHARD_ROWS[settings.engine], os.environ.get(JOB_VARIABLE, "")
    files = ShardFiles(request.output, conditions, len(rows), size, job)
    # Not before there is a shard to compute.
    load: Any = functools.cache(lambda: ENGINES[settings.engine](request.model, tokenizer, settings))

    def compute(shard: int) -> None:
        engine: Engine = load()
        numbers, begin = files.shards[shard], time.monotonic()
        answers: dict[int, Answer] = {}
        seed = (settings.seed + shard) % 2**32
        for batch in engine.generate([encoded[number] for number in numbers], seed):
            if files.is_finished(shard):
                print(f"generate: shard {shard + 1} of {len(files.shards)}: written by another node", flush=True)
                return
            answers |= batch
        seconds = time.monotonic() - begin
        files.write(shard, [answers[number] for number in range(len(numbers))], seconds)
        tokens = sum(answer.generated_tokens for answer in answers.values())
        place = f"generate: node {rank}, shard {shard + 1} of {len(files.shards)}"
        print(f"{place}: {len(numbers)} rows, {tokens} tokens in {seconds:.1f} s", flush=True)

    if count := len(files.shards) - len(files.list_unfinished()):
        print(f"generate: {count} of {len(files.shards)} shards are of an earlier attempt or another node", flush=True)
    run_shards(files, compute, rank)
    return (files.read_result() or files.merge(rows)) if rank == 0 else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generation as a program and return its exit code.

    The last line of a successful run is `generate: done {json}` on node 0.
    """
    if problem := clean_environment():
        return _fail(2, problem)
    try:
        result = generate(_parse_arguments(check_version(sys.argv[1:] if arguments is None else arguments)))
    except InvalidSpec as refusal:
        return _fail(2, str(refusal))
    except (TrainJobError, OSError) as failure:
        return _fail(1, str(failure))
    except Exception as error:  # noqa: BLE001 - a traceback may show a credential
        return _fail(1, f"{type(error).__name__}: {error}")
    print(f"generate: done {json.dumps(result)}" if result else "generate: all shards are finished", flush=True)
    return 0


def _parse_arguments(arguments: Sequence[str]) -> Generation:
    parser = argparse.ArgumentParser(prog="python -m trainjob.frameworks.generation", description="Generate answers.")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--rows", type=Path, required=True, help="file or folder with rows")
    parser.add_argument("--output", type=Path, required=True, help="folder of the output")
    parser.add_argument("--limit", type=int, help="number of rows")
    parser.add_argument("--chat-template", action="store_true", help="use the tokenizer's chat template for prompts")
    parser.add_argument("--engine", default="transformers", choices=tuple(ENGINES), help="library that generates")
    parser.add_argument("--generation", type=json.loads, default={}, help="JSON object of generation arguments")
    parser.add_argument("--batch-size", type=int, default=8, help="rows at once")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16", "fp16"), help="data type")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generation")
    given = parser.parse_args(arguments)
    generation = {} if "max_length" in given.generation else {"max_new_tokens": _MAX_NEW_TOKENS}
    settings = Settings(given.engine, {**generation, **given.generation}, given.batch_size, given.precision, given.seed)
    return Generation(given.model, given.rows, given.output, given.limit, given.chat_template, settings)


def _fail(code: int, message: str) -> int:
    print(f"generate: failed: {redact_credentials(message)}", file=sys.stderr, flush=True)
    return code
