"""The variables that the Training Operator sets in a PyTorchJob's containers.

The Training Operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (1.9 pkg/controller.v1/pytorch/envvar.go). The
Trainer sets only the variables that torchrun reads, such as PET_NNODES (2.3
pkg/runtime/framework/plugins/torch/torch.go). A script that plain `python` starts would find no other ranks, and would
train N times without an error. This module sets the variables again, or starts the script with torchrun.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from posixpath import basename
from typing import Any

from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import get_value, iterate_leaves
from trainjob_migrate.hosts import NAME_VARIABLE, host_reference

RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
"""Variables that only the Trainer may set (2.3 pkg/constants/constants.go)."""
OPERATOR_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
UNBUFFERED = {"name": "PYTHONUNBUFFERED", "value": "1"}
"""Variable that the Training Operator sets as well, so that log lines appear immediately."""
PORT = "29500"
"""Port that the Trainer declares and torchrun uses; rank 0 opens it.

Source: Trainer 2.3 pkg/constants/constants.go.
"""
RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
"""Source of a pod's rank, as the `valueFrom` of a variable."""
# Labels of the Training Operator whose values the pods of a TrainJob have, too.
_LABEL_SOURCE = re.compile(r"metadata\.labels\[['\"]training\.kubeflow\.org/(job-name|replica-index)['\"]\]")
_VARIABLE_PATTERN = "|".join(OPERATOR_VARIABLES)
# References that Kubernetes expands, and references that a shell expands.
_EXPANDED_BY_KUBERNETES = re.compile(rf"\$\((?:{_VARIABLE_PATTERN})\)")
_VARIABLE_REFERENCE = re.compile(rf"(?:\$[({{]?|\bprintenv\s+)(?:{_VARIABLE_PATTERN})(?![A-Z0-9_])")
# Commands of a shell that read variables which the line does not show.
_INDIRECT_READERS = ("source", ".", "eval", "envsubst")
_HOOKS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_TORCHRUN = re.compile(rf"\btorchrun(?=\s)|-m\s+(?:{'|'.join(map(re.escape, _MODULES))})(?=\s)")
# argparse accepts any unambiguous beginning of an option, and torchrun both spellings (PyTorch 2.9).
_PROCESS_COUNT = re.compile(r"--nproc[a-z_-]*(?:=|\s+)['\"]?([^\s'\"]+)")
_PYTHON = re.compile(r"python(?:[23](?:\.\d+)?)?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ash")
_INSTALLERS = (["-m", "pip"], ["-m", "ensurepip"])  # commands that the Training Operator's SDK runs before torchrun
# Options of the interpreter that the script may lack when torch.distributed.run starts it.
_IGNORED_OPTIONS = ("-u", "-B")
_COMMANDS = re.compile(r"&&|\|\||[;|&\n(){}]")
_SHELL_PREFIXES = ("!", "do", "else", "env", "exec", "if", "nohup", "then", "time", "until", "while")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")


class Launch(str, Enum):
    """The way to provide the Training Operator's variables to a program that reads them."""

    ENVIRONMENT = "environment"
    """The variables are set in `spec.trainer.env`.

    The program runs as before, whatever its image contains.
    """
    TORCHRUN = "torchrun"
    """torchrun starts the program, one process per node, and sets the variables.

    The image needs PyTorch 1.10 or later.
    """


