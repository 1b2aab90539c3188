"""Files of trackers, read with the trackers' own libraries in the environment .venv/tracking."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.mlflow_server import TRACKING_PYTHON

__all__ = ["read_event_files", "read_wandb_files"]

_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
scalars = {tag: [[each.step, each.value] for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
texts = {
    tag: [value.decode() for each in events.Tensors(tag) for value in each.tensor_proto.string_val]
    for tag in events.Tags()["tensors"]
}
print(json.dumps({"scalars": scalars, "texts": texts}))
"""
# wandb 0.31 writes the log format of LevelDB after a header of 7 bytes: blocks of 32 KiB with parts of records. Each
# has a checksum, its length and its type (1: whole record, 2: first part, 3: middle part, 4: last part).
_WANDB = """
import glob, json, struct, sys
from wandb.proto.wandb_internal_pb2 import Record

def read_records(path):
    data, position, record = open(path, "rb").read(), 7, b""
    assert data[:4] == b":W&B", data[:7]
    while position + 7 <= len(data):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield Record.FromString(record)
            record = b""

for file in sorted(glob.glob(sys.argv[1] + "/wandb/offline-run-*/*.wandb")):
    found = {"id": "", "project": "", "group": "", "config": {}, "history": [], "exit_code": None}
    for record in read_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found.update(id=run.run_id, project=run.project, group=run.run_group)
            found["config"].update({each.key: json.loads(each.value_json) for each in run.config.update})
        elif kind == "history":
            items = record.history.item
            row = {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items}
            found["history"].append({key: value for key, value in row.items() if not key.startswith("_")})
        elif kind == "exit":
            found["exit_code"] = record.exit.exit_code
    print(json.dumps(found))
"""


def read_event_files(folder: Path) -> dict[str, Any]:
    """Return scalars and texts of a folder as TensorBoard shows them."""
    [found] = _run(_TENSORBOARD, folder)
    return found


def read_wandb_files(folder: Path) -> list[dict[str, Any]]:
    """Return the offline runs of Weights & Biases in a folder, in the order of their start."""
    return _run(_WANDB, folder)


def _run(program: str, folder: Path) -> list[dict[str, Any]]:
    command = [str(TRACKING_PYTHON), "-W", "ignore", "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
