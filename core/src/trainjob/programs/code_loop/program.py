"""Program that runs the training of a project again after each change of its files.

    python -m trainjob.programs.code_loop --sha256 HEX --archive FILE --changes DIR --idle 1800 --module train -- --lr 1

It unpacks the project and installs its packages as `trainjob.programs.code` does. A run that fails, and a file with an
error, do not end it.

Exit code 0: there was no run and no change for the idle time. Exit code 1: the project could not be unpacked; a line
that begins with `code: failed: ` has the reason. Exit code 143: SIGTERM ended it.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from trainjob.programs.code.arguments import build_command, create_parser, parse, prepare
from trainjob.programs.code.failure import CodeFailure
from trainjob.programs.code_loop.changes import ChangesFolder, ChangingProject
from trainjob.programs.code_loop.rank_variables import build_rank_variables, choose_port
from trainjob.programs.code_loop.runs import (
    CommandRun,
    Run,
    Template,
    TemplateUnavailable,
    end_run,
    kill_leftovers,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["main"]

_POLL_SECONDS = 0.1
# With these, torchrun finds the other nodes in a way that is its own.
_RENDEZVOUS_VARIABLES = ("PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_STANDALONE")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the training until nothing changes any more, and return the exit code."""
    parser = create_parser("code_loop", "Run a training again after each change.")
    parser.add_argument("--changes", required=True, help="folder that gets the changes")
    parser.add_argument("--idle", required=True, type=float, help="seconds without a run and a change until the end")
    signal.signal(signal.SIGTERM, _end)
    if isinstance(sys.stdout, io.TextIOWrapper):  # with PYTHONUNBUFFERED, a line would mix with those of the run
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    try:
        loop = _Loop(*parse(parser, sys.argv[1:] if arguments is None else arguments))
    except CodeFailure as failure:
        print(f"code: failed: {failure}", file=sys.stderr, flush=True)
        return 1
    try:
        return loop.run()
    finally:
        loop.end_run()


def _end(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


class _Loop:
    """The project in this pod, with the run that lasts.

    Raises:
        CodeFailure: the project cannot be unpacked, or its packages cannot be installed.
    """

    def __init__(self, options: argparse.Namespace, words: Sequence[str]) -> None:
        self._options, self._words = options, words
        self._changes = ChangesFolder(Path(os.path.abspath(options.changes)))  # noqa: PTH100
        self._folder = prepare(options)
        self._project = ChangingProject(self._folder)
        self._port = os.environ.get("PET_MASTER_PORT", "")
        self._template: Template | None = None
        self._is_warm = bool(options.module or options.script) and _has_plain_rendezvous()
        self._number, self._generation, self._run = 0, 0, None  # type: tuple[int, int, Run | None]

    def run(self) -> int:
        """Run the training now and after each change, until the idle time is over."""
        self._apply_changes()
        self._start_run()
        idle_since = time.monotonic()
        while self._run or time.monotonic() - idle_since < self._options.idle:
            if self._apply_changes():
                self._start_run()
            if self._run:
                self._report_end(self._run)
                idle_since = time.monotonic()
            time.sleep(_POLL_SECONDS)
        print(f"dev: no run and no change for {self._options.idle:.0f} s: the pod ends", flush=True)
        return 0

    def end_run(self) -> None:
        """End the run that lasts, if there is one."""
        if self._run:
            end_run(self._run)
        self._run = None

    def _apply_changes(self) -> bool:
        """End the run and apply new changes, and return whether a run has to start."""
        try:
            changes = self._changes.poll()
            if changes is None:
                return False
            self.end_run()
            self._generation = changes.generation
            self._project.apply(changes)
        except CodeFailure as failure:
            print(f"dev: {failure}; waiting for a change", flush=True)
            return False
        return True

    def _start_run(self) -> None:
        self._number += 1
        importlib.invalidate_caches()  # a search for a module would not find a new file
        change = f" with change {self._generation}" if self._generation else ""
        print(f"dev: run {self._number}{change}", flush=True)
        if self._port and self._port.isdigit():
            os.environ["PET_MASTER_PORT"] = choose_port(self._port, self._generation)
        try:
            self._run = self._start_processes(build_command(self._options, self._words, self._folder))
        except (CodeFailure, OSError) as failure:
            print(f"dev: run {self._number} cannot start: {failure}; waiting for a change", flush=True)

    def _start_processes(self, command: Sequence[str]) -> Run:
        """Start a run from the template process; without one, start the command."""
        try:
            if self._is_warm:
                self._template = self._template or _start_template(self._folder)
                return self._template.start_run(self._build_request(self._template.processes))
        except TemplateUnavailable as reason:
            # The command reports the same with torchrun's words, if it is an error. A template that was killed is
            # started again for the next run.
            self._is_warm = self._template is not None
            self._template = None
            print(f"dev: torch is not kept in memory: {reason}", flush=True)
        return CommandRun(command)

    def _build_request(self, processes: int) -> dict[str, object]:
        options = self._options
        target = options.module or str(self._folder / os.path.normpath(options.script))
        first = self._folder if options.module else Path(target).parent
        run = f"dev-{self._number}"
        shared = {"PYTHONPATH": os.environ["PYTHONPATH"]}
        ranks = [{**shared, **build_rank_variables(os.environ, rank, processes, run)} for rank in range(processes)]
        return {
            "target": target,
            "is_module": bool(options.module),
            "arguments": list(self._words),
            "search_paths": [str(first), *_split_search_paths(self._folder)[0]],
            "ranks": ranks,
        }

    def _report_end(self, run: Run) -> None:
        code = run.poll()
        if code is None:
            return
        kill_leftovers(run)
        self._run = None
        print(f"dev: run {self._number} ended with exit code {code}; waiting for a change", flush=True)


def _has_plain_rendezvous() -> bool:
    """Return whether torchrun's variables are the Trainer's, with a fixed number of nodes."""
    variables = os.environ
    return (
        variables.get("PET_NNODES", "").isdigit()
        and variables.get("PET_NODE_RANK", "0").isdigit()
        and not any(name in variables for name in _RENDEZVOUS_VARIABLES)
    )


def _start_template(folder: Path) -> Template:
    """Start the template process, which does not find modules of the project."""
    _, others = _split_search_paths(folder)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(others)}
    return Template(variables, os.environ.get("PET_NPROC_PER_NODE", "1"))


def _split_search_paths(folder: Path) -> tuple[list[str], list[str]]:
    """Return the folders of the project in `PYTHONPATH`, and the others."""
    found = os.environ["PYTHONPATH"].split(os.pathsep)
    own = [str(folder), str(folder / "src")]
    return [each for each in found if each in own], [each for each in found if each not in own]
