"""Reports of what TrainJobs do: lines, and on a terminal a progress bar below them."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from trainjob import status
from trainjob.cli.interruption import Interruption
from trainjob.cli.terminal import escape, escape_line, print_line
from trainjob.errors import TrainJobError
from trainjob.lifecycle import JobReference, Listener, ProgressLog


class ProgressOutput:
    """Context manager that prints reports about TrainJobs, from any thread."""

    def __init__(self, console: Console, interruption: Interruption, *, keep_colors: bool = False) -> None:
        """Create an output without lines and without a progress bar.

        Args:
            console: console for the reports.
            interruption: ends the command if the reader of the console is gone.
            keep_colors: whether the colors of log lines stay, unless NO_COLOR is set.
        """
        self._console, self._interruption, self._keep_colors = console, interruption, keep_colors
        self._error: Exception | None = None
        interruption.watch_reader(console.file)
        self._lock = threading.Lock()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[progress]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProgressOutput:
        """Return this object; the progress bar starts with the first TrainJob."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the progress bar; the lines stay.

        Raises:
            BrokenPipeError: the reader of the console is gone, and the block has ended without an error.
            TrainJobError: a line could not be written, and the block has ended without an error.
        """
        self._bar.stop()
        if self._error and error is None:
            raise self._error

    def print_line(self, line: str) -> None:
        """Print one line; brackets at its start contain its step and rank."""
        with self._lock:
            if self._error:
                return
            try:
                self._write(line)
            except OSError as error:
                self._error = _to_command_error(error)
                self._interruption.interrupt_threadsafe(self._error)

    def create_listener(self, reference: JobReference) -> Listener:
        """Return a listener for `wait` that reports about a TrainJob.

        Phases and log lines become lines. Progress moves the bar if there is one, and becomes lines otherwise.
        """
        listener = ProgressLog(reference, self.print_line).listener
        if self._bar.disable:
            return listener
        task = self._bar.add_task(reference.name, total=100, progress="")
        self._bar.start()

        def on_phase(verdict: status.Verdict) -> None:
            self._bar.update(task, description=f"{reference.name} {verdict.phase.value}")
            listener.on_phase(verdict)

        def on_progress(progress: status.Progress) -> None:
            self._bar.update(task, completed=progress.percent or 0, progress=escape(str(progress)))

        return replace(listener, on_phase=on_phase, on_progress=on_progress)

    def _write(self, line: str) -> None:
        if not self._console.is_terminal:  # write directly: a log may have a million lines
            print_line(line, keep_colors=self._keep_colors, file=self._console.file)
            return
        text = Text.from_ansi(escape_line(line, keep_colors=self._keep_colors))
        text.stylize("cyan" if line.startswith("[") else "bold", 0, line.find("] ") + 1 or None)
        self._console.print(text)


def _to_command_error(error: OSError) -> Exception:
    """Return the exception that ends the command after an output error.

    A reader that is gone needs no message: see [trainjob.cli.terminal.run][].
    """
    if error.errno == errno.EPIPE:
        return error
    return TrainJobError(f"cannot write to standard output: {error.strerror}")
