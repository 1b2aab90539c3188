"""Command that checks the origin of models before the trainer's own command."""

from __future__ import annotations

from collections.abc import Sequence

from trainjob.framework_modules import list_modules
from trainjob.packing import program_command
from trainjob.spec import ModelCheck
from trainjob.spec.job import Program
from trainjob.spec.trainers import escape_expansion, validate_command

_PROGRAM = "trainjob.programs.export.origin_check"
_DEPENDENCIES = (
    "trainjob.programs.export.origin",
    "trainjob.framework_modules",
    "trainjob.job_variables",
    "trainjob.credentials",
    "trainjob.errors",
)


def origin_program(source: Program = "packed") -> list[str]:
    """Return the command of the program that checks the origin of models."""
    return program_command(_PROGRAM, *_DEPENDENCIES, *list_modules("origin"), source=source)


def checked_command(check: ModelCheck, program: Program, words: Sequence[str]) -> list[str]:
    """Return the command that checks the folders and then runs the trainer's own command.

    Raises:
        InvalidSpec: the command is too long.
    """
    options = [("--folder", check.folders), ("--after-job", check.after_jobs)]
    given = [escape_expansion(word) for option, values in options for value in values for word in (option, value)]
    command = [*origin_program(program), *given, *words]
    return list(validate_command(tuple(command), "trainer.command"))
