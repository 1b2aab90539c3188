"""Arguments of the programs that unpack the code of a project, and their use."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.programs.code.archive import unpack
from trainjob.programs.code.failure import CodeFailure
from trainjob.programs.code.packages import install_packages
from trainjob.programs.code.start import (
    build_module_command,
    build_program_command,
    build_script_command,
    set_search_paths,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build_command", "create_parser", "parse", "prepare"]

_VERSION_OPTION = "--trainjob-version"  # trainjob.version imports more than a packed program needs


def create_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of the options that all of the programs have."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--sha256", required=True, help="SHA-256 of the uncompressed archive")
    parser.add_argument("--archive", required=True, help="tar file of the project, compressed by gzip")
    parser.add_argument("--requirements", choices=["requirements.txt", "uv.lock"], help="file with its packages")
    parser.add_argument("--cache", help="folder for packages that pods share")
    started = parser.add_mutually_exclusive_group()
    started.add_argument("--module", help="module that Python runs with the words")
    started.add_argument("--script", help="file of the project that Python runs with the words")
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the words after `--`.

    Raises:
        CodeFailure: the program in the image belongs to another version.
        SystemExit: an option is wrong.
    """
    given = list(arguments)
    if given[:1] == [_VERSION_OPTION]:
        from trainjob.version import check_version

        try:
            given = check_version(given)
        except ValueError as refusal:
            raise CodeFailure(str(refusal)) from refusal
    end = given.index("--") if "--" in given else len(given)
    options, words = parser.parse_args(given[:end]), given[end + 1 :]
    if not (options.module or options.script or words):
        parser.error("give --module, --script or a command after --")
    return options, words


def prepare(options: argparse.Namespace) -> Path:
    """Unpack the project into a new folder, the working directory, and install its packages.

    Raises:
        CodeFailure: the project cannot be unpacked, or its packages cannot be installed.
    """
    cache = options.cache and os.path.abspath(options.cache)  # noqa: PTH100
    path, count = unpack(options.archive, options.sha256)
    folder = Path(path)
    os.chdir(folder)
    packages = None
    if options.requirements:
        packages = install_packages(folder, options.requirements, options.sha256, cache)
    print(f"code: {options.sha256[:12]}, {count} files, in {folder}", flush=True)
    set_search_paths(folder, packages)
    return folder


def build_command(options: argparse.Namespace, words: Sequence[str], folder: Path) -> list[str]:
    """Return the command to start in the project.

    Raises:
        CodeFailure: the module, script or program does not exist.
    """
    if options.module:
        return build_module_command(options.module, words, folder)
    if options.script:
        return build_script_command(options.script, words, folder)
    return build_program_command(words)
