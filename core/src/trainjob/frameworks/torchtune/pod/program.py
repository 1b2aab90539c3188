"""Program that starts TorchTune, or resumes an earlier attempt of the same run.

It resumes after the attempt's last complete epoch. If there is none, it starts from the beginning.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from trainjob.errors import InvalidSpec, OutputInUse
from trainjob.frameworks.checkpoint_owner import find_owner
from trainjob.frameworks.folder_lease import hand_over_lease
from trainjob.frameworks.input_identity import identify_inputs
from trainjob.frameworks.packed_code import find_packed_code
from trainjob.frameworks.torchtune.pod.epochs import CompleteEpoch, claim_epochs, state_file
from trainjob.version import check_version

__all__ = ["main"]

_CHECKPOINTER = "trainjob.frameworks.torchtune.pod.checkpointer.ResumableCheckpointer"
_SCHEDULE = "trainjob.frameworks.torchtune.pod.schedule.get_resumed_cosine_schedule"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Replace this process with the given command, plus the arguments to resume with.

    See [trainjob.frameworks.torchtune.pod.epochs][] for what is resumed.
    """
    try:
        given = _parse_arguments(check_version(sys.argv[1:] if arguments is None else arguments))
    except InvalidSpec as refusal:
        print(f"torchtune: failed: {refusal}", file=sys.stderr, flush=True)
        sys.exit(2)
    owner = find_owner(given.run, identify_inputs(given.input, given.output))
    try:
        hand_over_lease(given.output, owner.run)
    except OutputInUse as failure:
        print(f"torchtune: failed: {failure}", file=sys.stderr, flush=True)
        sys.exit(1)
    epoch = claim_epochs(given.output, owner, adapter=given.adapter, epochs=_find_epochs(given.command))
    command = [*given.command, f"checkpointer._component_={_CHECKPOINTER}", *_resume_arguments(given, epoch)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*find_packed_code(), os.environ.get("PYTHONPATH")]))
    os.execvp(command[0], command)  # noqa: S606 - it is our own command


def _resume_arguments(given: argparse.Namespace, epoch: CompleteEpoch | None) -> list[str]:
    """Return TorchTune's arguments to resume after an epoch; none without an epoch.

    TorchTune looks up these files below the output folder (torchtune 0.6.1, training/checkpointing/_utils.py).
    """
    if epoch is None:
        return []
    state = state_file(given.output, epoch.number).relative_to(given.output)
    common = ["resume_from_checkpoint=True", f"checkpointer.recipe_checkpoint={state}"]
    if not given.adapter:
        return [*common, f"checkpointer.checkpoint_files=[{','.join(epoch.files)}]"]
    return [
        *common,
        f"checkpointer.adapter_checkpoint={epoch.files[0]}",
        f"lr_scheduler._component_={_SCHEDULE}",
        "lr_scheduler.epochs=${epochs}",
        f"lr_scheduler.epochs_done={epoch.number + 1}",
    ]


def _find_epochs(command: Sequence[str]) -> int | None:
    """Return the last value of the argument `epochs`, which TorchTune uses."""
    given = [word.removeprefix("epochs=") for word in command if word.startswith("epochs=")]
    return int(given[-1]) if given and given[-1].isdecimal() else None


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Start or resume a TorchTune run.")
    parser.add_argument("--run", required=True, help="JSON object: the owner of the checkpoints")
    parser.add_argument("--output", type=Path, required=True, help="folder that the run writes to")
    parser.add_argument("--input", type=Path, action="append", default=[], help="folder or file that the run reads")
    parser.add_argument("--adapter", action="store_true", help="the run trains an adapter, not all weights")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="tune run RECIPE --config CONFIG KEY=VALUE ...")
    return parser.parse_args(arguments)
