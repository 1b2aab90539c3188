"""Callback of transformers' Trainer: progress, heartbeats, checkpoints, a save after SIGTERM, divergence."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainjob.errors import DIVERGED, Diverged, InvalidSpec, Problem
from trainjob.frameworks.checkpoint_owner import find_owner
from trainjob.frameworks.transformers.checkpoints import is_of_another_training, remove_mark
from trainjob.frameworks.transformers.new_hyperparameters import keep_hyperparameters
from trainjob.frameworks.transformers.start import OWNER_VARIABLE
from trainjob.frameworks.transformers.termination_vote import TerminationVote
from trainjob.heartbeats import begin, finish, report_life, report_step

if TYPE_CHECKING:
    from trainjob.frameworks.copier_process import CopierProcess

__all__ = ["CheckpointCallback"]

# A training in fp16 leaves out a step whose gradients overflow, often several at its start.
_MAX_NON_FINITE_LOGS = 3


class CheckpointCallback(TrainerCallback):  # type: ignore[misc]
    """Callback for one run, in each of its processes.

    transformers' own checkpoint after SIGTERM (`enable_jit_checkpoint`) is not used. It saves in the processes that got
    the signal only, which waits forever for the others when one node of several is drained. The script then ends with
    exit code 0 although the training is not complete (transformers 5.23, trainer_jit_checkpoint.py).
    """

    def __init__(self, owner: str | None = None, copier: CopierProcess | None = None) -> None:
        """Create a callback.

        Args:
            owner: digest of the training, as of a `CheckpointOwner`; empty for one that cannot resume. None means that
                of a function with `CustomTrainer(resume=True)`.
            copier: process that copies the checkpoints, in the process of rank 0; None for no copies.
        """
        described = os.environ.get(OWNER_VARIABLE) if owner is None else None
        self._owner = find_owner(described).digest if described else owner or ""
        self._copier = copier
        self._vote: Any = None
        self._metrics: dict[str, float] = {}
        self._step, self._epoch, self._first_step = 0, 0.0, 0
        self._starts_from_parent = False
        self._non_finite_logs = 0
        self._values: dict[str, float] = {}  # of the last line with a loss
        self._last_finite = "no step had a finite loss"

    def summary(self) -> dict[str, Any]:
        """Return the last step, epoch and metrics, as JSON values."""
        return {"step": self._step, "epoch": self._epoch, "metrics": self._metrics}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any) -> None:
        """Prepare the agreement of all processes on a save, and handle SIGTERM.

        Raises:
            InvalidSpec: the checkpoint of another training has all steps of this one already.
        """
        begin(reports_steps=True)
        # A resumed state has those of the earlier attempt, and this attempt may have others (transformers 5.23).
        state.compute_steps(args, state.max_steps)
        self._step, self._epoch, self._first_step = state.global_step, round(state.epoch or 0.0, 4), state.global_step
        if self._starts_from_parent and state.global_step >= state.max_steps:
            rule = f"nothing is left to train: the steps count on, and this training has {state.max_steps}; give more"
            raise InvalidSpec(Problem("resume_from", f"step {state.global_step}", rule))
        for logs in () if self._starts_from_parent else state.log_history:
            self._metrics |= _select_numbers({name: value for name, value in logs.items() if name != "step"})
        self._vote = TerminationVote()
        if self._owner:
            self._vote.listen()

    def starts_from_parent(self, checkpoint: str) -> bool:
        """Return, and remember, whether a loaded checkpoint is of another training."""
        self._starts_from_parent = bool(self._owner) and is_of_another_training(Path(checkpoint), self._owner)
        return self._starts_from_parent

    def on_log(
        self,
        _args: TrainingArguments,
        state: TrainerState,
        _control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Add the position to the line that transformers prints, and check the metrics.

        Raises:
            Diverged: loss and gradients of several lines were not finite, in all processes of the training.
        """
        report_life()
        if logs is None:
            return
        if "loss" in logs:
            self._check_divergence(state.global_step, logs)
        self._step, self._epoch = state.global_step, round(state.epoch or 0.0, 4)
        if "train_loss" in logs and self._step == self._first_step:
            del logs["train_loss"]  # transformers would report 0 for an attempt without a step
        self._metrics |= _select_numbers(logs)
        logs |= {"step": state.global_step, "max_steps": state.max_steps, "num_train_epochs": state.num_train_epochs}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report the step, and save now if any process got SIGTERM."""
        report_step(state.global_step)
        if self._owner and self._vote.passes():
            control.should_save = True
        self._prepare_save(args, state, control)

    def on_substep_end(
        self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Report a batch of a step that has several."""
        report_life()

    def on_prediction_step(
        self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Report a batch of an evaluation."""
        report_life()

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Prepare a save at the end of an epoch."""
        self._prepare_save(args, state, control)

    def on_save(self, args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any) -> None:
        """Record that the checkpoint is complete, and end if a process got SIGTERM."""
        report_life()
        if self._owner:
            self._vote.complete_save(_find_folder(args, state), self._owner, self._copier)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any) -> None:
        """End the heartbeats, and check that the last step left finite weights.

        Raises:
            Diverged: the last logged loss or gradient is not finite.
        """
        finish()
        has_overflow = not args.fp16 and not math.isfinite(self._values.get("grad_norm", 0.0))
        if self._non_finite_logs or has_overflow:
            self._raise_diverged(state.global_step)

    def _check_divergence(self, step: int, logs: Mapping[str, Any]) -> None:
        # The loss alone is not enough: transformers subtracts NaN from NaN after each line, so one such loss makes all
        # later ones NaN (transformers 5.23, trainer.py, _maybe_log_save_evaluate).
        self._values = {name: logs[name] for name in ("loss", "grad_norm", "learning_rate") if name in logs}
        if any(math.isfinite(logs[name]) for name in ("loss", "grad_norm") if name in logs):
            self._non_finite_logs = 0
            if math.isfinite(logs["loss"]):
                self._last_finite = f"the last finite loss is {logs['loss']:.4g} at step {step}"
            return
        self._non_finite_logs += 1
        if self._non_finite_logs >= _MAX_NON_FINITE_LOGS:
            self._raise_diverged(step)

    def _raise_diverged(self, step: int) -> NoReturn:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self._values.items())
        raise Diverged(f"{DIVERGED}: {shown} at step {step}; {self._last_finite}")

    def _prepare_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        """Remove the mark of a checkpoint that will be overwritten.

        A pod that was deleted may have saved and marked it while this pod, its replacement, had already started.
        """
        if self._owner and control.should_save and state.is_world_process_zero:
            remove_mark(_find_folder(args, state))


