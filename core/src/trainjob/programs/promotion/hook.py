"""A user's command that makes a model the served one, for services that KServe does not run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence

from trainjob.programs.promotion.cluster_api import ChangedMeanwhile
from trainjob.programs.promotion.kserve import RolloutFailed
from trainjob.programs.promotion.record import PromotionRecord, Served

__all__ = ["MODEL_VARIABLE", "CommandHook"]

MODEL_VARIABLE = "MODEL_URI"
"""Environment variable with the address of the model that the command makes the served one."""


class CommandHook:
    """A command that makes the model in the variable `MODEL_URI` the served one.

    It is run again with the same model if a promotion was killed, and with the earlier model to roll back.

    Args:
        name: name of the service, for messages.
        command: the command; without one, only a registry's alias names the model to serve.
        record: the promotions, which name the model that is served.
        seconds: longest time of one run.
    """

    def __init__(self, name: str, command: Sequence[str], record: PromotionRecord, seconds: float) -> None:
        self._name, self._command, self._record, self._seconds = name, list(command), record, seconds

    def exists(self) -> bool:
        """Return whether a model was promoted."""
        return bool(self._record.promotions)

    def read(self) -> Served:
        """Return the model that the newest promotion has left."""
        return self._record.served

    def read_marks(self) -> dict[str, str]:
        """Return no marks: the command ends when the model is served."""
        return {}

    def check(self, wanted: Served) -> None:
        """Accept every request."""

    def apply(self, wanted: Served, check: Callable[[], None]) -> None:
        """Run the command.

        If a rollback has ended the promotion meanwhile, the command runs again with the model of the record.

        Raises:
            ChangedMeanwhile: `check` raises it.
            RolloutFailed: it fails, or takes too long.
        """
        check()
        if not self._command:
            return
        self._run(wanted)
        try:
            check()
        except ChangedMeanwhile:
            self._record.read()
            if self._record.served != wanted:
                self._run(self._record.served)
            raise

    def _run(self, wanted: Served) -> None:
        try:
            ended = subprocess.run(
                self._command, env={**os.environ, MODEL_VARIABLE: wanted.model}, timeout=self._seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise RolloutFailed(f"the command did not end within {self._seconds:g} s") from error
        except OSError as error:
            raise RolloutFailed(f"the command cannot be run: {error}") from error
        if ended.returncode:
            raise RolloutFailed(f"the command ended with code {ended.returncode}")

    def describe_wait(self, wanted: Served, marks: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return nothing: the model is served."""
        return ""

    def wait_for_change(self) -> None:
        """Return at once."""

    def __str__(self) -> str:
        return f"service {self._name}"
