"""Start of torchrun from the program in a pod, after checks of the input.

The program runs once in each pod. Errors of the input therefore end the pod within seconds, before torch is loaded.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from trainjob.credentials import clean_environment, redact_credentials
from trainjob.errors import InvalidSpec, TrainJobError
from trainjob.frameworks.fine_tuning.training_run import TrainingRun
from trainjob.frameworks.folder_lease import hand_over_lease
from trainjob.frameworks.packed_code import find_packed_code
from trainjob.frameworks.transformers.start import SAVE_ENV
from trainjob.version import check_version

__all__ = ["lease_output", "run_program", "set_environment", "set_module_path", "torchrun_command"]

_ENVIRONMENT = {**SAVE_ENV, "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_program(
    framework: str, prepare: Callable[[Sequence[str]], list[str]], arguments: Sequence[str] | None = None
) -> int:
    """Replace this process with the training, and return an exit code only if it cannot start.

    Args:
        framework: name of the framework, for the log.
        prepare: function that checks the input and returns torchrun's command, from the program's arguments.
        arguments: the arguments, by default those of this process.
    """
    if problem := clean_environment():
        return _fail(framework, 2, problem)
    try:
        command = prepare(check_version(sys.argv[1:] if arguments is None else arguments))
        os.execvp(command[0], command)  # noqa: S606 - it is our own command
    except InvalidSpec as refusal:
        return _fail(framework, 2, str(refusal))
    except (TrainJobError, OSError) as failure:
        return _fail(framework, 1, str(failure))


def lease_output(run: TrainingRun) -> None:
    """Take the lease of the output folder for the training that follows.

    Raises:
        OutputInUse: another training uses the folder.
        OSError: the folder cannot be written.
    """
    hand_over_lease(run.output, json.loads(run.run)["run"] if run.run else "")


def torchrun_command(module: str, words: Sequence[str]) -> list[str]:
    """Return the command of torchrun that runs a module in each process."""
    # Without --, torchrun would take `--run` for an abbreviation of its own options.
    return [sys.executable, "-m", "torch.distributed.run", "-m", "--", module, *words]


def set_environment(scratch: Path) -> None:
    """Set the environment variables of a training, except those that the step sets.

    Args:
        scratch: folder for the caches of libraries if the home folder cannot be written.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not os.access(Path.home(), os.W_OK):
        os.environ.setdefault("HF_HOME", str(scratch / "huggingface"))
    if os.environ.get("PET_NNODES", "1") == "1":
        _use_free_port()


def set_module_path(*folders: Path) -> None:
    """Add folders and the packed code to the module search path of started processes."""
    path = [*map(str, folders), *find_packed_code()]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*path, os.environ.get("PYTHONPATH")]))


def _use_free_port() -> None:
    """Set a free port of this machine for the processes of a training on one node.

    The Trainer sets the same port for every training (Trainer 2.3: 29500). Trainings that share a network would
    therefore refuse to start: pods with `hostNetwork`, and on a laptop cluster the pod that replaces one which is still
    saving a checkpoint.
    """
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        os.environ |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(bound.getsockname()[1])}


def _fail(framework: str, code: int, message: str) -> int:
    print(f"{framework}: failed: {redact_credentials(message)}", file=sys.stderr, flush=True)
    return code
