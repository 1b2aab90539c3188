"""Error of the command `trainjob demo`."""

from __future__ import annotations

import re
from pathlib import Path

from trainjob.errors import TrainJobError

__all__ = ["DemoError"]

_LAST_LINES = 30
# The error of a failed TrainJob with its indented lines, as the engine's log has it.
_FAILED_JOB = re.compile(r"TrainJob \S+/\S+ failed\b.*(?:\n  .*)*")


class DemoError(TrainJobError):
    """A demo that cannot run, or a program of it that failed.

    Cause: Airflow, the pipeline or another program of the demo failed, its folder cannot be used, or another demo
    uses it.

    Remedy: Read the message, and the log that it names.
    """

    @classmethod
    def from_program(cls, program: str, exit_code: int, log: Path) -> DemoError:
        """Return the error of a program that ended with an exit code other than 0.

        Args:
            program: what the program is, such as `airflow dags test tickets_llm`.
            exit_code: its exit code; the negative number of a signal that ended it.
            log: file with its output. The message has the error of the TrainJob that failed last, otherwise the last
                lines.
        """
        output = log.read_text(encoding="utf-8", errors="replace")
        if failures := _FAILED_JOB.findall(output):
            text = failures[-1]
        else:
            text = "\n".join(output.splitlines()[-_LAST_LINES:]) or "(it printed nothing)"
        return cls(f"{program} failed with exit code {exit_code}:\n{text}", hint=f"read the whole log: {log}")
