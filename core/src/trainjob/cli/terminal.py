"""What every command shares: its cluster, where it writes, and how it ends.

What a program may read goes to standard output, alone. What a person is told on the way goes to standard error where
standard output carries data.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from trainjob.errors import ExitCode, InvalidSpec, TrainJobError

if TYPE_CHECKING:
    from trainjob.client import Cluster, Connection

EXIT_CODES: Mapping[ExitCode, str] = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "it could not be done: no connection, no permission, no such TrainJob",
    ExitCode.INVALID_REQUEST: "the request is wrong",
    ExitCode.JOB_FAILED: "the TrainJob failed",
    ExitCode.STILL_RUNNING: "stopped waiting, while the TrainJob may still run",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}

JSON = typer.Option("--json", help="For programs.", show_default=False)

_connections: list[Connection] = []  # of this process: the root options, once they are read


def run(command: typer.Typer, arguments: Sequence[str]) -> NoReturn:
    """Run the command and end the process.

    Errors of ours are told on standard error: in words, or with `--json` as one JSON object. Others are bugs and keep
    their traceback.

    Args:
        command: the tree of commands.
        arguments: of the command line, without the program's name.
    """
    as_json = "--json" in arguments
    warnings.showwarning = lambda message, *_: errors().print(f"[yellow]warning:[/] {escape(str(message))}")
    try:
        command(list(arguments), prog_name="trainjob")
    except TrainJobError as error:
        tell_error(error, as_json=as_json)
        sys.exit(error.exit_code)
    sys.exit(ExitCode.DONE)


def use(connection: Connection) -> None:
    """Have every [cluster][] of this process opened with this connection."""
    _connections[:] = [connection]


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """The cluster of `--kubeconfig` and `--context`; closed at the end.

    Raises:
        NoClusterConfigured: there is nothing to connect with.
    """
    from trainjob.client import connect

    with contextlib.closing(connect(*_connections)) as opened:
        yield opened


def console() -> Console:
    """Standard output: colours and live displays on a terminal only, long lines left as they are."""
    return Console(soft_wrap=True, highlight=False)


def errors() -> Console:
    """Standard error, alike."""
    return Console(stderr=True, soft_wrap=True, highlight=False)


def print_json(value: Any) -> None:
    """A value as JSON on standard output, for programs."""
    print(json.dumps(value, indent=2), flush=True)


def print_yaml(*documents: Mapping[str, Any]) -> None:
    """Objects as YAML on standard output, as `kubectl apply -f -` takes them."""
    print(as_yaml(*documents), end="", flush=True)


def as_yaml(*documents: Mapping[str, Any]) -> str:
    """Objects as YAML, as they would be printed."""
    import yaml

    text: str = yaml.safe_dump_all(documents, sort_keys=False, width=sys.maxsize)
    return text


def tell_error(error: TrainJobError, *, as_json: bool) -> None:
    """An error on standard error: `error: ...` with what to do, or one JSON object.

    The object has `error` (the class, such as `NotFound`), `message`, `hint`, `retryable` and `exit_code`; with
    `InvalidSpec` also `problems`, each with `field`, `value` and `allowed`.
    """
    if not as_json:
        errors().print(f"[bold red]error:[/] {escape(str(error))}")
        return
    told: dict[str, Any] = {
        "error": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "exit_code": error.exit_code,
    }
    if isinstance(error, InvalidSpec):
        told["problems"] = [{"field": one.field, "value": one.value, "allowed": one.allowed} for one in error.problems]
    print(json.dumps(told, indent=2), file=sys.stderr, flush=True)
