"""Transfer of files from a store in blocks, over many connections.

The blocks of all files are read in order, so one large file uses all connections, and so do many small ones. Each block
is written to its place, and hashed from memory. Nothing is read back, and the data are written once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from trainjob.programs.fetch.folder import Folder
from trainjob.programs.fetch.http_reader import RangesIgnored
from trainjob.programs.fetch.listing import StoreFile
from trainjob.programs.fetch.part_file import BLOCK_BYTES, PartFile, count_blocks
from trainjob.programs.fetch.progress import TransferProgress
from trainjob.programs.fetch.retries import Retries

__all__ = ["BlockReader", "ReaderFactory", "transfer_files"]

CONNECTIONS = 32
"""Readers at once, for a store that many clients use at once."""

_BUFFERS_PER_CONNECTION = 1.5  # those above one wait for earlier blocks of their file
_SYNC_SECONDS = 1.0  # so much work a kill loses at most
_FINISHING_THREADS = 4
_MAX_UNFINISHED = 64  # complete files that are not on disk yet; each has an open descriptor


class BlockReader(Protocol):
    """A reader of parts of files, for one thread."""

    def read_into(self, file: StoreFile, offset: int, buffer: memoryview) -> int:
        """Fill the beginning of the buffer; return the number of bytes, at least 1.

        The bytes for the rest of the buffer are read next.
        """

    def close(self) -> None:
        """Close the connections."""

    def abort(self) -> None:
        """End a read of another thread."""


class ReaderFactory(Protocol):
    """A function that returns a reader of a store."""

    def __call__(self, *, is_sequential: bool) -> BlockReader:
        """Return a reader.

        Args:
            is_sequential: whether it is the only reader, and the blocks are read in their order.
        """


def transfer_files(
    folder: Folder,
    files: Sequence[StoreFile],
    create_reader: ReaderFactory,
    finish: Callable[[PartFile], bool],
    progress: TransferProgress,
    connections: int = CONNECTIONS,
) -> list[StoreFile]:
    """Fetch files into the part files of a folder.

    Args:
        folder: the folder to fill.
        files: the files; an incomplete one of an earlier transfer is continued.
        create_reader: function that returns a reader of the store.
        finish: function that takes each part file that is complete and on disk, and gives the file its path. It
            returns False if the content is wrong; the file is then transferred once more.
        progress: counter of the bytes.
        connections: number of readers at once.

    Returns:
        The files that arrived with wrong content twice.

    Raises:
        Exception: the first failure of a reader that a repetition does not help, or an error of the volume.
    """
    remaining = {file.path: file for file in files}

    def finish_once(part: PartFile) -> bool:
        is_right = finish(part)
        if is_right:
            remaining.pop(part.file.path)
        return is_right

    for _ in range(2):
        if not remaining:
            break
        try:
            _Transfer(folder, remaining.values(), create_reader, finish_once, progress, connections).run()
        except RangesIgnored:
            connections = 1
            _Transfer(folder, remaining.values(), create_reader, finish_once, progress, connections).run()
    return list(remaining.values())


class _Transfer:
    """A pass over the files."""

    def __init__(
        self,
        folder: Folder,
        files: Iterable[StoreFile],
        create_reader: ReaderFactory,
        finish: Callable[[PartFile], bool],
        progress: TransferProgress,
        connections: int,
    ) -> None:
        self._create_reader, self._finish, self._progress = create_reader, finish, progress
        self._connections = connections
        files = list(files)
        self._workers = min(connections, sum(count_blocks(file) for file in files))
        # Created one by one, because a dataset may have a million files.
        self._blocks = (
            (part, number) for file in files for part in [PartFile(folder, file)] for number in range(part.blocks)
        )
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._failure: BaseException | None = None
        self._readers: list[BlockReader] = []
        self._open_parts: set[PartFile] = set()
        self._buffers: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._buffers_left = int(self._connections * _BUFFERS_PER_CONNECTION)
        self._finishing = threading.BoundedSemaphore(_MAX_UNFINISHED)

    def run(self) -> None:
        """Fetch the files; remove the part files of those with wrong content."""
        with ThreadPoolExecutor(_FINISHING_THREADS, "finish") as finishers, self._sync_periodically():
            threads = [threading.Thread(target=self._work, args=(finishers,)) for _ in range(self._workers)]
            try:
                for thread in threads:
                    thread.start()  # may be refused, for example by the limit of the pod
                for thread in threads:
                    thread.join()
            except BaseException as interruption:
                self._stop(interruption)
                raise
        for part in self._open_parts:  # of a failed pass
            with contextlib.suppress(OSError):  # the volume may be full
                part.sync()
            part.close()
        if self._failure:
            raise self._failure

    def _work(self, finishers: ThreadPoolExecutor) -> None:
        """Read blocks until there is none left, or one fails."""
        try:
            reader = self._create_reader(is_sequential=self._connections == 1)
            with contextlib.closing(reader):
                self._readers.append(reader)
                while block := self._take():
                    part, number, buffer = block
                    view = buffer[: part.size(number)]
                    if self._fetch(reader, part, number, view) and part.hash(number, view, self._release):
                        self._finishing.acquire()
                        finishers.submit(self._finish_part, part)
        except BaseException as failure:  # noqa: BLE001 - `run` raises it
            self._stop(failure)

    def _take(self) -> tuple[PartFile, int, memoryview] | None:
        """Return the next block and the buffer for it; None if there is nothing more to do."""
        # The buffer first: the earliest block that is not read always has one, so the blocks after it can't use up all.
        buffer = self._get_buffer()
        if buffer is None or self._stopped.is_set():
            return None
        with self._lock:
            found = next(self._blocks, None)
            if found:
                self._open_parts.add(found[0])
        if found is None:
            self._buffers.put(buffer)
            return None
        found[0].open()
        return (*found, buffer)

    def _get_buffer(self) -> memoryview | None:
        with contextlib.suppress(queue.Empty):
            return self._buffers.get_nowait()
        with self._lock:
            is_new = self._buffers_left > 0
            self._buffers_left -= is_new
        return memoryview(bytearray(BLOCK_BYTES)) if is_new else self._buffers.get()

    def _release(self, view: memoryview) -> None:
        self._buffers.put(memoryview(view.obj))

    def _fetch(self, reader: BlockReader, part: PartFile, number: int, view: memoryview) -> bool:
        """Fill the view with a block, from the part file if it has it, and write what it has not.

        Returns:
            Whether the block is complete; False if the transfer has failed.
        """
        if part.has_on_disk(number):
            part.read(number, view)
            self._progress.add_bytes(len(view), moved=False)
            return True
        retries = Retries(self._stopped, lambda text: self._progress.report(f"{part.file.key}: {text}"))
        filled = 0
        while filled < len(view):
            if self._stopped.is_set():
                return False
            position = part.offset(number) + filled
            try:
                count = reader.read_into(part.file, position, view[filled:])
            except Exception as failure:  # noqa: BLE001 - `wait` raises those that a repetition does not help
                retries.wait(failure)
                continue
            retries.reset()
            part.write(position, view[filled : filled + count])
            self._progress.add_bytes(count)
            filled += count
        part.complete(number)
        return True

    def _finish_part(self, part: PartFile) -> None:
        try:
            if not self._stopped.is_set():
                part.sync()
                if not self._finish(part):
                    part.remove()
                    self._progress.add_bytes(-part.file.size)
                with self._lock:
                    self._open_parts.discard(part)
                part.close()
        except BaseException as failure:  # noqa: BLE001 - `run` raises it
            self._stop(failure)
        finally:
            self._finishing.release()

    def _stop(self, failure: BaseException) -> None:
        """Let all threads end soon, because of a failure."""
        with self._lock:
            self._failure = self._failure or failure
        self._stopped.set()
        for reader in list(self._readers):
            reader.abort()
        for _ in range(self._connections):
            self._buffers.put(None)

    @contextlib.contextmanager
    def _sync_periodically(self) -> Iterator[None]:
        """Record the blocks of large files that are on disk, so that a kill loses little."""
        ended = threading.Event()
        syncing = threading.Thread(target=self._sync_until, args=(ended,), name="sync", daemon=True)
        syncing.start()
        try:
            yield
        finally:
            ended.set()
            syncing.join()

    def _sync_until(self, ended: threading.Event) -> None:
        while not ended.wait(_SYNC_SECONDS):
            with self._lock:
                parts = [part for part in self._open_parts if part.blocks > 1]
            try:
                for part in parts:
                    part.sync()
            except OSError as failure:
                self._stop(failure)
                return
