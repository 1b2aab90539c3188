"""Process that waits for a TrainJob and writes its log: waiter.py KUBECONFIG REFERENCE STORE OUTPUT SECONDS

It continues where the last process of this STORE has ended. It stores the times after each interval of SECONDS,
and at SIGTERM. OUTPUT is opened to append; its first line is `# started`, and a line `# stored` follows each
snapshot that was stored.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainjob.client import Cluster, Connection, LogWriter, WrittenTimes
from trainjob.lifecycle import JobReference, ProgressLog, wait


class Stopped(BaseException):
    """The process received SIGTERM."""


class FileStore:
    """Times in a file, which is always complete."""

    def __init__(self, path: Path, written_times: WrittenTimes) -> None:
        self._path, self._written_times, self._changed = path, written_times, threading.Event()
        self._lock, self._is_exact = threading.Lock(), False
        written_times.on_change = self._changed.set

    def store(self, *, is_exact: bool) -> None:
        """Store the times; after the exact ones at the end, no others."""
        new = self._path.with_suffix(".new")
        with self._lock:
            if self._is_exact:
                return
            new.write_text(json.dumps(self._written_times.to_dict(is_exact=is_exact)))
            new.replace(self._path)
            self._is_exact = is_exact

    def run(self, seconds: float, write: Callable[[str], None]) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            time.sleep(seconds)
            write("# snapshot")
            self.store(is_exact=False)
            write("# stored")


def stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def main(kubeconfig: str, reference_text: str, store_path: str, output_path: str, seconds: str) -> None:
    output = os.open(output_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(text: str) -> None:
        os.write(output, f"{text}\n".encode())

    write("# started")
    path, reference = Path(store_path), JobReference(**json.loads(reference_text))
    values = json.loads(path.read_text()) if path.exists() else None
    written_times = WrittenTimes.from_dict(values, reference.uid)
    store = FileStore(path, written_times)
    cluster = Cluster(Connection(kubeconfig=kubeconfig))
    signal.signal(signal.SIGTERM, stop)
    store.store(is_exact=False)
    log = LogWriter().open(write, written_times.record)
    write(written_times.resumption)
    try:
        with log:
            threading.Thread(target=store.run, args=(float(seconds), write), daemon=True).start()
            wait(
                cluster,
                reference,
                listener=ProgressLog(reference, log.report, log=log).listener,
                written_times=written_times,
            )
    except Stopped:
        log.wait_until_written(10.0)
        store.store(is_exact=True)
        os._exit(0)


main(*sys.argv[1:])
