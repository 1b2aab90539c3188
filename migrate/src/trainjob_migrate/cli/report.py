"""`trainjob migrate report`: what the conversion would do with every field."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from trainjob.cli import terminal
from trainjob.manifest import Dialect
from trainjob_migrate import Launch
from trainjob_migrate.cli import output, sources
from trainjob_migrate.report import format_markdown

__all__ = ["report"]


class Format(str, Enum):
    """The output format of the report."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"


_FORMAT = typer.Option("--format", help="How it is told.")


def report(
    paths: Annotated[list[str] | None, sources.PATHS] = None,
    from_cluster: Annotated[bool, sources.FROM_CLUSTER] = False,
    namespace: Annotated[str, sources.NAMESPACE] = "",
    all_namespaces: Annotated[bool, sources.ALL_NAMESPACES] = False,
    launch: Annotated[Launch, sources.LAUNCH] = Launch.ENVIRONMENT,
    dialect: Annotated[Dialect, sources.DIALECT] = Dialect.V2_2,
    output_format: Annotated[Format, _FORMAT] = Format.TERMINAL,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Tell each job's class (simple, standard, complex; or refused), what to know of it, and each field's fate.

    As JSON: an object with `summary`, `jobs` and `unread`; see `trainjob_migrate.report.Survey.to_dict`. What could be
    a secret is `***`. The exit code is 0, whatever is told.

    Args:
        paths: files, folders, or `-`.
        from_cluster: the jobs of a cluster instead.
        namespace: where, for a cluster.
        everywhere: in all of a cluster's namespaces.
        launch: how a script that reads RANK and WORLD_SIZE would get them.
        dialect: the shape of the TrainJob API.
        form: how it is told.
        as_json: the same as `--format json`.

    Raises:
        InvalidSpec: there is no such file.
        ClusterError: the cluster can't be asked.
    """
    told = sources.convert_sources(
        paths or (),
        from_cluster=from_cluster,
        namespace=namespace,
        all_namespaces=all_namespaces,
        dialect=dialect,
        launch=launch,
    )
    if as_json or output_format is Format.JSON:
        terminal.print_json(told.to_dict())
    elif output_format is Format.MARKDOWN:
        print(format_markdown(told), end="", flush=True)
    else:
        console = terminal.console()
        for job in told.jobs:
            output.print_job(console, job)
            output.print_findings(console, job)
            output.print_fields(console, job)
        output.print_unread(console, told)
        output.print_totals(console, told)
