"""Start of a run: rank 0 decides from which checkpoint all processes resume."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.checkpoint_owner import TRAINING_FILE, CheckpointOwner, find_owner, get_kept_folder
from trainjob.frameworks.copier_process import CopierProcess
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.fine_tuning.run_files import UNMERGED, read_record, write_record
from trainjob.frameworks.fine_tuning.training_run import TrainingRun
from trainjob.frameworks.folder_lease import continue_lease, take_lease
from trainjob.frameworks.input_identity import identify_inputs
from trainjob.frameworks.transformers.checkpoints import (
    claim_checkpoints,
    discard_checkpoints,
    get_step,
    has_complete_checkpoint,
)
from trainjob.frameworks.transformers.start import agree
from trainjob.job_variables import NAME_VARIABLE, RUN_VARIABLE

__all__ = ["Start", "agree_on_start"]

_VISIBLE_WITHIN = 60.0  # seconds; a file system over the network may cache that a file does not exist


@dataclass(frozen=True)
class Start:
    """The decision of rank 0.

    Attributes:
        owner: digest of the training, which owns its checkpoints.
        checkpoint: folder to resume from; empty to start from the beginning.
        nonce: random text of this attempt, which the record in the output folder contains.
        is_trained: whether an earlier attempt has trained the model, and only its adapter is not merged yet.
        copier: process that copies the checkpoints, in the process of rank 0; None if the request has no
            `checkpoint_uri`.
    """

    owner: str
    checkpoint: str
    nonce: str
    is_trained: bool = False
    copier: CopierProcess | None = None


def agree_on_start(run: TrainingRun, description: Mapping[str, Any]) -> Start:
    """Return the decision of rank 0, the same in all processes of a training.

    Args:
        run: the request.
        description: framework, its version and the training's parameters, for the record of the run.

    Raises:
        OutputInUse: another training uses the output folder.
        InvalidSpec: this process does not see the files of rank 0, because the nodes share no workspace; or no
            checkpoint that `resume_from` names can be loaded.
        FetchError: the workspace has no checkpoint of this training, and its copy cannot be fetched.
    """
    copiers: list[CopierProcess] = []
    start = Start(**agree(lambda: asdict(_decide(run, description, copiers))))
    _check_shared_workspace(run, start)
    return replace(start, copier=copiers[0] if copiers else None)


def _decide(run: TrainingRun, description: Mapping[str, Any], copiers: list[CopierProcess]) -> Start:
    """Return the checkpoint to resume from, and record this attempt.

    A process that copies checkpoints is added to `copiers`.
    """
    name = find_owner(run.run).run if run.run else ""
    continue_lease(run.output) or take_lease(run.output, name).keep()
    # Afterwards, because reading a large model may take longer than the launcher's lease lasts.
    files = identify_inputs(run.inputs, run.output) if run.run else {}
    owner = find_owner(run.run, files) if run.run else CheckpointOwner("", {"attempt": secrets.token_hex(8)})
    nonce, record = secrets.token_hex(8), read_record(run.output)
    is_same_owner = record.get("owner") == owner.digest
    is_same = is_same_owner and record.get("length") == run.length
    copier = CopierProcess(run.copier, run.checkpoint_uri, owner.digest) if run.run and run.copier else None
    if is_same and UNMERGED in record:
        if copier:
            copier.finish_training(keep=run.keep_checkpoints)  # the earlier attempt may have been killed before it
        write_record(run.output, {**record, "attempt": nonce})
        print(f"the model is trained already; merging the adapter in {run.output}", flush=True)
        return Start(owner.digest, "", nonce, is_trained=True)
    copiers += [copier] if copier else []
    fetched = ""
    if is_same and record.get("complete"):
        discard_checkpoints(run.output, owner.digest)
        if copier:
            copier.discard_earlier()
    elif copier and not has_complete_checkpoint(run.output, owner.digest, run.includes):
        fetched = copier.fetch(get_kept_folder(run.output, owner.digest))
    checkpoint = claim_checkpoints(
        run.output,
        owner,
        limit=run.save_total_limit,
        is_within=run.includes,
        fetched_from=run.checkpoint_uri if fetched else "",
    )
    origin = {"trained_by": os.environ.get(NAME_VARIABLE, ""), "workflow_run": os.environ.get(RUN_VARIABLE, "")}
    named = {**description, "method": run.method, "model": run.model_name, "length": run.length, **origin}
    if attempts := _list_attempts(record if is_same_owner else {}, get_step(checkpoint) if checkpoint else 0):
        named["attempts"] = attempts
    if parent := read_object(run.output / TRAINING_FILE).get("parent"):
        named["parent"] = parent
    write_record(run.output, {**named, "owner": owner.digest, "attempt": nonce, "complete": False})
    return Start(owner.digest, str(checkpoint or ""), nonce)


def _list_attempts(record: Mapping[str, Any], step: int) -> list[dict[str, int]]:
    """Return the first step of each attempt of a training, and its number of processes.

    The list is empty for a single attempt with one process.

    Args:
        record: the record of the earlier attempt of this training; empty without one.
        step: the step from which this attempt starts.
    """
    processes, nodes = (int(os.environ.get(name) or 1) for name in ("WORLD_SIZE", "GROUP_WORLD_SIZE"))
    found = record.get("attempts")
    earlier = found if isinstance(found, list) and step else []
    if processes > 1:
        print(f"trains with {processes} processes on {nodes} node{'s' * (nodes > 1)} from step {step}", flush=True)
    if not earlier and step and record:
        earlier = [{"step": 0, "processes": 1, "nodes": 1}]
    attempts = [*earlier, {"step": step, "processes": processes, "nodes": nodes}]
    return attempts if len(attempts) > 1 or processes > 1 else []


def _check_shared_workspace(run: TrainingRun, start: Start) -> None:
    deadline = time.monotonic() + _VISIBLE_WITHIN
    while read_record(run.output).get("attempt") != start.nonce:
        if time.monotonic() > deadline:
            node = os.environ.get("GROUP_RANK", "?")
            rule = f"node {node} does not see the file that node 0 wrote to {run.output}: use a PVC with ReadWriteMany"
            raise InvalidSpec(Problem("workspace", str(run.output), rule))
        time.sleep(0.2)
