"""Program that checks the origin of models before it starts the command of a step.

    python -m trainjob.programs.export.origin_check --folder /workspace/candidate COMMAND ...

Folders without a record are not checked. Exit code 1: a model has another origin, and the command was not started.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainjob.errors import ExportError
from trainjob.programs.export.origin import OriginRule, check_origin, get_own_run
from trainjob.version import check_version

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process with the command, or return the exit code 1."""
    parser = argparse.ArgumentParser(description="Check the origin of models, and run a command.")
    parser.add_argument("--folder", type=Path, action="append", default=[], help="folder that may have a model")
    parser.add_argument(
        "--after-job", action="append", default=[], help="TrainJob of another run that may have trained it"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(check_version(sys.argv[1:] if arguments is None else arguments))
    rule = OriginRule(tuple(given.after_job), get_own_run())
    try:
        for folder in given.folder:
            check_origin(folder, rule)
        os.execvp(given.command[0], given.command)  # noqa: S606 - it is the step's own command
    except ExportError as refusal:
        print(f"origin: failed: {refusal}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
