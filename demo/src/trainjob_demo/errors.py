"""Error of the command `trainjob demo`."""

from __future__ import annotations

from pathlib import Path

from trainjob.errors import TrainJobError

__all__ = ["DemoError"]

_LAST_LINES = 30


class DemoError(TrainJobError):
    """A demo that cannot run, or a program of it that failed.

    Cause: Airflow, the pipeline or another program of the demo failed, its folder cannot be used, or another demo
    uses it.

    Remedy: Read the last lines in the message, and the log that it names.
    """

    @classmethod
    def from_program(cls, program: str, exit_code: int, log: Path) -> DemoError:
        """Return the error of a program that ended with an exit code other than 0.

        Args:
            program: what the program is, such as `airflow dags test tickets_llm`.
            exit_code: its exit code; the negative number of a signal that ended it.
            log: file with its output, of which the message has the last lines.
        """
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        text = "\n".join(lines) or "(it printed nothing)"
        return cls(f"{program} failed with exit code {exit_code}:\n{text}", hint=f"read the whole log: {log}")
