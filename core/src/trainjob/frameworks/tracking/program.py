"""Program that starts a training, copies its output, and starts the recorder of its metrics."""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from trainjob.credentials import clean_environment
from trainjob.errors import InvalidSpec
from trainjob.frameworks.tracking.container_output import ContainerOutput
from trainjob.frameworks.tracking.output_copier import OutputCopier
from trainjob.frameworks.tracking.recorder_process import RecorderProcess
from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd
from trainjob.version import check_version

__all__ = ["main"]

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Seconds that the recorder has to send the last values; after SIGTERM, the pod's grace period is passing.
_LAST_VALUES, _LAST_VALUES_AFTER_SIGTERM = 60.0, 10.0
_CANNOT_EXECUTE, _COMMAND_NOT_FOUND = 126, 127  # a shell's exit codes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the training, and return its exit code.

    On other nodes than the first, this process is replaced with the training.
    """
    try:
        given = _parse_arguments(check_version(sys.argv[1:] if arguments is None else arguments))
    except InvalidSpec as refusal:
        print(f"tracking: failed: {refusal}", file=sys.stderr, flush=True)
        return 2
    if problem := clean_environment():
        print(f"tracking: {problem}", flush=True)  # the training continues without the tracker
    try:
        if _get_node_rank() != "0":
            os.execvp(given.command[0], given.command)  # noqa: S606 - it is our own command
        return run_tracked(given.command, TrackedRun.from_json(given.run))
    except OSError as error:
        print(f"tracking: failed: {given.command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return _COMMAND_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE


def run_tracked(command: Sequence[str], run: TrackedRun) -> int:
    """Run a training and record its metrics.

    Returns:
        The training's exit code; 128 + the signal's number if a signal ended it, as a container runtime reports it.

    Raises:
        OSError: the training cannot be started.
    """
    signals = _SignalForwarder()
    source, target = os.pipe()
    try:
        # In a session of its own, the training gets each signal once: from the forwarder.
        training = subprocess.Popen(command, stdout=target, stderr=subprocess.STDOUT, start_new_session=True)
    finally:
        os.close(target)
    signals.forward_to(training)
    output = ContainerOutput()
    recorder = RecorderProcess(run, output.print_line)
    copier = OutputCopier(source, output, recorder.put)
    code = signals.wait_for(training)
    copier.finish()
    exit_code = 128 - code if code < 0 else code
    timeout = _LAST_VALUES_AFTER_SIGTERM if signals.is_terminated else _LAST_VALUES
    recorder.finish(TrainingEnd(exit_code, signals.is_terminated), timeout)
    return exit_code


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


def _get_node_rank() -> str:
    """Return the node's number.

    The Trainer sets it for torch, and Kubernetes sets it for every indexed Job.
    """
    return os.environ.get("PET_NODE_RANK") or os.environ.get("JOB_COMPLETION_INDEX") or "0"


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a training and send its metrics to an experiment tracker.")
    parser.add_argument("--run", required=True, help="JSON object: the tracked run")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command of the training")
    given = parser.parse_args(arguments)
    if not given.command:
        parser.error("the following arguments are required: command")
    return given
