"""Git of a project: its repository, its commit, and the files that differ from the commit."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem

# Options that the settings of a user must not change. Files that only the user's own list of ignored files
# (core.excludesFile) names count as files of the project, because the same folder has to give the same archive for
# everybody; `.gitignore` and `.git/info/exclude` belong to the folder. A hook of core.fsmonitor could run any program.
_OPTIONS = {
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.quotePath": "off",
    "diff.autoRefreshIndex": "true",
    "submodule.recurse": "false",
}
PLAIN_MODE = 0o100644  # of a file that is not executable


@dataclass(frozen=True)
class Origin:
    """The commit that a project's files come from; empty outside of a repository.

    Attributes:
        commit: hash of the commit that is checked out.
        branch: branch that is checked out; empty if there is none.
        modified: whether files differ from the commit.
    """

    commit: str = ""
    branch: str = ""
    modified: bool = False


def find_repository(folder: Path) -> Path | None:
    """Return the folder itself, or the nearest one around it, that has a `.git`; or None."""
    real = folder.resolve()  # git, too, looks around the folder that a link means
    return next((each for each in (real, *real.parents) if os.path.lexists(each / ".git")), None)


def read_origin(folder: Path, is_left_out: Callable[[bytes], bool]) -> Origin:
    """Return the commit of a folder.

    Args:
        folder: absolute path of the folder.
        is_left_out: whether the archive leaves a file out, so that a change of it does not count.

    Raises:
        InvalidSpec: git cannot read the repository.
    """
    if find_repository(folder) is None or not (commit := _read_line(folder, "rev-parse", "--verify", "HEAD^{commit}")):
        return Origin()
    changed = (
        ("diff", "HEAD", "--name-only", "--relative", "--no-ext-diff", "--no-renames", "--ignore-submodules=none"),
        ("ls-files", "--others", "--exclude-standard"),
    )
    is_modified = any(not is_left_out(name) for command in changed for name in _list_names(folder, *command, "-z"))
    return Origin(commit, _read_line(folder, "symbolic-ref", "--short", "HEAD"), is_modified)


def list_tracked(folder: Path) -> dict[bytes, int]:
    """Return the names of the files in a folder that git tracks, with the modes in the index."""
    entries = [entry.split(b"\t", 1) for entry in _list_names(folder, "ls-files", "-z", "--cached", "--stage")]
    return {name: int(facts.split()[0], 8) for facts, name in entries}


def list_untracked(folder: Path) -> list[bytes]:
    """Return the names of the files that git would add.

    A name with a slash at its end is another repository.
    """
    return list(_list_names(folder, "ls-files", "-z", "--others", "--exclude-standard"))


def has_executable_bits(folder: Path) -> bool:
    """Return whether the repository of a folder uses the executable bits of its files."""
    return _read_line(folder, "config", "--type=bool", "--default", "true", "core.fileMode") == "true"


def _list_names(folder: Path, *arguments: str) -> Iterator[bytes]:
    ended = _run_git(folder, *arguments)
    if ended.returncode or b"could not open directory" in ended.stderr:  # git itself would leave the directory out
        raise InvalidSpec(Problem("code.path", repr(str(folder)), _describe_failure(folder, ended)))
    yield from filter(None, ended.stdout.split(b"\0"))


def _read_line(folder: Path, *arguments: str) -> str:
    """Return the line that a command of git prints; empty if it finds nothing."""
    return _run_git(folder, *arguments).stdout.decode(errors="replace").strip()


def _run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # Variables such as GIT_DIR and GIT_INDEX_FILE are set in a hook of git, and would name another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}
    settings = {**_OPTIONS, **({"safe.directory": os.fspath(known)} if (known := _find_running(folder)) else {})}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    try:
        return subprocess.run(
            ["git", "-C", os.fspath(folder), *options, *arguments],  # noqa: S607 - the git of the user
            env=inherited | own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        advice = "install git, or give an archive that `trainjob pack` wrote on a machine with git"
        rule = f"the folder belongs to a repository of git, and there is no program git to read it: {advice}"
        raise InvalidSpec(Problem("code.path", repr(str(folder)), rule)) from None


def _find_running(folder: Path) -> Path | None:
    """Return the repository of a folder if git may refuse it, but its code runs here.

    git refuses a repository of another user, because its settings can run programs. Such a repository is the checkout
    of Airflow's DAGs by git-sync, whose DAG file this process has executed.
    """
    repository = find_repository(folder)
    if repository is None or not _may_have_other_owner(repository):
        return None
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return repository if any(file and repository in Path(file).resolve().parents for file in files) else None


def _may_have_other_owner(repository: Path) -> bool:
    """Return whether git may refuse a repository as another user's.

    A `.git` that is a file names a folder elsewhere, whose owner may be another one.
    """
    git = repository / ".git"
    return not git.is_dir() or any(path.stat().st_uid != os.geteuid() for path in (repository, git))


def _describe_failure(folder: Path, ended: subprocess.CompletedProcess[bytes]) -> str:
    message = ended.stderr.decode(errors="replace").strip()
    if "dubious ownership" in message:
        command = f"git config --global --add safe.directory {shlex.quote(str(find_repository(folder)))}"
        return f"git refuses its repository, because another user owns it. If you trust its owner, run: {command}"
    return f"git cannot list its files: {' '.join(message.split())}"