@dataclass(frozen=True)
class Program:
    """The program that a container runs.

    Attributes:
        command: its command; empty if the image's entrypoint runs.
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
        """Return whether the program is known, which it is not if the image's entrypoint runs."""
        return bool(self.command)

    @property
    def reads_operator_variables(self) -> bool:
        """Return whether an old variable occurs, as `$RANK`, `$(RANK)` or `printenv RANK`."""
        return any(_VARIABLE_REFERENCE.search(word) for word in self.words)

    @property
    def runs_unknown_commands(self) -> bool:
        """Return whether the shell runs commands that its line does not show: `source a.sh`."""
        line = _shell_line(self.words) if self.command else None
        starts = [_strip_shell_prefixes(piece.split()) for piece in _COMMANDS.split(line or "")]
        return any(words[0] in _INDIRECT_READERS for words in starts if words)

    @property
    def is_expanded_by_kubernetes(self) -> bool:
        """Return whether Kubernetes expands an old variable before the program starts.

        Kubernetes expands the form `$(RANK)`.
        """
        return any(_EXPANDED_BY_KUBERNETES.search(word) for word in self.words)

    @property
    def has_process_count(self) -> bool:
        """Return whether each torchrun of the command gets the number of processes per node.

        `auto`, `gpu` and `cpu` are no numbers.
        """
        line = " ".join(self.words)
        starts = len(_TORCHRUN.findall(line))
        counts = [value for value in _PROCESS_COUNT.findall(line) if value not in ("auto", "gpu", "cpu")]
        return bool(counts) and len(counts) >= starts

    @property
    def is_torchrun(self) -> bool:
        """Return whether torchrun starts all Python programs of the command.

        If the command does not show this for certain, the result is False.
        """
        if not self.command:
            return False
        line = _shell_line(self.words)
        if line is None:
            return _is_launcher(self.words)
        starts = [_strip_shell_prefixes(piece.split()) for piece in _COMMANDS.split(line)]
        launched = [_is_launcher(words) for words in starts if words and _may_train(words)]
        return bool(launched) and all(launched)

    def with_torchrun(self) -> Program:
        """Return the same program, started by torchrun."""
        place = _find_script(self.words)
        if place is None:
            return Program(("torchrun", "--no-python", *self.command), self.args)
        run = ("-m", _MODULES[0])
        if place <= len(self.command):
            return Program((*self.command[:place], *run, *self.command[place:]), self.args)
        place -= len(self.command)
        return Program(self.command, (*self.args[:place], *run, *self.args[place:]))


def hooks_read_operator_variables(container: Mapping[str, Any]) -> bool:
    """Return whether a lifecycle hook or a probe of a container reads an old variable."""
    hooks = {field: container[field] for field in _HOOKS if field in container}
    texts = (get_value(hooks, leaf) for leaf in iterate_leaves(hooks))
    return any(isinstance(text, str) and _VARIABLE_REFERENCE.search(text) for text in texts)


def build_operator_variables(world_size: int) -> list[dict[str, Any]]:
    """Return the variables that the Training Operator would have set.

    Args:
        world_size: number of nodes, times the processes per node if the job sets their number.
    """
    return [
        {"name": "MASTER_ADDR", "value": host_reference(0)},
        {"name": "MASTER_PORT", "value": PORT},
        {"name": "WORLD_SIZE", "value": str(world_size)},
        {"name": "RANK", "valueFrom": RANK},
    ]


def convert_label_source(draft: Draft, source: Any) -> tuple[Mapping[str, Any], str] | None:
    """Return the TrainJob's source of a variable that a label of v1 fills.

    Returns:
        The new `valueFrom` and the reason; None if pods of a TrainJob have no such value. The index of a Worker is its
        rank only if the job has no Master.
    """
    reference = source.get("fieldRef") if isinstance(source, Mapping) else None
    path = reference.get("fieldPath") if isinstance(reference, Mapping) else None
    found = _LABEL_SOURCE.fullmatch(path) if isinstance(path, str) else None
    if found and found[1] == "job-name":
        return NAME_VARIABLE["valueFrom"], "read from jobset-name, the label with the TrainJob's name"
    if found and draft.has_one_kind:
        return RANK, "read from job-completion-index, which has the same value"
    return None


def rendezvous_endpoint(host: str | None = None, port: object = None) -> str:
    """Return the rendezvous endpoint of torchrun.

    It is on rank 0 of the TrainJob, unless the job names a host of its own.
    """
    return f"{host or host_reference(0)}:{port or PORT}"


def _shell_line(words: Sequence[str]) -> str | None:
    """Return the script of `sh -c`, `bash -lc` and the like; None for another program."""
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
    """Return whether a command is Python, or a script or shell that may start it.

    `python -m pip` does not count.
    """
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


def _strip_shell_prefixes(words: list[str]) -> list[str]:
    """Return a shell command without leading words such as `A=b`, `exec` or `then`."""
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _SHELL_PREFIXES):
        words = words[1:]
    return words


def _find_script(words: Sequence[str]) -> int | None:
    """Return the index of a script or `-m MODULE` after Python.

    Returns:
        The index; None for other programs, and if Python has options that torchrun would not retain.
    """
    if not words or not _is_python(words[0]):
        return None
    place = next((number for number, word in enumerate(words) if number and word not in _IGNORED_OPTIONS), None)
    if place is None or (words[place].startswith("-") and words[place] != "-m"):
        return None
    return place
