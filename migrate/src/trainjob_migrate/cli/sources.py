"""Input of the commands: jobs from files, folders, standard input or a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.terminal import escape
from trainjob.errors import InvalidSpec, Problem
from trainjob.manifest import Dialect
from trainjob.status.nested_fields import get_str
from trainjob_migrate import Launch
from trainjob_migrate.operator_jobs import OperatorJobs
from trainjob_migrate.report import MigrationReport, convert_all
from trainjob_migrate.sources import FoundJob, ReadError, Sources, read_jobs

__all__ = ["ALL_NAMESPACES", "DIALECT", "FROM_CLUSTER", "LAUNCH", "NAMESPACE", "PATHS", "convert_sources"]

PATHS = typer.Argument(
    metavar="PATH",
    help="Files, folders (their *.yaml, *.yml and *.json files), or - for standard input.",
    show_default=False,
)
FROM_CLUSTER = typer.Option("--from-cluster", help="Read the jobs of a cluster instead of files.", show_default=False)
NAMESPACE = completion.create_namespace_option(
    "With --from-cluster: namespace. Default: that of the kubeconfig's context."
)
ALL_NAMESPACES = typer.Option(
    "--all-namespaces", "-A", help="With --from-cluster: read the jobs of all namespaces.", show_default=False
)
LAUNCH = typer.Option(
    help="environment: set RANK, WORLD_SIZE and the like in spec.trainer.env. torchrun: start scripts with torchrun."
)
DIALECT = typer.Option(help="Trainer version of the TrainJobs; 2.2 means 2.2 or later.")
_SUFFIXES = (".yaml", ".yml", ".json")
_STANDARD_INPUT = "-"


def convert_sources(
    paths: Sequence[str],
    *,
    from_cluster: bool = False,
    namespace: str = "",
    all_namespaces: bool = False,
    dialect: Dialect,
    launch: Launch,
) -> MigrationReport:
    """Read all jobs and convert them.

    Args:
        paths: files, folders, or `-`.
        from_cluster: whether to read the jobs of a cluster instead.
        namespace: namespace in the cluster; empty for the connection's.
        all_namespaces: whether to read all namespaces of the cluster.
        dialect: version of the TrainJob API.
        launch: see `trainjob_migrate.Launch`.

    Raises:
        InvalidSpec: a file or folder does not exist, or both or neither of files and cluster are given.
        NotFound: the cluster does not serve any of the operator's kinds.
        ClusterError: a request to the cluster fails.
    """
    if bool(paths) is from_cluster:
        given = f"{len(paths)} paths{' and --from-cluster' if from_cluster else ''}"
        raise InvalidSpec(Problem("PATH", given, "use files or folders, - for standard input, or --from-cluster"))
    if (namespace or all_namespaces) and not from_cluster:
        raise InvalidSpec(
            Problem("--namespace", namespace or "-A", "it needs --from-cluster; files contain their namespaces")
        )
    sources = _of_cluster(namespace, all_namespaces=all_namespaces) if from_cluster else _of_paths(paths)
    return convert_all(sources, dialect=dialect, launch=launch)


def _of_paths(paths: Sequence[str]) -> Sources:
    """Read the jobs of files and folders, after checking that all of them exist."""
    missing = [path for path in paths if path != _STANDARD_INPUT and not Path(path).exists()]
    if missing:
        raise InvalidSpec([Problem("PATH", repr(path), "there is no such file or folder") for path in missing])
    sources = Sources()
    for path in dict.fromkeys(paths):
        if path == _STANDARD_INPUT:
            sources.add(_of_file(path, None))
        else:
            sources.add(_of_folder(Path(path)) if Path(path).is_dir() else _of_file(path, Path(path)))
    return sources


def _of_folder(folder: Path) -> Sources:
    """Read the YAML and JSON files of a folder; hidden ones and `.git` are skipped."""
    sources = Sources()

    def record_error(error: OSError) -> None:
        sources.read_errors.append(ReadError(str(error.filename), f"cannot be read: {error.strerror}"))

    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=record_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(parent, name) for name in names if not name.startswith(".")]
    for file in sorted(files):
        if file.suffix.lower() in _SUFFIXES and file.is_file():
            sources.add(_of_file(str(file), file))
    return sources


def _of_file(name: str, file: Path | None) -> Sources:
    try:
        content = file.read_bytes() if file else sys.stdin.buffer.read()
        return read_jobs(content.decode("utf-8-sig"), name)
    except OSError as error:
        return Sources(read_errors=[ReadError(name, f"cannot be read: {error.strerror}")])
    except UnicodeDecodeError as error:
        return Sources(read_errors=[ReadError(name, f"not a text in UTF-8: {error.reason} at byte {error.start}")])


def _of_cluster(namespace: str, *, all_namespaces: bool) -> Sources:
    with terminal.open_cluster() as cluster:
        listed = OperatorJobs(cluster).list_all(None if all_namespaces else namespace or cluster.namespace)
    for kinds, why in (
        (listed.unserved_kinds, "the cluster does not serve them"),
        (listed.forbidden_kinds, "no permission to list them"),
    ):
        if kinds:
            terminal.error_console().print(f"[yellow]skipped: {escape(', '.join(kinds))}: {why}[/]")
    return Sources(
        [FoundJob(f"cluster, namespace {get_str(job, 'metadata', 'namespace')}", job) for job in listed.jobs]
    )
