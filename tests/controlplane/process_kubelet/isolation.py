"""Containers with their own mounts and process IDs, for programs that need fixed paths; Linux, as root.

Isolation is off by default. An isolated container has `/var/run/secrets/kubernetes.io/serviceaccount` and every other
volume at its mount path, and its command and environment are not rewritten. It is started with unshare(1). Its `/` is
an overlay over this machine's files; the changes stay in memory and end with the container. Volumes are bind mounts.
Network and users are those of the machine. As in a real container the command is process 1, so SIGTERM has no effect on
a program that does not handle it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainjob_local.kubelet.isolation import Mount

__all__ = ["Namespaces", "enter_command", "first_process", "isolated_command", "unavailable_reason"]

# $0 is an empty folder, $1 the mounts (one per line: options, source, target), $2 the working folder. The command
# follows.
_START_SCRIPT = r"""
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/all"
printf '%s' "$1" | while IFS='	' read -r how from to; do
  to=$0/all$(chroot "$0/all" realpath -m -- "$to")
  if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "$(dirname "$to")"; [ -e "$to" ] || : > "$to"; fi
  mount "$how" "$from" "$to"
done
mount -t proc proc "$0/all/proc"
root=$0/all; cwd=$2; shift 2
exec chroot "$root" sh -c 'mkdir -p "$0" && cd "$0" && exec "$@"' "$cwd" "$@"
"""


class Namespaces:
    """Isolation of containers by Linux namespaces.

    See [trainjob_local.kubelet.isolation.Isolation][].

    Args:
        hosts: file that containers see as `/etc/hosts`; None for this machine's.
    """

    def __init__(self, *, hosts: Path | None = None) -> None:
        self._mounts = [Mount(hosts, "/etc/hosts", read_only=True)] if hosts else []

    def command(
        self, argv: Sequence[str], *, folder: Path, mounts: Sequence[Mount], cwd: str, programs: Sequence[str]
    ) -> list[str]:
        return isolated_command(argv, folder=folder, mounts=[*self._mounts, *mounts], cwd=cwd, programs=programs)

    def first_process(self, pid: int) -> int | None:
        return first_process(pid)


def isolated_command(
    argv: Sequence[str], *, folder: Path, mounts: Sequence[Mount] = (), cwd: str = "", programs: Sequence[str] = ()
) -> list[str]:
    """Return a command that runs `argv` as process 1 of new namespaces, which end with it.

    A command that does not exist ends with code 127, because it is looked up in the container's files.

    Args:
        argv: the command.
        folder: an existing, empty folder; nothing is written to it.
        mounts: local folders and files with their paths in the container; a path may be below another path.
        cwd: the working folder, created if it does not exist; empty for `/`.
        programs: folders of this machine that a mount must not hide. With a mount at `/tmp`, the folder `/tmp/a/bin`
            keeps all of `/tmp/a` visible.
    """
    seen = [("--rbind", point, point) for point in _host_mounts(Path("/proc/self/mountinfo").read_text())]
    seen += [
        ("-oro,bind" if mount.read_only else "--bind", str(mount.local), mount.path)
        for mount in sorted([*mounts, *_preserved_mounts(programs, mounts)], key=lambda mount: len(mount.path))
    ]
    table = "".join("\t".join(line) + "\n" for line in seen)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return [*unshare, "sh", "-ec", _START_SCRIPT, str(folder), table, cwd or "/", *argv]


def first_process(pid: int) -> int | None:
    """Return this machine's ID of process 1 in a container that `isolated_command` started.

    Args:
        pid: ID of the process as which the container was started.

    Returns:
        The process ID, or None if the process does not exist.
    """
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def enter_command(pid: int) -> list[str]:
    """Return the prefix of a command that runs in the namespaces of this process."""
    return ["nsenter", "--target", str(pid), "--mount", "--pid", "--root", "--wd", "--"]


def unavailable_reason() -> str | None:
    """Return the reason why isolated containers fail on this machine; None if they work."""
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        return "isolated containers need unshare and nsenter, of util-linux"
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            isolated_command(["true"], folder=Path(folder)), check=False, capture_output=True, text=True
        )
    if result.returncode == 0:
        return None
    reason = result.stderr.strip() or f"exit status {result.returncode}"
    return f"isolated containers need root and the permission to mount an overlay over / ({reason})"


def _preserved_mounts(programs: Sequence[str], mounts: Sequence[Mount]) -> list[Mount]:
    """Return the entries directly below a mount that contain one of the folders."""
    found: dict[str, Mount] = {}
    for folder in programs:
        for above in (mount.path.rstrip("/") for mount in mounts):
            if folder.startswith(f"{above}/") and Path(folder).is_dir():
                top = f"{above}/{folder[len(above) + 1 :].partition('/')[0]}"
                found[top] = Mount(Path(top), top)
    return list(found.values())


def _host_mounts(table: str) -> list[str]:
    """Return the outermost mount points, without `/` and `/proc`.

    They are needed because an overlay shows the files of one file system only.
    """
    found: list[str] = []
    for point in sorted(line.split()[4] for line in table.splitlines()):
        if point != "/" and not any(f"{point}/".startswith(f"{known}/") for known in [*found, "/proc"]):
            found.append(point)
    return found
