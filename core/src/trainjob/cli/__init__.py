"""The `trainjob` command. Importing this costs nothing; typer and rich are imported when it runs."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Runs the command with the arguments of this process, and ends it with an exit code of `trainjob.cli.terminal`."""
    import sys

    try:
        from trainjob.cli import terminal
        from trainjob.cli.application import application

        terminal.run(application(), sys.argv[1:])
    except ModuleNotFoundError as error:
        sys.exit(f"{error}\n  -> install what the command needs: pip install 'trainjob[cli]'")
    except KeyboardInterrupt:  # while it is being imported
        sys.exit(130)
