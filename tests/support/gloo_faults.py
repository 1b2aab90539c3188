"""A training with gloo whose last rank fails in one of several ways, and what its step says about it.

The training is sent as source, so it imports its modules inside.
"""

from __future__ import annotations

from trainjob.status import Category

__all__ = ["CATEGORIES", "HANGS", "describe_fault", "train"]


def train(fault: str) -> None:
    """Make steps until the fault of the last rank, which comes after step 5."""
    import functools
    import os
    import signal
    import threading
    import time
    from collections.abc import Callable

    import torch
    import torch.distributed as dist

    from trainjob.heartbeats import report_step

    class Rows:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> torch.Tensor:
            if fault == "loader" and index == 5 and is_last:
                time.sleep(10_000)
            return torch.ones(1)

    def wait_for_lock() -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def sleep_for_ever() -> None:
        time.sleep(10_000)

    def send(number: int) -> None:
        os.kill(os.getpid(), number)

    faults: dict[str, Callable[[], None]] = {
        "lock": wait_for_lock,
        "sleep": sleep_for_ever,
        "stop": functools.partial(send, signal.SIGSTOP),
        "kill": functools.partial(send, signal.SIGKILL),
    }
    dist.init_process_group("gloo")
    is_last = dist.get_rank() == dist.get_world_size() - 1
    for step, row in enumerate(torch.utils.data.DataLoader(Rows(), num_workers=1), 1):
        if is_last and step == 6 and fault in faults:
            faults[fault]()
        dist.all_reduce(row)
        report_step(step)
        if dist.get_rank() == 0:
            loss = float("nan") if fault == "nan" and step >= 5 else 1 / step
            print({"loss": loss, "learning_rate": 0.1, "epoch": step / 100, "step": step, "max_steps": 100}, flush=True)
        time.sleep(0.05)


HANGS = {
    "lock": r"it is in wait_for_lock \(",
    "sleep": r"it is in sleep_for_ever \(",
    "loader": r"it is in DataLoader.__next__ \(worker: __getitem__ \(",
    "stop": r"its process is stopped by a signal \(SIGSTOP\)",
}
CATEGORIES = {
    **dict.fromkeys(HANGS, Category.HUNG),
    "kill": Category.OUT_OF_MEMORY,
    "nan": Category.DIVERGED,
}
"""Category of each fault."""


def describe_fault(fault: str, ranks: int) -> str:
    """Return the pattern of the text about a fault of the last of the ranks on two nodes."""
    if fault == "kill":
        return rf"rank {ranks - 1}, exit code -9: rank {ranks - 1} was ended by SIGKILL after step 5, "
    if fault == "nan":
        return "the loss is not a finite number at step 9; the last finite one is 0.25 at step 4"
    others = f"{ranks - 1} rank{'s wait' if ranks > 2 else ' waits'} in all_reduce"
    rank = rf"rank {ranks - 1} of {ranks} on node-1 \(\S+\)"
    return rf"{rank} has made no step for \d+ s since step 5: {HANGS[fault]}.*; {others}"
