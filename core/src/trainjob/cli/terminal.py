"""Functions that all commands share: connection, output and exit codes.

Data for programs goes to standard output, with nothing else. If standard output carries data, messages for people go to
standard error.

Everything is printed by functions of this module, which show control characters as text. This does not depend on
whether the output is a terminal: what goes to a pipe or a file often reaches a terminal later, for example through
`grep` or `tee`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NoReturn

import typer
from rich import markup
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from trainjob.control_characters import escape_control_characters
from trainjob.errors import ExitCode, InvalidSpec, TrainJobError

if TYPE_CHECKING:
    from trainjob.client import Cluster, Connection

EXIT_CODES: Mapping[ExitCode, str] = {
    ExitCode.DONE: "success",
    ExitCode.FAILED: "the command failed: no connection, no permission, or no such TrainJob",
    ExitCode.INVALID_REQUEST: "the input is invalid, or the cluster rejects it",
    ExitCode.JOB_FAILED: "the TrainJob failed",
    ExitCode.STILL_RUNNING: "the wait timed out, and the TrainJob may still run",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C, 141 by SIGPIPE, 143 by SIGTERM",
}

JSON = typer.Option("--json", help="Print JSON instead of text.", show_default=False)
KEEP_COLORS = typer.Option(
    "--keep-colors",
    help="Keep the colors of log lines. No effect if NO_COLOR is set. All other control characters are shown as text.",
    show_default=False,
)

_connections: list[Connection] = []  # the connection of this process, once the root options are parsed


def run(command: typer.Typer, arguments: Sequence[str]) -> NoReturn:
    """Run the command and end the process.

    An error of this project, or of the operating system, is printed on standard error: as text, or with `--json` as one
    JSON object. Any other exception is a bug and keeps its traceback.

    If the reader of the output is gone, as with `| head -1`, SIGPIPE ends the process without a message. `cat` and
    kubectl end in the same way.

    Args:
        command: the tree of commands.
        arguments: arguments of the command line, without the program's name.
    """
    _prepare_streams()
    warnings.showwarning = lambda message, *_: error_console().print(f"[yellow]warning:[/] {escape(str(message))}")
    try:
        exit_code = _run(command, arguments)
    except BrokenPipeError:
        _end_by_sigpipe()
    except KeyboardInterrupt:
        exit_code = ExitCode.INTERRUPTED
    sys.exit(exit_code)


def _prepare_streams() -> None:
    """Open closed standard streams, and set how standard output encodes characters.

    It replaces characters that its encoding lacks. Python itself escapes such characters on standard error.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - open until the end
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _run(command: typer.Typer, arguments: Sequence[str]) -> Any:
    """Run the command, print its error, and return its exit code.

    Raises:
        BrokenPipeError: the reader of standard output or standard error is gone.
    """
    as_json = "--json" in arguments
    try:
        command(list(arguments), prog_name="trainjob")
        return ExitCode.DONE
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer 0.29 ends with 1
            raise end.__context__ from None
        return end.code
    except TrainJobError as error:
        print_error(error, as_json=as_json)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        print_error(TrainJobError(_describe_os_error(error)), as_json=as_json)
        return ExitCode.FAILED
    except UnicodeEncodeError as error:  # bytes of an argument or of an environment variable, for example
        given = ascii(error.object[error.start : error.end])
        print_error(TrainJobError(f"a text that was given is not UTF-8: it has {given}"), as_json=as_json)
        return ExitCode.FAILED


def _describe_os_error(error: OSError) -> str:
    place = f": {error.filename}" if error.filename else ""
    return f"the operating system refuses to read or write: {error.strerror or error}{place}"


def _discard_output() -> None:
    """Discard what could not be written to standard output.

    Otherwise Python tries to write it again at the end of the process.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _end_by_sigpipe() -> NoReturn:
    """End the process as the signal SIGPIPE ends a program that does not handle it."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)  # not reached: the signal has ended the process


def set_connection(connection: Connection) -> None:
    """Use this connection for every cluster that [open_cluster][] opens in this process."""
    _connections[:] = [connection]


@contextlib.contextmanager
def open_cluster() -> Iterator[Cluster]:
    """Yield a connection to the cluster of `--kubeconfig` and `--context`, and close it.

    Raises:
        NoClusterConfigured: no configuration of a cluster was found.
    """
    from trainjob.client import connect

    with contextlib.closing(connect(*_connections)) as opened:
        yield opened


class _EscapingConsole(Console):
    """A console that shows the control characters of all texts as text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of an object; only rich's own control codes keep control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_control_characters(segment.text))

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError; rich itself would end the process with exit code 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console() -> Console:
    """Return a console for standard output.

    It uses colors and live displays on a terminal only, and does not break long lines.
    """
    return _EscapingConsole(soft_wrap=True, highlight=False)


def error_console() -> Console:
    """Return a console for standard error, with the same settings as [console][]."""
    return _EscapingConsole(stderr=True, soft_wrap=True, highlight=False)


def escape(text: str) -> str:
    """Return a text as markup that shows its brackets and its control characters.

    The console would escape control characters, too, but only after it has measured the text.
    """
    return markup.escape(escape_control_characters(text))


def escape_line(line: str, *, keep_colors: bool) -> str:
    """Return a line with its control characters as text; NO_COLOR disables `keep_colors`."""
    return escape_control_characters(line, keep_colors=keep_colors and not os.environ.get("NO_COLOR"))


def print_line(line: str, *, keep_colors: bool = False, file: IO[str] | None = None) -> None:
    """Write a line at once, by default to standard output.

    Args:
        line: the line, whose control characters are shown as text.
        keep_colors: whether its colors stay, unless NO_COLOR is set.
        file: destination.
    """
    print(escape_line(line, keep_colors=keep_colors), file=file, flush=True)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON in ASCII on standard output, for programs."""
    print(_to_json(value, indent), flush=True)


def print_yaml(*documents: Mapping[str, Any]) -> None:
    """Print objects as YAML on standard output, as input for `kubectl apply -f -`."""
    print(to_yaml(*documents), end="", flush=True)


def to_yaml(*documents: Mapping[str, Any]) -> str:
    """Return objects as YAML, in the form that [print_yaml][] prints."""
    from trainjob.spec.yaml_output import dump_yaml

    return dump_yaml(documents)


def print_error(error: TrainJobError, *, as_json: bool) -> None:
    """Print an error on standard error: `error: ...` with a hint, or one JSON object.

    The object has `error` (the class, such as `NotFound`), `message`, `hint`, `retryable` and `exit_code`. With
    `InvalidSpec`, it also has `problems`, each with `field`, `value` and `allowed`.
    """
    if not as_json:
        error_console().print(f"[bold red]error:[/] {escape(str(error))}")
        return
    report: dict[str, Any] = {
        "error": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "exit_code": error.exit_code,
    }
    if isinstance(error, InvalidSpec):
        report["problems"] = [
            {"kind": one.kind.value, "field": one.field, "value": one.value, "allowed": one.allowed}
            for one in error.problems
        ]
    print(_to_json(report), file=sys.stderr, flush=True)


def _to_json(value: Any, indent: int | None = 2) -> str:
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")  # the only control character that json leaves
