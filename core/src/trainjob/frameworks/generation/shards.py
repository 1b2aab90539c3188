"""Shards of rows on the workspace that all nodes share, and the output that is merged from them.

A shard is a fixed number of rows, so it is the same with any number of nodes. A node claims the next shard, computes it
and writes its answers in one step. Nodes send no messages: a node whose shards are all finished or claimed computes
those that others have not finished, because it cannot know whether the others still run.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainjob.frameworks.durable_files import read_object, write_lines, write_text

__all__ = ["OUTPUT_FILE", "Answer", "ShardFiles", "run_shards"]

OUTPUT_FILE = "generated.jsonl"
"""File in the output folder with all rows."""
_RESULT_FILE = "generated.json"
_FOLDER = ".shards"
_ESCAPED = re.compile("[\ud800-\udfff\x85\u2028\u2029]")


@dataclass(frozen=True)
class Answer:
    """The answer to a prompt.

    Attributes:
        generated_text: its text.
        generated_tokens: number of its tokens.
    """

    generated_text: str
    generated_tokens: int


class ShardFiles:
    """The shards of one output.

    Attributes:
        shards: numbers of the rows of each shard.
    """

    def __init__(self, output: Path, conditions: Mapping[str, Any], rows: int, size: int, job: str = "") -> None:
        """Create the folder for the shards.

        Args:
            output: folder of the output.
            conditions: everything on which the answers depend. Shards of other conditions do not count.
            rows: number of all rows.
            size: number of the rows of a shard.
            job: identifies the pods that run now; claims of other pods do not count.

        Raises:
            OSError: the folder cannot be written.
        """
        self.shards = [range(start, min(start + size, rows)) for start in range(0, rows, size)]
        text = json.dumps({**conditions, "rows": rows, "size": size}, sort_keys=True)
        self._digest = hashlib.sha256(text.encode()).hexdigest()
        self._output, self._job = output, job
        self._folder = output / _FOLDER / self._digest[:32]
        if self.read_result() is None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def is_finished(self, shard: int) -> bool:
        """Return whether the answers of a shard are written, or even merged."""
        return self._get_path(shard).exists() or self.read_result() is not None

    def list_unfinished(self) -> list[int]:
        """Return the numbers of the shards without answers."""
        found = [shard for shard in range(len(self.shards)) if not self._get_path(shard).exists()]
        # A merge writes the result before it deletes the shards.
        return found if found and self.read_result() is None else []

    def claim(self, shard: int) -> bool:
        """Return whether no node of this job has claimed the shard before; it is claimed then."""
        try:
            (self._folder / f"{shard:06}.{self._job}.claim").touch(exist_ok=False)
        except (FileExistsError, FileNotFoundError):  # there is no folder after the merge
            return False
        return True

    def write(self, shard: int, answers: Sequence[Answer], seconds: float) -> None:
        """Write the answers of a shard in one step, also if another node does so at the same time.

        Raises:
            OSError: the workspace is full, or cannot be written.
        """
        written = self._folder / f"{shard:06}.{secrets.token_hex(8)}"
        record = {"seconds": seconds, "answers": [asdict(answer) for answer in answers]}
        try:
            write_text(written, json.dumps(record))
            written.rename(self._get_path(shard))
        except FileNotFoundError:
            if self.read_result() is None:  # otherwise the shards are merged, and their folder is deleted
                raise

    def merge(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Write all rows with their answers, in their order, and delete the shards.

        Returns:
            Numbers of rows, shards and generated tokens, seconds of all shards, tokens per second, and the file.

        Raises:
            RuntimeError: the files have not one answer for each row.
            OSError: the workspace is full, or cannot be written.
        """
        path, totals = self._output / OUTPUT_FILE, {"seconds": 0.0, "tokens": 0}

        def read_lines() -> Iterator[str]:
            for shard, numbers in enumerate(self.shards):
                found = read_object(self._get_path(shard))
                answers = found.get("answers", ())
                if len(answers) != len(numbers):
                    raise RuntimeError(f"{self._get_path(shard)} is damaged: delete it, and run the step again")
                totals["seconds"] += found["seconds"]
                for number, answer in zip(numbers, answers, strict=True):
                    totals["tokens"] += answer["generated_tokens"]
                    yield _to_line({**rows[number], **answer})

        write_lines(path, read_lines())
        with path.open("rb") as file:
            count = sum(1 for _ in file)
        if count != len(rows):
            raise RuntimeError(f"{path} has {count} rows in place of {len(rows)}: run the step again")
        result = {
            "rows": count,
            "shards": len(self.shards),
            "tokens": totals["tokens"],
            "seconds": round(totals["seconds"], 3),
            "tokens_per_second": round(totals["tokens"] / (totals["seconds"] or 1.0), 1),
            "output": str(path),
        }
        write_text(self._output / _RESULT_FILE, json.dumps({"conditions": self._digest, **result}))
        shutil.rmtree(self._output / _FOLDER, ignore_errors=True)  # another node may write a shard again
        return result

    def read_result(self) -> dict[str, Any] | None:
        """Return what [merge][] has returned under the same conditions; None before."""
        found = read_object(self._output / _RESULT_FILE)
        if found.pop("conditions", "") != self._digest or not (self._output / OUTPUT_FILE).exists():
            return None
        return found

    def _get_path(self, shard: int) -> Path:
        return self._folder / f"{shard:06}.json"


def _to_line(row: Mapping[str, Any]) -> str:
    text = json.dumps(row, default=str, ensure_ascii=False)
    # JSON may have surrogates, and UTF-8 has none; programs may end a line at the others.
    return f"{json.dumps(row, default=str) if _ESCAPED.search(text) else text}\n"


def run_shards(files: ShardFiles, compute: Callable[[int], None], rank: int) -> None:
    """Compute shards until all are finished, by this node or others.

    Args:
        files: the shards.
        compute: function that computes and writes a shard. It may return early when another node has written it.
        rank: number of this node. Nodes that have nothing else to do begin with different shards.
    """
    for shard in files.list_unfinished():
        if files.claim(shard):
            compute(shard)
    while unfinished := files.list_unfinished():
        compute(unfinished[rank % len(unfinished)])
