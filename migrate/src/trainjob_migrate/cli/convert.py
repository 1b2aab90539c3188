"""`trainjob migrate convert`: write the converted TrainJobs as YAML."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainjob.cli import terminal
from trainjob.cli.terminal import escape
from trainjob.errors import ExitCode, InvalidSpec, Problem, TrainJobError
from trainjob.manifest import Dialect
from trainjob_migrate import Launch
from trainjob_migrate.cli import output, sources
from trainjob_migrate.report import ConvertedJob, MigrationReport

__all__ = ["convert"]

_TO = typer.Option(
    metavar="FOLDER", help="Write one file per job to this folder instead of standard output.", show_default=False
)
_OVERWRITE = typer.Option("--overwrite", help="With --to: replace existing files.", show_default=False)


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
    """Convert v1 jobs to TrainJobs, and write them as YAML.

    A TrainJob that needs a TrainingRuntime of its own is written after it. If a job is refused, nothing is written for
    it, the other jobs are written, and the exit code is 2. The findings about fields and the reasons of refusals are on
    standard error.

    Example: trainjob migrate convert jobs/ --to trainjobs/
    """
    if overwrite and to is None:
        raise InvalidSpec(Problem("--overwrite", "given", "it needs --to"))
    report = sources.convert_sources(
        paths or (),
        from_cluster=from_cluster,
        namespace=namespace,
        all_namespaces=all_namespaces,
        dialect=dialect,
        launch=launch,
    )
    console = terminal.error_console()
    written, twice = _separate_duplicates(report)
    _print_report(report)
    for job, first in twice:
        console.print(
            f"[bold red]skipped[/] {escape(f'{job} ({job.origin}): {first.origin} has a job of the same name')}"
        )
    if to is None:
        terminal.print_yaml(
            *(document for documents in _name_files(report, written).values() for document in documents)
        )
    else:
        _write_all(to, _name_files(report, written), overwrite=overwrite)
    if not report.is_complete or twice:
        raise typer.Exit(ExitCode.INVALID_REQUEST)


def _print_report(report: MigrationReport) -> None:
    console = terminal.error_console()
    for job in report.jobs:
        output.print_job(console, job)
        output.print_findings(console, job)
    output.print_read_errors(console, report)
    output.print_totals(console, report)


def _separate_duplicates(report: MigrationReport) -> tuple[list[ConvertedJob], list[tuple[ConvertedJob, ConvertedJob]]]:
    """Separate the jobs to write from those that have the name of an earlier one.

    Applying both would replace the first TrainJob or TrainingRuntime by the second. Jobs inside objects have no name
    of their own, but their runtimes do; equal runtimes can be shared.

    Returns:
        The jobs to write; and each duplicate with the job whose name it has.
    """
    first: dict[tuple[str, ...], tuple[Any, ConvertedJob]] = {}
    written, twice = [], []
    for job in report.jobs:
        if job.conversion.train_job is None:
            continue
        known = [(value, *first.setdefault(key, (value, job))) for key, value in _identify(job)]
        others = [other for own, value, other in known if own != value]
        if others:
            twice.append((job, others[0]))
        else:
            written.append(job)
    return written, twice


def _identify(job: ConvertedJob) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the key of each object of a job, with the value that all jobs with this key share."""
    if job.conversion.train_job and not job.embedded:
        yield ("TrainJob", *_get_key(job.conversion.train_job)), id(job)
    if job.conversion.runtime:
        yield ("TrainingRuntime", *_get_key(job.conversion.runtime)), job.conversion.runtime


def _get_key(train_job: Mapping[str, Any]) -> tuple[str, str]:
    metadata = train_job["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _documents(job: ConvertedJob) -> Iterator[Mapping[str, Any]]:
    yield from filter(None, (job.conversion.runtime, job.conversion.train_job))


def _name_files(report: MigrationReport, jobs: Sequence[ConvertedJob]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the documents of jobs, and of objects with jobs, by the name of their file."""
    files = {
        f"{'.'.join(filter(None, _get_key(job.conversion.train_job or {})))}.yaml": list(_documents(job))
        for job in jobs
        if not job.embedded
    }
    written = {id(job) for job in jobs}
    incomplete = {id(job.embedded.owner) for job in report.jobs if job.embedded and id(job) not in written}
    for owner, documents in report.convert_owners():
        if id(owner) in incomplete:
            continue
        name = ".".join(filter(None, (owner.kind.lower(), owner.namespace, owner.name)))
        number = next(number for number in itertools.count(1) if _number(name, number) not in files)
        files[_number(name, number)] = list(documents)
    return files


def _number(name: str, number: int) -> str:
    """Return the name of a file; objects with generateName can have the same name."""
    return f"{name}.yaml" if number == 1 else f"{name}-{number}.yaml"


def _write_all(folder: Path, contents: Mapping[str, Sequence[Mapping[str, Any]]], *, overwrite: bool) -> None:
    """Write the documents to their files; each file is complete or does not exist.

    An existing file is replaced only with `overwrite`.

    Raises:
        InvalidSpec: files exist already and `overwrite` is False; nothing is written.
        TrainJobError: a file cannot be written.
    """
    files = {folder / name: documents for name, documents in contents.items()}
    existing = [file for file in files if file.exists()]
    if existing and not overwrite:
        names = ", ".join(file.name for file in existing)
        raise InvalidSpec(
            Problem("--to", repr(str(folder)), f"it already has {names}: add --overwrite, or use another folder")
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, documents in files.items():
            _write(file, terminal.to_yaml(*documents), overwrite=overwrite)
    except OSError as error:
        raise TrainJobError(f"cannot write {error.filename or folder}: {error.strerror}") from None


def _write(file: Path, content: str, *, overwrite: bool) -> None:
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(content)
        if overwrite:
            os.replace(name, file)  # noqa: PTH105 - mkstemp returns a string
        else:
            os.link(name, file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108
