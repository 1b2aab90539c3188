"""`trainjob migrate report`: report the result of the conversion for every field."""

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


_FORMAT = typer.Option("--format", help="Format of the report; --json is the same as --format json.")


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
    """Report the readiness of v1 jobs, and the result of the conversion for each field.

    The class of a job says how much its TrainJob needs: simple, standard, complex or refused. For each field, the
    report has its new place, or why it is dropped or refused. `***` replaces possible secrets. The exit code is 0 even
    if jobs are refused.

    With --json: an object with summary, jobs and read_errors. Each refused field has its file and line as location.

    Example: trainjob migrate report jobs/ --format markdown
    """
    result = sources.convert_sources(
        paths or (),
        from_cluster=from_cluster,
        namespace=namespace,
        all_namespaces=all_namespaces,
        dialect=dialect,
        launch=launch,
    )
    if as_json or output_format is Format.JSON:
        terminal.print_json(result.to_dict())
    elif output_format is Format.MARKDOWN:
        terminal.print_line(format_markdown(result).removesuffix("\n"))
    else:
        console = terminal.console()
        for job in result.jobs:
            output.print_job(console, job)
            output.print_findings(console, job)
            output.print_fields(console, job)
        output.print_read_errors(console, result)
        output.print_totals(console, result)
