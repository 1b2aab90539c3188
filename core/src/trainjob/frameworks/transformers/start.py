"""Start of a training: rank 0 decides, and all processes of all nodes get its decision."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainjob.frameworks.checkpoint_owner import CheckpointOwner, find_owner
from trainjob.frameworks.folder_lease import take_lease
from trainjob.frameworks.transformers.checkpoints import claim_checkpoints

__all__ = ["OWNER_VARIABLE", "SAVE_ENV", "agree", "claim_output", "find_checkpoint_to_resume"]

# Longer than the wait for a lease, and than reading a large model whose files have no known digests.
_LONGEST_DECISION = timedelta(hours=2)
OWNER_VARIABLE = "TRAINJOB_RUN"
"""Environment variable that describes the owner of a function's checkpoints; see `checkpoint_owner`."""
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
        OutputInUse: another training uses the folder.
        OSError: the folder cannot be written.
    """
    described = os.environ.get(OWNER_VARIABLE)
    if not described:
        return None
    return agree(lambda: claim_output(Path(output), find_owner(described))) or None


def claim_output(output: Path, owner: CheckpointOwner) -> str:
    """Take the lease of an output folder, and return the checkpoint to resume from.

    It is empty to start from the beginning.

    Raises:
        OutputInUse: another training uses the folder.
        OSError: the folder cannot be written.
    """
    take_lease(output, owner.run).keep()
    return str(claim_checkpoints(output, owner) or "")


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
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, timeout=_LONGEST_DECISION)
    key = f"trainjob/start/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if int(os.environ["RANK"]):
        return json.loads(store.get(key))
    value = decide()
    store.set(key, json.dumps(value))
    return value
