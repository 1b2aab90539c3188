"""`trainjob pack`: show the files of a project that travel to the pods, or write them into an archive."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated

import typer

from trainjob.cli import table_format, terminal
from trainjob.cli.terminal import escape
from trainjob.manifest.shared_code import build_shared_config_map
from trainjob.project_code import ARCHIVE_SUFFIX, ProjectFile, list_files, write_archive
from trainjob.project_code import pack as pack_project
from trainjob.project_code.checks import format_size
from trainjob.spec.base import invalid_field
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES, Code, PackedCode

__all__ = ["pack"]

_FOLDER = typer.Argument(metavar="[FOLDER]", help="Folder of the project, or an archive of it.", show_default=False)
_OUTPUT = typer.Option(
    "--output",
    "-o",
    metavar="FILE",
    help=f"Write the archive to this file, NAME{ARCHIVE_SUFFIX}. In a folder, its name gets the digest.",
    show_default=False,
)
_LIST = typer.Option("--list", help="List the files with their sizes.", show_default=False)
_REQUIREMENTS = typer.Option(
    metavar="NAME", help="Check that the project has this file: requirements.txt or uv.lock.", show_default=False
)
_CONFIG_MAP = typer.Option(
    "--config-map", help="Print a ConfigMap with the archive as YAML, for kubectl.", show_default=False
)


def pack(
    folder: Annotated[str, _FOLDER] = ".",
    output: Annotated[Path | None, _OUTPUT] = None,
    list_all: Annotated[bool, _LIST] = False,
    requirements: Annotated[str, _REQUIREMENTS] = "",
    config_map: Annotated[bool, _CONFIG_MAP] = False,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Show what travels to the pods of a project's code, or write it into an archive.

    In a repository of git, the files are those that git knows or would add. Elsewhere, they are all that no .gitignore
    names. A file .trainjobignore in the folder leaves out more of them. The same files have the same digest on each
    machine.

    The archive can be used in place of the folder on a machine that has no git, or not these files.

    A project that is too large for a pipeline is in a ConfigMap in the namespace of the TrainJobs. This command creates
    it: trainjob pack --config-map | kubectl apply --server-side -n NAMESPACE -f -

    With --json: an object with sha256, files (their number), size (of all files, in bytes), archive_size (compressed),
    commit, branch, modified and requirements. With --list, files is a list of objects with name, size, executable and
    link. With --output, the object also has output.

    Example: trainjob pack --output dist/
    """
    if config_map and (output or list_all or as_json):
        raise invalid_field("--config-map", True, "it prints only YAML: leave out --output, --list and --json")
    packed = pack_project(Code.from_object({"path": folder, "requirements": requirements}), Path.cwd())
    if config_map:
        terminal.print_yaml(build_shared_config_map(packed))
        return
    files = list_files(Path(packed.path))
    written = _write(packed, output) if output else None
    if as_json:
        terminal.print_json(
            {
                "sha256": packed.sha256,
                "files": [asdict(file) for file in files] if list_all else len(files),
                "size": sum(file.size for file in files),
                "archive_size": packed.size,
                "commit": packed.commit,
                "branch": packed.branch,
                "modified": packed.modified,
                "requirements": packed.requirements,
                **({"output": str(written)} if written else {}),
            }
        )
    else:
        _show(packed, files, written, list_all=list_all)


def _show(packed: PackedCode, files: Sequence[ProjectFile], written: Path | None, *, list_all: bool) -> None:
    if list_all:
        table = table_format.create_table("SIZE", "NAME")
        for file in files:
            table.add_row(format_size(file.size), escape(f"{file.name} -> {file.link}" if file.link else file.name))
        table_format.print_table(terminal.console(), table)
        terminal.print_line("")
    count = f"{len(files)} file{'s' * (len(files) != 1)}"
    total = format_size(sum(file.size for file in files))
    limit = "" if packed.archive else f", more than the {format_size(MAX_CONFIG_MAP_BYTES)} that fit into a TrainJob"
    branch = f" ({packed.branch})" if packed.branch else ""
    changes = ", modified since" if packed.modified else ""
    for title, value in (
        ("digest", f"sha256:{packed.sha256}"),
        ("files", f"{count}, {total}"),
        ("archive", f"{format_size(packed.size)}{limit}"),
        ("commit", f"{packed.commit}{branch}{changes}" if packed.commit else "none"),
        ("written to", str(written or "")),
    ):
        if value:
            terminal.print_line(f"{title:<10}  {value}")


def _write(packed: PackedCode, output: Path) -> Path:
    """Write the archive to a file, which is complete or not there, and return its path.

    Raises:
        InvalidSpec: the name does not end like that of an archive, or the files have changed.
    """
    if output.is_dir():
        name = Path(packed.path).name.removesuffix(ARCHIVE_SUFFIX)
        output = output / f"{name}-{packed.sha256}{ARCHIVE_SUFFIX}"
    elif not output.name.endswith(ARCHIVE_SUFFIX):
        raise invalid_field("--output", str(output), f"give an existing folder, or a file NAME{ARCHIVE_SUFFIX}")
    # Not beside the file at first: in the folder of the project, it would be one of the files that are read.
    with tempfile.TemporaryFile() as archive:
        write_archive(packed, archive)
        archive.seek(0)
        _replace_file(output, archive)
    project = Path(packed.path)
    if output.resolve().is_relative_to(project.resolve()):
        name = output.resolve().relative_to(project.resolve()).as_posix()
        if project.is_dir() and name in {file.name for file in list_files(project)}:
            advice = "delete it, or name it in .trainjobignore"
            warnings.warn(f"{output} is now a file of the project, and travels with it: {advice}", stacklevel=2)
    return output


def _replace_file(path: Path, contents: IO[bytes]) -> None:
    """Write a file in one step, so that a reader never sees half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("xb") as opened:
            shutil.copyfileobj(contents, opened)
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
