"""Checkpoints of a PyTorch training in a Python function, from which the next attempt continues.

A function with `CustomTrainer(resume=True)` gets this module in its pod:

    def train():
        from trainjob.checkpoint import resume_training
        ...
        training = resume_training("/workspace/output", model=model, optimizer=optimizer, scheduler=scheduler)
        for step in training.steps(1000, save_every=100):
            ...  # one optimizer step with the samples of this step

It needs PyTorch as soon as `resume_training` is called. transformers' Trainer has a loop of its own:
[trainjob.frameworks.transformers][] is for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.checkpoint_owner import KEPT, find_owner
from trainjob.frameworks.transformers.checkpoints import discard_checkpoint, discard_checkpoints, get_step
from trainjob.frameworks.transformers.start import OWNER_VARIABLE, claim_output
from trainjob.heartbeats import begin, finish, report_step

if TYPE_CHECKING:
    from trainjob.frameworks.training_state import TrainingState
    from trainjob.frameworks.transformers.termination_vote import TerminationVote

__all__ = ["Training", "resume_training"]


class Training:
    """A training that saves checkpoints; [resume_training][] returns it."""

    def __init__(self, output: Path, owner: str, state: TrainingState, vote: TerminationVote, done: int) -> None:
        self._output, self._owner = output, owner
        # The state is deleted before the vote, which has the last reference to the process group.
        self._state, self._vote = state, vote
        self._done, self._total = done, 0

    def steps(self, total: int, *, save_every: int) -> Iterator[int]:
        """Yield the numbers of the steps that remain, counted from 0, and save checkpoints.

        Choose the samples of a step by its number. An attempt then trains with those that an unbroken training would
        have, also if another number of processes shares them.

        After SIGTERM in any process, all processes finish their step, save, and end with exit code 143. A loop that
        ends by `break` or an exception saves nothing more.

        Args:
            total: optimizer steps in the whole training.
            save_every: optimizer steps between two checkpoints. There is also one after the last step. The last two
                are kept, and when the training is complete, the last one.

        Raises:
            ValueError: `save_every` is less than 1.
            OSError: the folder cannot be written.
        """
        if save_every < 1:
            raise ValueError(f"save_every is {save_every}: it must be at least 1")
        return self._run(total, save_every)

    def log(self, **values: Any) -> None:
        """Print values of the current step, such as `loss`, in the process of rank 0.

        The progress of the TrainJob then shows the step and these values.

        Args:
            **values: numbers, or tensors with one element.
        """
        if not self._vote.is_first:
            return
        step = min(self._done + 1, self._total)
        # In the form of transformers' Trainer, in which an epoch is required: the training is one.
        position = {"epoch": round(step / self._total, 4), "step": step, "max_steps": self._total}
        numbers = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        print({**numbers, **position, "num_train_epochs": 1}, flush=True)

    def _run(self, total: int, save_every: int) -> Iterator[int]:
        self._total = total
        begin(reports_steps=True)
        self._state.restore_random_numbers()
        if self._owner:
            self._vote.listen()
            self._discard_older()  # the previous attempt may have been killed before it did so
        try:
            while self._done < total:
                yield self._done
                self._done += 1
                report_step(self._done)
                if self._owner and (self._vote.passes() or self._done == total or self._done % save_every == 0):
                    self._save()
        finally:
            finish()
            self._vote.stop_listening()

    def _save(self) -> None:
        checkpoint = self._output / f"checkpoint-{self._done}"
        if self._vote.is_first:
            # A pod that was deleted may have saved it while this pod, its replacement, had already started.
            discard_checkpoint(checkpoint)
        self._vote.wait_for_all()
        self._state.save(checkpoint)
        self._vote.complete_save(checkpoint, self._owner)
        self._discard_older()

    def _discard_older(self) -> None:
        if self._vote.is_first:
            discard_checkpoints(self._output, self._owner, limit=KEPT if self._done < self._total else 1)


def resume_training(output: str | Path, **objects: Any) -> Training:
    """Load the last complete checkpoint of this training into its objects, if there is one.

    Call it in all processes, after `init_process_group`, and after models are on their device and wrapped in
    `DistributedDataParallel` or `fully_shard`. Models and optimizers are saved so that another number of processes can
    load them. Of all other objects, each process saves its own state; with another number of processes, these states
    must be equal, as those of a scheduler are.

    The global random numbers of Python, NumPy and PyTorch (CPU and CUDA) continue with the first step. With as many
    processes and GPUs as before, the weights are therefore those of an unbroken training, bit for bit, if its
    operations are deterministic. `DistributedDataParallel` on more than two processes needs
    `find_unused_parameters=True` for that: otherwise, it sums the gradients of its first step in another order than
    later (torch 2.13). With another number of processes, the random numbers start anew.

    Without `CustomTrainer(resume=True)`, the training starts from the beginning, and saves no checkpoint.

    Args:
        output: folder that this training alone writes to; on several nodes, a shared folder. Its checkpoints contain
            pickled values, as all of PyTorch's do: whoever can write to the folder can run code in this process.
        **objects: objects by name, which have the methods `state_dict` and `load_state_dict`: models, their optimizers,
            schedulers, a GradScaler, a data loader with a state.

    Raises:
        ImportError: PyTorch is not installed.
        InvalidSpec: the request has `resume_from`.
        TypeError: an object has no state that can be saved.
        RuntimeError: several processes have no process group.
        ValueError: the checkpoint cannot be loaded by this number of processes.
        OutputInUse: another training uses the folder.
        OSError: the folder cannot be read or written.
    """
    try:
        import torch  # noqa: F401 - to distinguish a missing PyTorch from errors of the modules below
    except ModuleNotFoundError as error:
        raise ImportError("trainjob.checkpoint needs PyTorch: use an image that contains torch") from error
    from trainjob.frameworks.training_state import TrainingState
    from trainjob.frameworks.transformers.termination_vote import TerminationVote

    vote = TerminationVote()
    if vote.group is None and (size := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise RuntimeError(f"call torch.distributed.init_process_group() first: this training has {size} processes")
    state, folder = TrainingState(objects, vote.group), Path(output)
    described = os.environ.get(OWNER_VARIABLE)
    if not described:
        if vote.is_first:
            print("starts from the beginning, and saves no checkpoint, because resuming is off", flush=True)
        return Training(folder, "", state, vote, 0)
    # Samples are chosen by the number of the step, so another number of processes is the same training.
    owner = find_owner(described).without("processes")
    if owner.resume_from is not None:
        rule = "resume_training restores the old hyperparameters: use transformers' Trainer, or leave it out"
        raise InvalidSpec(Problem("trainer.resume_from", str(dict(owner.resume_from)), rule))
    checkpoint = vote.agree(lambda: claim_output(folder, owner))
    if checkpoint:
        state.load(Path(checkpoint))
    return Training(folder, owner.digest, state, vote, get_step(Path(checkpoint)) if checkpoint else 0)
