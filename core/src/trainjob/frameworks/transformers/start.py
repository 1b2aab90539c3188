"""Start of a training: rank 0 decides, and all processes of all nodes get its decision."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainjob.frameworks.transformers.checkpoints import find_last_checkpoint, remove_marks

__all__ = ["OWNER_VARIABLE", "SAVE_ENV", "agree", "find_checkpoint_to_resume", "report_resumption"]

OWNER_VARIABLE = "TRAINJOB_RUN"
"""Environment variable that identifies the run of a function; it is the same in all attempts."""
SAVE_ENV = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "86400"}
"""Environment in which torchrun lets its processes save after SIGTERM.

Kubernetes ends the pod after its grace period. torchrun would do so after 30 s, which may be too early for a large
checkpoint (torch 2.13, distributed/launcher/api.py).
"""


def find_checkpoint_to_resume(output: str | Path) -> str | None:
    """Return the checkpoint from which this function's run resumes, the same in all processes.

    Args:
        output: folder that the run writes to, `TrainingArguments.output_dir`; on several nodes, a shared folder.

    Returns:
        The folder, for `Trainer.train(resume_from_checkpoint=...)`; None to start from the beginning.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = Path(output)

    def decide() -> str | None:
        checkpoint = find_last_checkpoint(folder, os.environ.get(OWNER_VARIABLE, ""))
        if checkpoint is None:
            remove_marks(folder)
            return None
        report_resumption(checkpoint)
        return str(checkpoint)

    found: str | None = agree(decide)
    return found


def report_resumption(checkpoint: Path) -> None:
    """Print the step from which the run resumes."""
    print(f"resumed from step {checkpoint.name.rpartition('-')[2]}: {checkpoint} is complete", flush=True)


def agree(decide: Callable[[], Any]) -> Any:
    """Return the value that `decide` returns in the process of rank 0, in all processes.

    They exchange it through torchrun's store. Each process could decide by itself, but an attempt that is still ending
    may save a checkpoint between two decisions.

    Args:
        decide: function that returns a JSON value; it is called in the process of rank 0 only.
    """
    from torch.distributed import TCPStore

    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return decide()
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    key = f"trainjob/start/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if int(os.environ["RANK"]):
        return json.loads(store.get(key))
    value = decide()
    store.set(key, json.dumps(value))
    return value
