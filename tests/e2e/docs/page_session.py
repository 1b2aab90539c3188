"""A bash session that runs the commands of a page one after the other."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from types import TracebackType

from tests.support.code_blocks import CodeBlock
from tests.support.page_commands import PageCommand, find_missing_line, shows_failure

__all__ = ["PageFailure", "PageSession"]

_STATUS = "echo $?"
# Commands that run until Ctrl-C. A reader types the next command in another terminal.
_UNTIL_STOPPED = re.compile(r"trainjob (?:local up|airflow|watch)\b|kubectl .*\b(?:port-forward|--watch)\b")
_STOP_SECONDS = 15.0


class PageFailure(AssertionError):
    """A command of a page that did not do what the page shows."""

    def __init__(self, command: PageCommand, reason: str, output: str) -> None:
        super().__init__(f"{command.page}:{command.line}: {reason}\n$ {command.text}\n{output}")


class PageSession:
    """One bash session; its end is the end of all programs that the commands started.

    Args:
        folder: empty folder in which the commands run.
        scratch: another folder, for the commands' output.
        environment: all environment variables of the session.
        replacements: texts of the page and what the test has in their place, such as the address of a server.
        user: command that runs the rest of its arguments as another user; empty for the user of the tests.
        seconds: maximum duration of a command.
    """

    def __init__(
        self,
        folder: Path,
        scratch: Path,
        environment: Mapping[str, str],
        replacements: Mapping[str, str],
        *,
        user: Sequence[str] = (),
        seconds: float = 240.0,
    ) -> None:
        self._folder, self._scratch, self._environment = folder, scratch, dict(environment)
        self._replacements, self._user, self._seconds = replacements, user, seconds
        self._number = 0
        self.timings: list[tuple[float, CodeBlock | PageCommand]] = []

    def __enter__(self) -> PageSession:
        reading, self._answers = os.pipe()
        self._reader = os.fdopen(reading, "rb", buffering=0)
        self._bash = subprocess.Popen(
            [*self._user, "bash", "--noprofile", "--norc", "-euo", "pipefail"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._answers,),
            start_new_session=True,
        )
        os.close(self._answers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End bash and the programs that still run: with SIGTERM, after 15 s with SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._bash.pid, number)
            _poll(self._has_ended, _STOP_SECONDS)
        self._reader.close()
        assert self._bash.stdin
        with contextlib.suppress(BrokenPipeError):
            self._bash.stdin.close()

    def _has_ended(self) -> bool:
        """Return whether no process of the session's group is left."""
        self._bash.poll()
        try:
            os.killpg(self._bash.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def write(self, name: str, text: str) -> None:
        """Write a file that the page shows."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._replace(text), "utf-8")

    def run(self, steps: Sequence[CodeBlock | PageCommand]) -> None:
        """Write the files and run the commands, in their order.

        Raises:
            PageFailure: a command failed, took too long, or did not print what the page shows.
        """
        for step, following in zip_longest(steps, steps[1:]):
            began = time.monotonic()
            if isinstance(step, CodeBlock):
                self.write(step.title, step.text)
            elif _UNTIL_STOPPED.match(step.text):
                self._start(step)
            else:
                self._run(step, checks_status=following is None or following.text != _STATUS)
            self.timings.append((time.monotonic() - began, step))

    def _replace(self, text: str) -> str:
        for shown, used in self._replacements.items():
            text = text.replace(shown, used)
        return text

    def _run(self, command: PageCommand, *, checks_status: bool) -> None:
        out, call = self._prepare(command)
        if command.text == _STATUS:
            self._send(f"echo $page_status >{shlex.quote(str(out))}\npage_status=0\necho 0 >&{self._answers}")
        else:
            exits = "-e" if checks_status and not shows_failure(command) else "+e"
            self._send(f"set {exits}\n{call}\npage_status=$?\nset -e\necho $page_status >&{self._answers}")
        answer = self._read_answer()
        printed = _read(out)
        if answer is None:
            raise PageFailure(command, f"did not end within {self._seconds:.0f} s", printed)
        status = int(answer) if answer else self._bash.wait(_STOP_SECONDS)
        if shows_failure(command):
            if not status:
                raise PageFailure(command, "succeeded, but the page shows an error", printed)
        elif status and checks_status:
            raise PageFailure(command, f"exit status {status}", printed)
        if (line := find_missing_line(self._expected(command), printed)) is not None:
            raise PageFailure(command, f"did not print this line of the page: {line}", printed)

    def _start(self, command: PageCommand) -> None:
        """Start a command that runs until it is stopped, and wait for its shown output."""
        out, call = self._prepare(command)
        self._send(f"{call} &\necho $! >&{self._answers}")
        pid = int(self._read_answer() or 0)

        def is_ready() -> bool:
            return find_missing_line(self._expected(command), _read(out)) is None

        _poll(lambda: is_ready() or not _runs(pid), self._seconds)
        if not _runs(pid):
            raise PageFailure(command, "ended by itself", _read(out))
        if (line := find_missing_line(self._expected(command), _read(out))) is not None:
            raise PageFailure(command, f"did not print this line of the page: {line}", _read(out))

    def _prepare(self, command: PageCommand) -> tuple[Path, str]:
        """Return the file for the command's output, and the bash command that runs it.

        Its programs do not inherit the pipe of the answers.
        """
        self._number += 1
        script = self._scratch / f"{self._number}.sh"
        script.write_text(f"{self._replace(command.text)}\n", "utf-8")
        out = script.with_suffix(".out")
        return out, f". {shlex.quote(str(script))} >{shlex.quote(str(out))} 2>&1 </dev/null {self._answers}>&-"

    def _expected(self, command: PageCommand) -> tuple[str, ...]:
        return tuple(self._replace(line) for line in command.output)

    def _send(self, text: str) -> None:
        assert self._bash.stdin
        with contextlib.suppress(BrokenPipeError):
            self._bash.stdin.write(f"{text}\n".encode())
            self._bash.stdin.flush()

    def _read_answer(self) -> str | None:
        """Return what bash reports; an empty text if bash has ended, None after the deadline."""
        ready, _, _ = select.select([self._reader], [], [], self._seconds)
        return self._reader.read(32).decode().strip() if ready else None


def _read(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.exists() else ""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _poll(is_done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.05)
