"""A training without torch: ranks that make steps together over a barrier, and one fault that a test plants.

Usage: stub_training.py PORT FIRST_RANK RANKS WORLD_SIZE STEPS FAULT FAULTY_RANK. It starts the ranks of one node, as
torchrun does, and waits until all have ended. A file name of torch in the stacks stands for torch's own function.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

FAULT_STEP = 5
_SECONDS_OF_STEP = 0.02
_LONG_WORK = 3.5  # times the limit of silence


def _define(file: str, source: str, **names: Any) -> dict[str, Any]:
    """Return the functions of a source whose frames have the file name of another program."""
    exec(compile(source, f"/usr/lib/python3/site-packages/{file}", "exec"), names)  # noqa: S102
    return names


def _train(port: int, rank: int, steps: int, fault: str) -> None:
    from trainjob.heartbeats import begin, finish, report_step

    connection = socket.create_connection(("127.0.0.1", port))
    torch = _define(
        "torch/distributed/distributed_c10d.py",
        "def all_reduce():\n    connection.sendall(b'x')\n    assert connection.recv(1)\n",
        connection=connection,
    )
    begin()
    for step in range(1, steps + 1):
        time.sleep(_SECONDS_OF_STEP)
        if fault and step == FAULT_STEP:
            FAULTS[fault]()
        torch["all_reduce"]()
        report_step(step)
        if rank == 0:
            print({"loss": 1 / step, "epoch": step / steps, "step": step}, flush=True)
    finish()
    if fault == "merge":
        time.sleep(_long())


def _long() -> float:
    return _LONG_WORK * float(os.environ["SILENCE"])


def sleep_for_ever() -> None:
    time.sleep(10_000)


def wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def load_data() -> None:
    """Wait for a worker that never gets its file open, as torch's data loader does."""
    folder = tempfile.mkdtemp()
    os.mkfifo(f"{folder}/rows")
    readable, writable = os.pipe()
    if not os.fork():
        os.close(readable)
        read_rows(f"{folder}/rows")
    os.close(writable)
    _define(
        "torch/utils/data/dataloader.py",
        "def __next__():\n    read(readable, 1)\n__next__()\n",
        read=os.read,
        readable=readable,
    )


def read_rows(path: str) -> None:
    with open(path) as rows:  # noqa: PTH123 - it blocks
        rows.read()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def save() -> None:
    """Write one large file for longer than the limit, in calls of the same line."""
    until = time.monotonic() + _long()
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < until:
            file.seek(0)
            file.write(bytes(1 << 22))


def evaluate() -> None:
    """Report life without a step, by the same line."""
    from trainjob.heartbeats import report_life

    until = time.monotonic() + _long()
    while time.monotonic() < until:
        time.sleep(0.05)
        report_life()


def compute() -> None:
    """Do something else all the time, as a compilation does."""
    until = time.monotonic() + _long()
    while time.monotonic() < until:
        for number in range(200):
            source = "def build():\n" + "    pass\n" * number + "    sleep(0.002)\nbuild()\n"
            _define(f"site/kernel_{number}.py", source, sleep=time.sleep)


def compute_natively() -> None:
    """Compute in C for longer than the limit, by the same line."""
    until = time.monotonic() + _long()
    while time.monotonic() < until:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)


def merge() -> None:
    """Do nothing here; what is slow follows the last step."""


FAULTS = {
    "sleep": sleep_for_ever,
    "lock": wait_for_lock,
    "loader": load_data,
    "stop": stop,
    "kill": end,
    "save": save,
    "evaluation": evaluate,
    "compilation": compute,
    "native": compute_natively,
    "merge": merge,
}


def main(port: int, first: int, ranks: int, world_size: int, steps: int, fault: str, faulty_rank: int) -> int:
    """Run the ranks of one node, and return the largest exit code."""
    own = [sys.executable, str(Path(__file__).resolve()), "--rank"]
    processes: list[subprocess.Popen[bytes]] = []

    def end_ranks(number: int, _frame: Any) -> None:
        for process in processes:
            process.kill()
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end_ranks)
    for rank in range(first, first + ranks):
        given = [str(port), str(rank), str(steps), fault if rank == faulty_rank else ""]
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world_size)}
        processes.append(subprocess.Popen([*own, *given], env=env))
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        _train(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        port, first, ranks, world_size, steps = (int(word) for word in sys.argv[1:6])
        sys.exit(main(port, first, ranks, world_size, steps, sys.argv[6], int(sys.argv[7])))