def _end_after_last_step(trainer_class: Any) -> None:
    """Let an attempt that resumes from the last step train no further one.

    transformers checks the number of steps after a step (5.6 to 5.23, trainer.py, `_run_epoch`).
    """
    run_epoch = getattr(trainer_class, "_run_epoch", None)
    if run_epoch is None:
        return

    def run(self: Any, *args: Any, **options: Any) -> Any:
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return None
        return run_epoch(self, *args, **options)

    trainer_class._run_epoch = run  # noqa: SLF001 - no callback can end the loop before its first step


def _use_new_hyperparameters(trainer_class: Any) -> None:
    """Let a training that starts from another one's checkpoint keep its own hyperparameters.

    transformers restores them with the state of the optimizer and the schedule (5.23, trainer.py).
    """
    load = trainer_class._load_optimizer_and_scheduler  # noqa: SLF001 - no callback runs before and after it

    def load_state(self: Any, checkpoint: str | None) -> None:
        callbacks = [each for each in self.callback_handler.callbacks if isinstance(each, CheckpointCallback)]
        known = [each.starts_from_parent(checkpoint) for each in callbacks] if checkpoint else []
        if not any(known):
            load(self, checkpoint)
            return
        # A metric of other rows is not comparable, and the folder of the best checkpoint is not of this training.
        self.state.best_metric = self.state.best_model_checkpoint = self.state.best_global_step = None
        with keep_hyperparameters(self.optimizer, self.lr_scheduler, self.state.global_step):
            load(self, checkpoint)

    trainer_class._load_optimizer_and_scheduler = load_state  # noqa: SLF001


_end_after_last_step(Trainer)
_use_new_hyperparameters(Trainer)


def _find_folder(args: TrainingArguments, state: TrainerState) -> Path:
    """Return the folder of the checkpoint after the current step."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _select_numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a line of transformers' log."""
    names = [name for name in logs if name not in ("epoch", "total_flos")]
    found = {name: logs[name] for name in names if isinstance(logs[name], int | float)}
    return {name: value for name, value in found.items() if math.isfinite(value)}
