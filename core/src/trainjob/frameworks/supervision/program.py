"""Program that starts a training, copies its output, and supervises it."""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from trainjob.credentials import clean_environment
from trainjob.errors import InvalidSpec
from trainjob.frameworks.supervision.container_output import ContainerOutput
from trainjob.frameworks.supervision.output_copier import OutputCopier
from trainjob.frameworks.supervision.rank_ends import RankEnds
from trainjob.frameworks.supervision.watchdog import Watchdog, WatchdogSettings
from trainjob.frameworks.tracking.recorder_process import RecorderProcess
from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd
from trainjob.heartbeats import BEGUN_NAME, FOLDER_VARIABLE
from trainjob.job_variables import get_node_rank
from trainjob.version import check_version

__all__ = ["main"]

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Seconds that the recorder has to send the last values; after SIGTERM, the pod's grace period is passing.
_LAST_VALUES, _LAST_VALUES_AFTER_SIGTERM = 60.0, 10.0
_CANNOT_EXECUTE, _COMMAND_NOT_FOUND = 126, 127  # a shell's exit codes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the training, and return its exit code.

    This process is replaced with the training if nothing is to be done beside it: on other nodes than the first, only
    a watchdog is.
    """
    try:
        given = _parse_arguments(check_version(sys.argv[1:] if arguments is None else arguments))
    except InvalidSpec as refusal:
        print(f"supervisor: failed: {refusal}", file=sys.stderr, flush=True)
        return 2
    if problem := clean_environment():
        print(f"supervisor: {problem}", flush=True)  # the training continues without the tracker
    run = TrackedRun.from_json(given.track) if given.track and get_node_rank() == 0 else None
    settings = WatchdogSettings.from_json(given.watchdog) if given.watchdog else None
    try:
        if run is None and settings is None:
            os.execvp(given.command[0], given.command)  # noqa: S606 - it is our own command
        return supervise(given.command, run, settings)
    except OSError as error:
        print(f"supervisor: failed: {given.command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return _COMMAND_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE


def supervise(command: Sequence[str], run: TrackedRun | None, settings: WatchdogSettings | None) -> int:
    """Run a training, record its metrics, and watch it.

    Args:
        command: the training's command.
        run: the tracked run; None records no metrics.
        settings: settings of the watchdog; None watches nothing.

    Returns:
        The training's exit code; 128 + the signal's number if a signal ended it, as a container runtime reports it. It
        is 1 if the watchdog has ended the training.

    Raises:
        OSError: the training cannot be started.
    """
    signals, output = _SignalForwarder(), ContainerOutput()
    folder = _create_folder(output) if settings else ""
    ends = RankEnds(Path(folder), output.print_line) if folder else None  # before the first rank begins
    source, target = os.pipe()
    try:
        # In a session of its own, the training gets each signal once: from the forwarder.
        training = subprocess.Popen(
            command,
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, FOLDER_VARIABLE: folder} if folder else None,
        )
    finally:
        os.close(target)
    signals.forward_to(training)
    recorder = RecorderProcess(run, output.print_line) if run else None
    watchdog = None
    if settings and ends:
        place, is_ending = (Path(folder), get_node_rank()), lambda: signals.is_terminated
        watchdog = Watchdog(settings, *place, output.print_line, training.pid, is_ending, ends.expect)
    copier = OutputCopier(source, output, [reader.put for reader in (recorder, watchdog) if reader])
    code = signals.wait_for(training)
    verdict = watchdog.stop() if watchdog else ""
    copier.finish()
    if ends:
        ends.finish()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    exit_code = 1 if verdict else 128 - code if code < 0 else code
    if recorder:
        timeout = _LAST_VALUES_AFTER_SIGTERM if signals.is_terminated else _LAST_VALUES
        recorder.finish(TrainingEnd(exit_code, signals.is_terminated), timeout)
    if verdict:
        output.print_line(f"watchdog: failed: {verdict}")
    return exit_code


def _create_folder(output: ContainerOutput) -> str:
    """Return a new folder for heartbeats; empty if there is no place for one."""
    try:
        folder = tempfile.mkdtemp(prefix="trainjob-")
        os.mkfifo(f"{folder}/{BEGUN_NAME}", 0o600)
        return folder
    except OSError as error:
        output.print_line(f"watchdog: the training continues unwatched: {error}")
        return ""


class _SignalForwarder:
    """Handler that sends this process's signals to the training.

    Attributes:
        is_terminated: whether SIGTERM was received.
    """

    def __init__(self) -> None:
        """Handle the signals; those before `forward_to` are kept."""
        self.is_terminated = False
        self._training: subprocess.Popen[bytes] | None = None
        self._pending: list[int] = []
        # A signal just before a blocking call sets only a flag of Python, which is read after the call. The byte in
        # this pipe ends the call.
        self._received, writable = os.pipe()
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in _FORWARDED:
            signal.signal(number, self._handle)

    def forward_to(self, training: subprocess.Popen[bytes]) -> None:
        """Send the signals to a process from now on."""
        self._training = training
        for number in self._pending:
            training.send_signal(number)

    def wait_for(self, training: subprocess.Popen[bytes]) -> int:
        """Return the training's exit code after its end, and forward signals until then."""
        while (code := training.poll()) is None:
            select.select([self._received], [], [])
            os.read(self._received, select.PIPE_BUF)
        return code

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.is_terminated |= number == signal.SIGTERM
        if self._training is None:
            self._pending.append(number)
        else:
            self._training.send_signal(number)


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a training, send its metrics to a tracker, and find a hang.")
    parser.add_argument("--track", help="JSON object: the tracked run")
    parser.add_argument("--watchdog", help="JSON object: the settings of the watchdog")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command of the training")
    given = parser.parse_args(arguments)
    if not given.command:
        parser.error("the following arguments are required: command")
    return given
