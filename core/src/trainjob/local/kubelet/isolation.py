"""Containers with their own mounts, files and process ids, without a container runtime (Linux, as root).

The command is process 1 of its namespaces; `/` is an overlay over this machine's files whose changes stay in memory and
end with the container; volumes are bind mounts at their real places, so nothing in the command needs rewriting.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["exec_entry", "isolated_command", "machine_mounts"]

# $0 is the container's folder, $1 the mounts ("HOW<tab>FROM<tab>TO" lines), $2 the working folder, then the command.
_START = """
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/all"
printf '%s' "$1" | while IFS='\t' read -r how from to; do
  to=$0/all$(chroot "$0/all" realpath -m -- "$to")
  if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "$(dirname "$to")"; [ -e "$to" ] || : > "$to"; fi
  mount "$how" "$from" "$to"
done
mount -t proc proc "$0/all/proc"
root="$0/all"; cwd="$2"; shift 2
exec chroot "$root" sh -c 'mkdir -p "$0" && cd "$0" && exec "$@"' "$cwd" "$@"
"""


def machine_mounts(mountinfo: str) -> list[str]:
    """Finds the file systems an overlay over `/` does not show, from the text of `/proc/self/mountinfo`."""
    found: list[str] = []
    for point in sorted(line.split()[4] for line in mountinfo.splitlines()):
        covered = any(f"{point}/".startswith(f"{above}/") for above in [*found, "/proc"])
        if point != "/" and not covered:
            found.append(point)
    return found


def isolated_command(
    argv: Sequence[str], folder: Path, mounts: Sequence[tuple[Path, str, bool]], cwd: str, machine: Sequence[str]
) -> list[str]:
    """Wraps a command so that it runs in namespaces of its own.

    Args:
        argv: the command.
        folder: an empty folder of the container's.
        mounts: local folder, place in the container, whether it is read-only.
        cwd: working folder in the container.
        machine: what `machine_mounts` found.
    """
    lines = [("--rbind", point, point) for point in machine]
    lines += [
        ("-oro,bind" if read_only else "--bind", str(local), place)
        for local, place, read_only in sorted(mounts, key=lambda mount: len(mount[1]))
    ]
    table = "".join("\t".join(line) + "\n" for line in lines)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return [*unshare, "sh", "-ec", _START, str(folder), table, cwd or "/", *argv]


def exec_entry(first_process: int) -> dict[str, object]:
    """Tells how to run a command inside a container: what to put before it, and the file with its environment."""
    enter = ["nsenter", "--target", str(first_process), "--mount", "--pid", "--root", "--wd", "--"]
    return {"prefix": enter, "env": f"/proc/{first_process}/environ"}
