"""Program that unpacks a project, installs its packages and starts the command of a step.

    python -m trainjob.programs.code --sha256 HEX --archive FILE [--requirements uv.lock] --module train -- --epochs 3

Exit code 1: the command was not started; a line that begins with `code: failed: ` has the reason.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.programs.code.arguments import build_command, create_parser, parse, prepare
from trainjob.programs.code.failure import CodeFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_PYTHON = re.compile(r"python[\d.]*")


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process with the command, or return the exit code 1."""
    parser = create_parser("code", "Unpack a project, and start a command in it.")
    parser.add_argument("--record", nargs=2, metavar=("FILE", "JSON"), help="file that gets the origin of the code")
    try:
        options, words = parse(parser, sys.argv[1:] if arguments is None else arguments)
        record = options.record and os.path.abspath(options.record[0])  # noqa: PTH100
        _start_ranks(bool(options.module or options.script or _PYTHON.fullmatch(os.path.basename(words[0]))))  # noqa: PTH119
        folder = prepare(options)
        if record:
            _write_record(Path(record), options.record[1])
        command = build_command(options, words, folder)
        sys.stdout.flush()
        os.execvp(command[0], command)  # noqa: S606 - it is the step's own command
    except CodeFailure as failure:
        print(f"code: failed: {failure}", file=sys.stderr, flush=True)
    except OSError as error:
        print(f"code: failed: the command cannot be started: {error}", file=sys.stderr, flush=True)
    return 1


def _start_ranks(is_python: bool) -> None:
    """Replace this process with mpirun on the launcher of an MPI runtime.

    Every rank unpacks the project then. A command that is not Python starts mpirun itself.
    """
    hosts = os.environ.get("OMPI_MCA_orte_default_hostfile")  # noqa: SIM112 - the name that Trainer 2.3 sets
    if is_python and hosts and "OMPI_COMM_WORLD_RANK" not in os.environ:
        os.execvp("mpirun", ["mpirun", "--hostfile", hosts, *_get_own_command()])  # noqa: S606, S607


def _get_own_command() -> list[str]:
    """Return the words that started this process."""
    if hasattr(sys, "orig_argv"):
        return sys.orig_argv
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")  # Python 3.8 and 3.9
    return [os.fsdecode(word) for word in words[:-1]]


def _write_record(path: Path, text: str) -> None:
    """Write the origin of the code for an export of the model; each node writes the same."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(partial, 0o644)  # noqa: PTH101
        os.replace(partial, path)  # noqa: PTH105
    except OSError as error:
        print(f"code: a model card will not name the commit, because {path} cannot be written: {error}", flush=True)
