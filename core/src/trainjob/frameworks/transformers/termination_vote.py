"""Vote of a training's processes on whether to save and end, because one of them got SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from trainjob.frameworks.transformers.checkpoints import mark_complete

if TYPE_CHECKING:
    from trainjob.frameworks.copier_process import CopierProcess

__all__ = ["TerminationVote"]

_TERMINATED = 128 + signal.SIGTERM  # the exit code that a shell reports for a process that SIGTERM ended


class TerminationVote:
    """Group of all processes, which agree on saves.

    Every process calls the same methods in the same order.

    Attributes:
        group: process group of all processes on CPUs; None for one process without torch.distributed.
        is_first: whether this is the process of rank 0.
    """

    def __init__(self) -> None:
        """Create the group."""
        self.group: Any = None
        self.is_first = True
        self._world: Any = None
        self._got_sigterm = False  # in this process
        self._ends = False  # as all processes have agreed
        self._earlier_handler: Any = signal.SIG_DFL
        if dist.is_initialized():
            self.group = dist.new_group(backend="gloo")
            self.is_first = dist.get_rank() == 0
            # Otherwise the model's reducer may own the last reference when it is deleted. It then waits, with the GIL,
            # for a thread of gloo that needs the GIL, and the process never ends (seen with torch 2.13).
            self._world = dist.group.WORLD

    def listen(self) -> None:
        """Handle SIGTERM: it counts in the next vote."""
        self._earlier_handler = signal.signal(signal.SIGTERM, self._handle_sigterm)

    def stop_listening(self) -> None:
        """Let SIGTERM do what it did before [listen][], unless the processes end because of it."""
        if not self._ends:
            signal.signal(signal.SIGTERM, self._earlier_handler)

    def passes(self) -> bool:
        """Return whether any process got SIGTERM."""
        self._ends = self._got_sigterm
        if self.group is not None:
            vote = torch.tensor([int(self._got_sigterm)])
            dist.all_reduce(vote, op=dist.ReduceOp.MAX, group=self.group)
            self._ends = bool(vote.item())
        return self._ends

    def agree(self, decide: Callable[[], Any]) -> Any:
        """Return the value that `decide` returns in the process of rank 0, in all processes."""
        values = [decide() if self.is_first else None]
        if self.group is not None:
            dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]

    def wait_for_all(self) -> None:
        """Wait until all processes have called this method."""
        if self.group is not None:
            dist.barrier(group=self.group)

    def complete_save(self, checkpoint: Path, owner: str, copier: CopierProcess | None = None) -> None:
        """Mark a checkpoint that all processes have written; end them if the vote passed.

        Args:
            checkpoint: the folder.
            owner: digest of the training.
            copier: process that copies the checkpoint; None for no copy. Before the end, its copy is complete.

        Raises:
            SystemExit: a process got SIGTERM.
            OSError: the folder cannot be written.
        """
        self.wait_for_all()
        if self.is_first:
            mark_complete(checkpoint, owner)
            if copier:
                copier.upload(checkpoint)
        self.wait_for_all()
        if self._ends:
            if self.is_first:
                print(f"SIGTERM: {checkpoint} is complete; the next attempt resumes from it", flush=True)
                if copier:
                    copier.finish()
            raise SystemExit(_TERMINATED)

    def _handle_sigterm(self, *_: Any) -> None:
        self._got_sigterm = True
