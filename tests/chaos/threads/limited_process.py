"""A process that waits for TrainJobs on one event loop, and reaches the kernel's limit of threads when they end.

It is run with the server's URL, a file with its token, and the references of the TrainJobs as JSON: those that end at
the limit, and those that are waited for afterwards. It prints `running`, `limited` and the results, each on a line.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import sys
import threading
from collections.abc import Iterable, Sequence

from trainjob.client import Cluster, Connection, LogWriter
from trainjob.lifecycle import JobReference, Listener, wait_async

LINES = 3
_ORDINARY_USER = 54321  # the limit does not apply to root
_LIMITED_SECONDS = 3.0
_MAX_SECONDS = 90.0  # after that, a wait hangs


def become_ordinary_user() -> None:
    """Change the user of the process, which can still read root's files (setfsuid(2))."""
    if os.getuid() == 0:
        os.setresuid(_ORDINARY_USER, _ORDINARY_USER, 0)
        ctypes.CDLL(None).setfsuid(0)


def limit_threads(soft: int) -> None:
    """Set the kernel's limit of the threads of this process' user; the running ones continue."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def is_enforced() -> bool:
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return True
    return False


async def follow(cluster: Cluster, writer: LogWriter, reference: JobReference, written: list[str]) -> str:
    """Return the phase in which a TrainJob has ended, and the number of its log lines."""
    log, before = writer.open(written.append), len(written)
    try:
        outcome = await asyncio.wait_for(
            wait_async(cluster, reference, listener=Listener(on_log=log.put)), _MAX_SECONDS
        )
        await log.finish_async()
    except Exception as error:  # noqa: BLE001 - the test compares the text
        return f"{type(error).__name__}: {error}"
    return f"{outcome.phase.value}, {len(written) - before} lines"


async def wait_until_all_run(logs: Iterable[Sequence[str]]) -> None:
    while any(len(lines) < LINES for lines in logs):  # noqa: ASYNC110 - other threads add the lines
        await asyncio.sleep(0.05)


async def main(server: str, token_file: str, references: str) -> None:
    ending, later = ([JobReference.from_dict(each) for each in group] for group in json.loads(references))
    cluster, writer = Cluster(Connection(server=server, token_file=token_file, namespace="default")), LogWriter()
    logs: list[list[str]] = [[] for _ in ending]
    waits = [asyncio.ensure_future(follow(cluster, writer, *each)) for each in zip(ending, logs, strict=True)]
    await wait_until_all_run(logs)
    limit_threads(1)
    print("limited" if is_enforced() else "not enforced", flush=True)
    while not cluster.outcome_executor.is_stalled:  # noqa: ASYNC110 - no event reports it
        await asyncio.sleep(0.05)
    await asyncio.sleep(_LIMITED_SECONDS)
    is_stalled = cluster.outcome_executor.is_stalled
    limit_threads(resource.getrlimit(resource.RLIMIT_NPROC)[1])
    results = await asyncio.gather(*waits)
    results_later = await asyncio.gather(*(follow(cluster, writer, each, []) for each in later))
    print(json.dumps([is_stalled, results, results_later]), flush=True)


if __name__ == "__main__":
    become_ordinary_user()
    asyncio.run(main(*sys.argv[1:]))
