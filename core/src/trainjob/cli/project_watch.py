"""Thread that sends each change of a project's folder to the pods of its TrainJob."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from watchfiles import Change, watch

from trainjob.cli.follow import StartOver
from trainjob.cli.interruption import Interruption
from trainjob.cli.progress_output import ProgressOutput
from trainjob.cli.request_file import UserRequest
from trainjob.client import Cluster
from trainjob.errors import InvalidSpec, TrainJobError
from trainjob.lifecycle import JobReference
from trainjob.lifecycle.code_changes import ChangesPublisher
from trainjob.project_code.changes import (
    CodeChanges,
    Contents,
    ProjectSnapshots,
    find_changes,
    pack_changes,
    read_contents,
)
from trainjob.spec import PackedCode
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES
from trainjob.threads import start_thread

_IGNORED = {".git", "__pycache__"}
# In milliseconds: an editor writes a file in several steps, and the first of them starts the pause.
_PAUSE, _LONGEST_PAUSE, _TIMEOUT = 30, 300, 200
_MAX_SHOWN = 5
_STOP_SECONDS = 2.0
_LIMIT_HINT = "raise the limit fs.inotify.max_user_watches of Linux, or set the variable WATCHFILES_FORCE_POLLING=true"


class ProjectWatch:
    """Watch of the folder of a project, from the first submission of its TrainJob to [stop][].

    Args:
        cluster: the cluster of the TrainJob.
        code: the code with which the TrainJob starts.
        repack: function that returns the request with the present files, for a TrainJob that replaces this one.
    """

    def __init__(self, cluster: Cluster, code: PackedCode, repack: Callable[[], UserRequest]) -> None:
        self._cluster, self._folder, self._repack = cluster, Path(code.path), repack
        self._requirements = (
            {code.requirements, "pyproject.toml"} if code.requirements == "uv.lock" else {code.requirements}
        )
        self._base: Contents = read_contents(code)
        self._sent = self._base
        self._snapshots = ProjectSnapshots(self._folder)
        self._submitted: tuple[JobReference, ProgressOutput, Interruption] | None = None
        self._publisher: ChangesPublisher | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def on_submitted(self, reference: JobReference, output: ProgressOutput, interruption: Interruption) -> None:
        """Send the changes to this TrainJob from now on; see `trainjob.cli.follow.OnSubmitted`."""
        self._submitted = reference, output, interruption
        if self._thread is None:
            self._thread = start_thread(self._run, name="project-watch")

    def stop(self) -> None:
        """End the thread; a request that it is sending may end later."""
        self._stopping.set()
        if self._thread:
            self._thread.join(_STOP_SECONDS)  # a request may be repeated while the API server is unavailable

    def _run(self) -> None:
        try:
            try:
                self._watch()
            except OSError as error:
                raise TrainJobError(f"the folder {self._folder} cannot be watched: {error}", hint=_LIMIT_HINT) from None
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits for the TrainJob
            if self._submitted:
                self._submitted[2].interrupt_threadsafe(error)

    def _watch(self) -> None:
        must_send = True  # what changed before the watch began
        for events in watch(
            self._folder,
            watch_filter=_is_relevant,
            debounce=_LONGEST_PAUSE,
            step=_PAUSE,
            rust_timeout=_TIMEOUT,
            yield_on_timeout=True,
            stop_event=self._stopping,
            raise_interrupt=False,
        ):
            if self._submitted is None:
                continue
            reference, output, _ = self._submitted
            if self._publisher is None or self._publisher.reference != reference:
                self._publisher = ChangesPublisher(self._cluster, reference, partial(_print, output))
                self._sent, must_send = self._base, True
            if events or must_send:
                must_send = not self._send(self._publisher, output)

    def _send(self, publisher: ChangesPublisher, output: ProgressOutput) -> bool:
        """Send the changes, if there are any, and return whether that must not be tried again.

        Raises:
            StartOver: they are too large, or the packages of the project have changed.
        """
        try:
            files, contents = self._snapshots.take()
            changes = pack_changes(self._folder, files, self._base, contents)
            if reason := self._find_reason_for_new_base(changes, contents):
                request = self._repack()
                _print(output, f"{reason}; starting over with a new TrainJob")
                raise StartOver(request)
            generation = publisher.publish(changes)
        except FileNotFoundError:  # deleted in this moment
            return False
        except (InvalidSpec, OSError) as error:
            _print(output, f"not sent, waiting for a change: {error}")
            return True
        except TrainJobError as error:
            _print(output, f"the change could not be sent: {error}")
            return not error.retryable
        if generation is not None:
            _print(output, f"change {generation}: {_describe(find_changes(self._sent, contents), changes)}")
        self._sent = contents
        return True

    def _find_reason_for_new_base(self, changes: CodeChanges, contents: Contents) -> str:
        if changes.size > MAX_CONFIG_MAP_BYTES:
            limit = f"{MAX_CONFIG_MAP_BYTES / 1e6:g} MB"
            return f"the changes have {_format_size(changes.size)} compressed, more than {limit}"
        for name in sorted(self._requirements - {""}):
            if contents.get(name) != self._base.get(name):
                return f"{name} has changed, and the packages are installed at the start"
        return ""


def _is_relevant(_: Change, path: str) -> bool:
    return not _IGNORED.intersection(Path(path).parts)


def _print(output: ProgressOutput, text: str) -> None:
    for line in text.splitlines():  # an error may have several
        output.print_line(f"dev: {line}")


def _describe(names: tuple[Sequence[str], Sequence[str]], changes: CodeChanges) -> str:
    """Return the names of files that have changed, and the size of what was sent."""
    changed, deleted = names
    listed = [*changed, *(f"{name} (deleted)" for name in deleted)]
    more = f" and {len(listed) - _MAX_SHOWN} more" if len(listed) > _MAX_SHOWN else ""
    shown = ", ".join(listed[:_MAX_SHOWN]) or "the files of the start"
    return f"{shown}{more} ({_format_size(changes.size)})"


def _format_size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
