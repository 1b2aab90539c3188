"""The `trainjob` command. Importing this costs nothing; typer and rich are imported when it runs."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Runs the command with the arguments of this process; errors of ours end it with code 1 and one readable text."""
    import sys

    from trainjob.errors import TrainJobError

    try:
        from trainjob.cli.application import application
    except ImportError as error:
        sys.exit(f"{error}\n  -> install what the command needs: pip install 'trainjob[cli]'")
    try:
        application()()
    except TrainJobError as error:
        sys.exit(f"error: {error}")
