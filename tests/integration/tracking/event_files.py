"""Files of trackers, read by the trackers' own libraries in the environment .venv/tracking."""

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
_WANDB = """
import glob, json, sys
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore
from wandb.sdk.lib import json_util
for file in sorted(glob.glob(sys.argv[1] + "/wandb/offline-run-*/*.wandb")):
    store = DataStore()
    store.open_for_scan(file)
    found = {"id": "", "project": "", "group": "", "config": {}, "history": [], "exit_code": None}
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
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
    command = [TRACKING_PYTHON, "-W", "ignore", "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
