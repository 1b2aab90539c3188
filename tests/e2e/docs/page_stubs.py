"""Content of the servers that the pages' jobs use in place of the Hugging Face Hub and of S3."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.demo_chain import ALL_ENVIRONMENTS, make_demo_hub
from tests.support.s3_server import StoredObject

__all__ = ["BUCKETS", "MODELS", "OBJECTS", "make_environments", "make_page_hub"]

MODELS = (
    "meta-llama/Llama-3.2-1B-Instruct",
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen3-0.6B",
)
"""Models of the pages; each is the demo's tiny Llama."""

BUCKETS = ("models", "mirror", "data", "checkpoints")
"""Buckets of the pages."""

_TICKETS = "".join(f"What about ticket {number}?,It is in queue {number % 7}.\r\n" for number in range(400))
OBJECTS = {"data/tickets.csv": StoredObject(f"\ufeffquestion,answer\r\n{_TICKETS}".encode(), {})}
"""Objects that the pages' datasets name, by bucket and key."""

TINY_TUNE = Path(__file__).with_name("tune_for_tiny_models.py")

# The demo's rows, also under the names that the pages' own datasets have.
_COPY = """
import sys, pyarrow, pyarrow.parquet as parquet
table = parquet.read_table(sys.argv[1])
for name, copied in (("question", "input"), ("answer", "output")):
    table = table.append_column(name, table[copied])
parquet.write_table(table, sys.argv[2])
chats = [
    [{"role": "user", "content": row["input"]}, {"role": "assistant", "content": row["output"]}]
    for row in table.to_pylist()
]
parquet.write_table(pyarrow.table({"messages": chats}), sys.argv[3])
"""


def make_page_hub(folder: Path) -> Path:
    """Write the models and datasets of the pages in the layout that the loopback hub serves."""
    make_demo_hub(folder)
    for model in MODELS:
        shutil.copytree(folder / "models" / "demo" / "tiny-llama", folder / "models" / model)
    demo, tickets = folder / "datasets" / "demo" / "tickets", folder / "datasets" / "acme" / "tickets"
    chats = folder / "datasets" / "trl-lib" / "Capybara"
    python = ALL_ENVIRONMENTS["torchtune"] / "bin" / "python"
    for file in [*demo.glob("data/*"), *demo.glob("heldout/*")]:
        copies = [dataset / file.relative_to(demo) for dataset in (tickets, chats)]
        for copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, "-c", _COPY, file, *copies], check=True)
    return folder


def make_environments(folder: Path) -> dict[str, Path]:
    """Return the environments of the laptop cluster, with a `tune` for the tiny model.

    Args:
        folder: new folder for an environment that consists of links to `.venv/torchtune`.
    """
    real = ALL_ENVIRONMENTS["torchtune"]
    (folder / "bin").mkdir(parents=True)
    for path in [*real.glob("*"), *real.glob("bin/*")]:
        if path.name not in ("bin", "tune"):
            (folder / path.relative_to(real)).symlink_to(path)
    tune = folder / "bin" / "tune"
    tune.write_text(f'#!/bin/sh\nexec "{real}/bin/python" "{TINY_TUNE}" "{real}/bin/tune" "$@"\n', "utf-8")
    tune.chmod(0o755)
    return {**ALL_ENVIRONMENTS, "torchtune": folder}
