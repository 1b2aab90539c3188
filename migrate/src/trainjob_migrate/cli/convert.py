"""`trainjob migrate convert`: the converted TrainJobs as YAML, to be applied."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from trainjob.cli import terminal
from trainjob.errors import ExitCode, InvalidSpec, Problem, TrainJobError
from trainjob.manifest import Dialect
from trainjob_migrate import Launch
from trainjob_migrate.cli import output, sources
from trainjob_migrate.report import ConvertedJob, MigrationReport

__all__ = ["convert"]

_TO = typer.Option(help="Write one file for each job into this folder, instead of standard output.", show_default=False)
_OVERWRITE = typer.Option("--overwrite", help="With --to: files that are there already, too.", show_default=False)


def convert(
    paths: Annotated[list[str] | None, sources.PATHS] = None,
    from_cluster: Annotated[bool, sources.FROM_CLUSTER] = False,
    namespace: Annotated[str, sources.NAMESPACE] = "",
    all_namespaces: Annotated[bool, sources.ALL_NAMESPACES] = False,
    to: Annotated[Path | None, _TO] = None,
    overwrite: Annotated[bool, _OVERWRITE] = False,
    launch: Annotated[Launch, sources.LAUNCH] = Launch.ENVIRONMENT,
    dialect: Annotated[Dialect, sources.DIALECT] = Dialect.V2_2,
) -> None:
    """Write the TrainJobs for v1 jobs as YAML, each after the TrainingRuntime that is made for it.

    Nothing is written for a job that is refused; the others are written all the same, and the exit code is 2. What is
    told of them goes to standard error.

    Args:
        paths: files, folders, or `-`.
        from_cluster: the jobs of a cluster instead.
        namespace: where, for a cluster.
        everywhere: in all of a cluster's namespaces.
        to: a folder for files, instead of standard output.
        overwrite: also those that are there.
        launch: how a script that reads RANK and WORLD_SIZE gets them.
        dialect: the shape of the TrainJob API.

    Raises:
        InvalidSpec: there is no such file, or a file is in the way; nothing was written.
        ClusterError: the cluster can't be asked.
    """
    if overwrite and to is None:
        raise InvalidSpec(Problem("--overwrite", "given", "it is for --to"))
    told = sources.convert_sources(
        paths or (),
        from_cluster=from_cluster,
        namespace=namespace,
        all_namespaces=all_namespaces,
        dialect=dialect,
        launch=launch,
    )
    console = terminal.error_console()
    written, twice = _separate_duplicates(told)
    _print_report(told)
    for job, first in twice:
        console.print(f"[bold red]left out[/] {escape(f'{job} ({job.origin}): {first.origin} has one of that name')}")
    if to is None:
        terminal.print_yaml(*(document for job in written for document in _documents(job)))
    else:
        _write_all(to, written, overwrite=overwrite)
    if not told.is_complete or twice:
        raise typer.Exit(ExitCode.INVALID_REQUEST)


def _print_report(report: MigrationReport) -> None:
    console = terminal.error_console()
    for job in report.jobs:
        output.print_job(console, job)
        output.print_findings(console, job)
    output.print_unread(console, report)
    output.print_totals(console, report)


def _separate_duplicates(report: MigrationReport) -> tuple[list[ConvertedJob], list[tuple[ConvertedJob, ConvertedJob]]]:
    """Separate the jobs to write from those whose TrainJob has the name of an earlier one.

    Applying both would replace the first TrainJob by the second.

    Returns:
        The jobs to write; and each duplicate with the job whose name it has.
    """
    first: dict[tuple[str, str], ConvertedJob] = {}
    twice = []
    for job in report.jobs:
        if job.conversion.train_job is None:
            continue
        if first.setdefault(_get_key(job.conversion.train_job), job) is not job:
            twice.append((job, first[_get_key(job.conversion.train_job)]))
    return list(first.values()), twice


def _get_key(train_job: Mapping[str, Any]) -> tuple[str, str]:
    metadata = train_job["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _documents(job: ConvertedJob) -> Iterator[Mapping[str, Any]]:
    yield from filter(None, (job.conversion.runtime, job.conversion.train_job))


def _write_all(folder: Path, jobs: Sequence[ConvertedJob], *, overwrite: bool) -> None:
    """Write one file for each job; each file is complete or does not exist.

    An existing file is replaced only with `overwrite`.

    Raises:
        InvalidSpec: files exist already and `overwrite` is False; nothing is written.
        TrainJobError: a file cannot be written.
    """
    files = {folder / f"{'.'.join(filter(None, _get_key(job.conversion.train_job or {})))}.yaml": job for job in jobs}
    in_the_way = [file for file in files if file.exists()]
    if in_the_way and not overwrite:
        names = ", ".join(file.name for file in in_the_way)
        raise InvalidSpec(
            Problem("--to", repr(str(folder)), f"it has {names} already: add --overwrite, or choose another")
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, job in files.items():
            _write(file, terminal.to_yaml(*_documents(job)), overwrite=overwrite)
    except OSError as error:
        raise TrainJobError(f"{error.filename or folder} can't be written: {error.strerror}") from None


def _write(file: Path, content: str, *, overwrite: bool) -> None:
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(content)
        if overwrite:
            os.replace(name, file)  # noqa: PTH105 - a text is what there is
        else:
            os.link(name, file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108
