"""Datasets as spreadsheets, pandas, the Hub and hands write them, with what a training must say to each.

Each function writes files below a folder. The shapes are those of the public reports that the tests of the field name,
such as huggingface/trl#1777, huggingface/datasets#8241 and meta-pytorch/torchtune#2729; no content is copied.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_README = """---
configs:
- config_name: main
  data_files: [{split: train, path: main/train.jsonl}]
- config_name: socratic
  data_files: [{split: train, path: socratic/train.jsonl}]
---
"""
_ONE_CONFIGURATION = "---\nconfigs:\n- config_name: default\n  data_files: [{split: train, path: rows/*.jsonl}]\n---\n"

Files = dict[str, str | bytes]


@dataclass(frozen=True)
class DatasetCase:
    """A dataset and the expected verdict.

    Attributes:
        files: content of the files by relative path; a function if a library writes them.
        method: method of the training.
        rows: rows that the training reads; 0 if it is refused.
        refusal: part of the error; empty if it is accepted.
        warning: part of a line in the log of an accepted dataset.
        columns: names of the dataset's columns by the method's names.
        path: the path to give, below the folder.
    """

    files: Files | Callable[[Path], None]
    method: str = "sft"
    rows: int = 0
    refusal: str = ""
    warning: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    path: str = ""

    def write(self, folder: Path) -> Path:
        """Write the files, and return the path to give."""
        folder.mkdir(parents=True, exist_ok=True)
        if callable(self.files):
            self.files(folder)
        else:
            for name, content in self.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / self.path


def _lines(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _texts(count: int) -> list[dict[str, Any]]:
    return [{"text": f"ticket {number}"} for number in range(count)]


def _chat(answer: Any = "queue 1", **user: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "hello", **user}, {"role": "assistant", "content": answer}]


def _pairs(count: int) -> str:
    return "".join(f"ticket {number},queue {number}\n" for number in range(count))


def _write_parquet(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    (folder / "data").mkdir()
    table = pyarrow.Table.from_pylist([{"messages": _chat()}] * 3)
    for number in (0, 1):
        pyarrow.parquet.write_table(table, folder / "data" / f"train-{number:05}-of-00002.parquet")
    pyarrow.parquet.write_table(table, folder / "data" / "test-00000-of-00001.parquet")


def _write_pandas(folder: Path) -> None:
    import pandas

    frame = pandas.DataFrame({"prompt": ["a", "b"], "completion": ["c", "d"]})
    frame.to_csv(folder / "train.csv")  # with the column of the index


def _write_pandas_with_nan(folder: Path) -> None:
    import pandas

    pandas.DataFrame({"prompt": ["a", "b"], "completion": ["c", None]}).to_csv(folder / "train.csv", index=False)


def _save_to_disk(folder: Path) -> None:
    import datasets

    datasets.Dataset.from_list(_texts(4)).save_to_disk(str(folder / "saved"))


CASES = {
    # Spreadsheets.
    "a spreadsheet's byte order mark": DatasetCase(
        {"train.csv": "\ufeffprompt,completion\r\n" + _pairs(5).replace("\n", "\r\n")}, rows=5
    ),
    "semicolons": DatasetCase(
        {"train.csv": "prompt;completion\n" + _pairs(3).replace(",", ";")},
        refusal="separated by ';': separate them by commas",
    ),
    "tabs": DatasetCase(
        {"train.csv": "prompt\tcompletion\n" + _pairs(3).replace(",", "\t")}, refusal="are separated by '\\t'"
    ),
    "an older encoding": DatasetCase(
        {"train.csv": "prompt,completion\nfür,dich\n".encode("latin-1")}, refusal="save it in UTF-8"
    ),
    "two bytes for each character": DatasetCase(
        {"train.csv": f"prompt,completion\n{_pairs(2)}".encode("utf-16")}, refusal="save it in UTF-8"
    ),
    "an empty cell": DatasetCase(
        {"train.csv": "prompt,completion\na,b\nc,\n"}, refusal="row 2, column completion: the value is missing"
    ),
    "the word null in a cell": DatasetCase(
        {"train.csv": "prompt,completion\na,None\n"}, refusal="row 1, column completion: the value is missing"
    ),
    "numbers in a column": DatasetCase(
        {"train.csv": "prompt,completion\na,1\nb,2\n"}, refusal="row 1, column completion: it must be a text"
    ),
    "quotes and line breaks": DatasetCase({"train.csv": 'prompt,completion\n"a, ""b""\nc",d\n'}, rows=1),
    "a header alone": DatasetCase({"train.csv": "prompt,completion\n"}, refusal="it has no rows"),
    # pandas.
    "the index of pandas": DatasetCase(_write_pandas, rows=2),
    "NaN of pandas": DatasetCase(_write_pandas_with_nan, refusal="row 2, column completion: the value is missing"),
    # The Hub.
    "shards of the Hub": DatasetCase(_write_parquet, rows=6),
    "several configurations": DatasetCase(
        {"README.md": _README, "main/train.jsonl": _lines(*_texts(2)), "socratic/train.jsonl": _lines(*_texts(2))},
        refusal="the configurations main, socratic: name the folder",
    ),
    "one of several configurations": DatasetCase(
        {"README.md": _README, "main/train.jsonl": _lines(*_texts(2)), "socratic/train.jsonl": _lines(*_texts(3))},
        rows=3,
        path="socratic",
    ),
    "one configuration": DatasetCase({"README.md": _ONE_CONFIGURATION, "rows/a.jsonl": _lines(*_texts(2))}, rows=2),
    "splits as folders": DatasetCase(
        {"data/test/0000.jsonl": _lines({"other": 1}), "data/train/0000.jsonl": _lines(*_texts(4))}, rows=4
    ),
    "splits as names": DatasetCase({"train.jsonl": _lines(*_texts(4)), "validation.jsonl": _lines(*_texts(1))}, rows=4),
    "a saved dataset": DatasetCase(_save_to_disk, rows=4, path="saved"),
    "only a test split": DatasetCase({"test.jsonl": _lines(*_texts(2))}, rows=2),
    # Hand editing.
    "a null byte and many scripts": DatasetCase({"train.jsonl": _lines({"text": "a\0b 名前 שלום 😀"})}, rows=1),
    "a long row": DatasetCase({"train.jsonl": _lines({"text": "word " * 20_000})}, rows=1),
    "mixed types": DatasetCase(
        {"train.jsonl": _lines({"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": 5})},
        refusal="row 2, column completion: it must be a text",
    ),
    "blank lines": DatasetCase({"train.jsonl": _lines(*_texts(2)) + "\n\n" + _lines(*_texts(1))}, rows=3),
    "a byte order mark in JSON lines": DatasetCase({"train.jsonl": "\ufeff" + _lines(*_texts(3))}, rows=3),
    "a printed array": DatasetCase({"train.json": json.dumps(_texts(3), indent=2)}, rows=3),
    "an odd file name": DatasetCase({"my data (final) v2.jsonl": _lines(*_texts(3))}, rows=3),
    "brackets in a name": DatasetCase({"rows [v2].jsonl": _lines(*_texts(3))}, rows=3),
    "brackets in the name of a file": DatasetCase(
        {"rows [v2]*.jsonl": _lines(*_texts(3)), "rows v.jsonl": _lines(*_texts(1))}, rows=3, path="rows [v2]*.jsonl"
    ),
    "plain text": DatasetCase({"corpus.txt": "hello\nworld\n"}, rows=2),
    "gzip": DatasetCase({"train.jsonl.gz": gzip.compress(_lines(*_texts(3)).encode(), mtime=0)}, rows=3),
    "a gzipped table": DatasetCase(
        {"train.csv.gz": gzip.compress(b"prompt,completion\na,b\n", mtime=0)}, rows=1, path="train.csv.gz"
    ),
    "a key that the first line lacks": DatasetCase(
        {"train.jsonl": _lines({"text": "a"}, {"text": "b", "source": "web"})}, rows=2
    ),
    "a null among texts": DatasetCase(
        {"train.jsonl": _lines(*_texts(16), {"text": None}, *_texts(3))}, refusal="row 17, column text: the value is"
    ),
    "a file without bytes": DatasetCase({"train.jsonl": ""}, refusal="it has no rows"),
    "a truncated line": DatasetCase(
        {"train.jsonl": _lines(*_texts(3)) + '{"text": "tick'}, refusal="it cannot be read: "
    ),
    "an object around the rows": DatasetCase(
        {"train.json": json.dumps({"data": _texts(3)})}, refusal="a dataset with data"
    ),
    "files with other columns": DatasetCase(
        {"train-0.jsonl": _lines(*_texts(2)), "train-1.jsonl": _lines({"question": "q"})},
        refusal="all files must have the same columns: train-1.jsonl has question",
    ),
    "two formats in one folder": DatasetCase(
        {"a.jsonl": _lines(*_texts(16)), "c.jsonl": _lines(*_texts(1)), "b.csv": "text\nlost\n"},
        rows=17,
        warning="b.csv of",
    ),
    "a missing folder": DatasetCase({"train.jsonl": _lines(*_texts(1))}, refusal="it does not exist", path="date"),
    "a folder without rows": DatasetCase({"LICENSE": "none"}, refusal="it contains LICENSE"),
    # Conversations.
    "messages": DatasetCase({"train.jsonl": _lines(*[{"messages": _chat()}] * 3)}, rows=3),
    "content in parts": DatasetCase(
        {
            "train.jsonl": _lines(
                {"messages": _chat([{"type": "text", "text": "queue"}], content=[{"type": "text", "text": "q"}])}
            )
        },
        rows=1,
    ),
    "tools": DatasetCase(
        {
            "train.jsonl": _lines(
                {
                    "messages": [
                        {"role": "user", "content": "time?"},
                        {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [{"type": "function", "function": {"name": "now"}}],
                        },
                        {"role": "tool", "content": "noon"},
                        {"role": "assistant", "content": "It is noon."},
                    ]
                }
            )
        },
        rows=1,
    ),
    "ShareGPT": DatasetCase(
        {"train.jsonl": _lines({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})},
        rows=1,
    ),
    "ShareGPT under another name": DatasetCase(
        {"train.jsonl": _lines({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})},
        columns=(("messages", "conversations"),),
        refusal="row 1, column messages: a message has no role; it has from, value",
    ),
    "a prompt and an answer as conversations": DatasetCase(
        {"train.jsonl": _lines({"prompt": _chat()[:1], "completion": _chat()[1:]})}, rows=1
    ),
    "a message without content": DatasetCase(
        {"train.jsonl": _lines({"messages": _chat(None)})}, rows=1, warning="a message without content"
    ),
    "messages as JSON text": DatasetCase(
        {"train.jsonl": _lines({"messages": json.dumps(_chat())})},
        refusal="it must be a list of messages, but it contains JSON text",
    ),
    "null messages": DatasetCase(
        {"train.jsonl": _lines({"messages": _chat()}, {"messages": None})}, refusal="row 2, column messages: the value"
    ),
    "no messages": DatasetCase(
        {"train.jsonl": _lines({"messages": _chat()}, {"messages": []})}, refusal="the conversation has no messages"
    ),
    "no answer": DatasetCase(
        {"train.jsonl": _lines({"messages": _chat()}, {"messages": _chat()[:1]})},
        rows=2,
        warning="1 of 2 rows of",
    ),
    # Preferences.
    "a text and a conversation": DatasetCase(
        {"train.jsonl": _lines({"prompt": "q", "chosen": _chat()[1:], "rejected": _chat("x")[1:]})},
        method="dpo",
        refusal="must all be texts, or all conversations",
    ),
    "pairs of texts": DatasetCase(
        {"train.jsonl": _lines({"prompt": "q", "chosen": "a", "rejected": "b"})}, method="dpo", rows=1
    ),
    "labels as words": DatasetCase(
        {"train.jsonl": _lines({"prompt": "q", "completion": "a", "label": "good"})},
        method="kto",
        refusal="row 1, column label: 'good' is not a label: it must be true or false",
    ),
    "labels as numbers": DatasetCase(
        {"train.jsonl": _lines(*({"prompt": "q", "completion": "a", "label": label} for label in (0, 1)))},
        method="kto",
        rows=2,
    ),
}
"""The datasets by what is special about them."""
