"""The `trainjob` command.

Importing this module is cheap: it imports typer and rich only when the command runs.
"""

from __future__ import annotations

from trainjob.installation import INSTALLATION_PAGE

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of this process, and exit.

    The exit codes are in `trainjob.cli.terminal`.
    """
    import sys

    try:
        from trainjob.cli import terminal
        from trainjob.cli.application import application

        terminal.run(application(), sys.argv[1:])
    except ModuleNotFoundError as error:
        sys.exit(f"{error}\n  -> install trainjob with the extra `cli`: {INSTALLATION_PAGE}")
    except KeyboardInterrupt:  # during the imports
        sys.exit(130)
