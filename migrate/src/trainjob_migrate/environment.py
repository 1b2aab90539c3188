"""What the Training Operator put into the environment of a PyTorchJob's containers, and how a program gets it again.

The Training Operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (1.9 pkg/controller.v1/pytorch/envvar.go); the
Trainer sets what torchrun reads, PET_NNODES and the like, and nothing else (2.3
pkg/runtime/framework/plugins/torch/torch.go). A script that plain `python` starts would find no other ranks, and train
N times over without an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from posixpath import basename
from typing import Any

from trainjob_migrate.hosts import host_of

RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
"""Variables that only the Trainer may set (2.3 pkg/constants/constants.go)."""
OLD_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
UNBUFFERED = {"name": "PYTHONUNBUFFERED", "value": "1"}
"""The Training Operator sets it as well, so that logs are there at once."""
PORT = "29500"
"""The one that the Trainer declares, and torchrun takes (2.3 pkg/constants/constants.go); rank 0 opens it."""
RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
"""Where a pod's rank comes from, as a variable's `valueFrom`."""
_OLD = "|".join(OLD_VARIABLES)
# What Kubernetes puts in, and what a shell does.
_EXPANDED_BY_KUBERNETES = re.compile(rf"\$\((?:{_OLD})\)")
_READ = re.compile(rf"\$[({{]?(?:{_OLD})(?![A-Z0-9_])")
_PYTHON = re.compile(r"python(?:[23](?:\.\d+)?)?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ash")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_INSTALLERS = (["-m", "pip"], ["-m", "ensurepip"])  # what the SDK of the Training Operator puts before torchrun
# Switches of the interpreter that nothing is lost with when torch.distributed.run starts the script.
_HARMLESS = ("-u", "-B")
_COMMANDS = re.compile(r"&&|\|\||[;|&\n(){}]")
_IN_FRONT = ("!", "do", "else", "env", "exec", "if", "nohup", "then", "time", "until", "while")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")


class Launch(str, Enum):
    """How a program that relies on the Training Operator's variables gets them."""

    ENVIRONMENT = "environment"
    """They are set in `spec.trainer.env`: the program runs as it did, whatever its image has."""
    TORCHRUN = "torchrun"
    """torchrun starts it, one process a node, and sets them; needs PyTorch 1.10 or later in the image."""


@dataclass(frozen=True)
class Program:
    """What a container runs.

    Attributes:
        command: its command; empty where the image's entrypoint runs.
        args: its arguments.
    """

    command: tuple[str, ...]
    args: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Command and arguments together."""
        return self.command + self.args

    @property
    def is_known(self) -> bool:
        """Whether it can be read at all: not when the image's entrypoint decides."""
        return bool(self.command)

    @property
    def reads_old_variables(self) -> bool:
        """Whether `$RANK`, `${RANK}`, `$(RANK)` or one of the others stands in it."""
        return any(_READ.search(word) for word in self.words)

    @property
    def has_them_filled_in(self) -> bool:
        """Whether Kubernetes fills `$(RANK)` or one of the others in before anything runs."""
        return any(_EXPANDED_BY_KUBERNETES.search(word) for word in self.words)

    @property
    def is_torchrun(self) -> bool:
        """Whether all Python that it starts is started by torchrun, as far as can be read; in doubt it is not."""
        if not self.command:
            return False
        line = _shell_line(self.words)
        if line is None:
            return _is_launcher(self.words)
        starts = [_without_assignments(piece.split()) for piece in _COMMANDS.split(line)]
        launched = [_is_launcher(words) for words in starts if words and _may_train(words)]
        return bool(launched) and all(launched)

    def wrapped(self) -> Program:
        """The same, started by torchrun."""
        place = _place_of_script(self.words)
        if place is None:
            return Program(("torchrun", "--no-python", *self.command), self.args)
        run = ("-m", _MODULES[0])
        if place <= len(self.command):
            return Program((*self.command[:place], *run, *self.command[place:]), self.args)
        place -= len(self.command)
        return Program(self.command, (*self.args[:place], *run, *self.args[place:]))


def old_environment(name: str, world_size: int) -> list[dict[str, Any]]:
    """The variables that the Training Operator would have set, for the pods of the TrainJob `name`.

    Args:
        name: the TrainJob's name.
        world_size: nodes, times processes where the job gave a number of them.
    """
    return [
        {"name": "MASTER_ADDR", "value": host_of(name, 0)},
        {"name": "MASTER_PORT", "value": PORT},
        {"name": "WORLD_SIZE", "value": str(world_size)},
        {"name": "RANK", "valueFrom": RANK},
    ]


def endpoint(name: str, host: str | None = None, port: object = None) -> str:
    """Where torchrun's processes meet: on the TrainJob's rank 0, or on a host of the job's own."""
    return f"{host or host_of(name, 0)}:{port or PORT}"


def _shell_line(words: Sequence[str]) -> str | None:
    """What `sh -c` and the like are given, also as `bash -lc`; None for another program."""
    if basename(words[0]) not in _SHELLS:
        return None
    for number, word in enumerate(words[1:], start=1):
        if not word.startswith("-"):
            return None
        if "c" in word.lstrip("-") and not word.startswith("--"):
            return words[number + 1] if number + 1 < len(words) else None
    return None


def _is_python(word: str) -> bool:
    return bool(_PYTHON.fullmatch(basename(word)))


def _may_train(words: list[str]) -> bool:
    """Whether it is Python, or a script or a shell that may start it; `python -m pip` is not."""
    program = words[0]
    is_script = "/" in program or program in _SHELLS
    return _is_launcher(words) or is_script or (_is_python(program) and words[1:3] not in _INSTALLERS)


def _is_launcher(words: Sequence[str]) -> bool:
    if not words:
        return False
    if basename(words[0]) == "torchrun":
        return True
    if not _is_python(words[0]):
        return False
    place = next((number for number, word in enumerate(words) if number and (word == "-m" or word[:1] != "-")), None)
    return place is not None and words[place] == "-m" and " ".join(words[place + 1 : place + 2]) in _MODULES


def _without_assignments(words: list[str]) -> list[str]:
    """A shell's command without what may stand in front of it: `A=b`, `exec`, `then` and the like."""
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _IN_FRONT):
        words = words[1:]
    return words


def _place_of_script(words: Sequence[str]) -> int | None:
    """Where a script or `-m MODULE` stands behind a Python that nothing else is asked of; None for other programs."""
    if not words or not _is_python(words[0]):
        return None
    place = next((number for number, word in enumerate(words) if number and word not in _HARMLESS), None)
    if place is None or (words[place].startswith("-") and words[place] != "-m"):
        return None
    return place
