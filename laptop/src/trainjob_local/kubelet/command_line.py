"""Rewriting of a container's command and environment for a local process; pure functions.

Three properties of a container do not exist for a plain process: its mount points, the cluster's DNS and a network of
its own. So paths of mounted volumes are rewritten to the local folders, host names of the job's own pods to 127.0.0.1,
and the Trainer's port to the port of the JobSet. This applies to the command, the args and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from trainjob_local.kubelet.master_ports import TRAINER_PORT

__all__ = ["Rewriter", "expand", "rewrite_port"]

_REFERENCE = re.compile(r"\$\$|\$\(([\w.-]+)\)")
_BEFORE, _AFTER = r"(?<![\w.-])", r"(?![\w.-])"
# A number alone may be anything, such as a number of steps. After a host it is a port: `host:1`, `nc -z host 1`,
# `("host", 1)`, `/dev/tcp/host/1`.
_PORT = re.compile(rf"({_BEFORE}(?:localhost|127\.0\.0\.1)[\s\"',:/]{{1,4}}){TRAINER_PORT}{_AFTER}")

Rewriter = Callable[[str], str]


def expand(text: str, env: Mapping[str, str]) -> str:
    """Expand `$(NAME)` in a text; an unknown name is left unchanged, `$$` becomes `$`.

    Source: Kubernetes 1.36 `third_party/forked/golang/expansion`.
    """
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


def rewrite_port(name: str, value: str, port: Callable[[], int]) -> str:
    """Return a variable's value, with the JobSet's port instead of the Trainer's.

    Args:
        name: name of the variable; only names that end in `PORT` are changed, such as `PET_MASTER_PORT`.
        value: its value.
        port: function that returns the JobSet's port; called only if it is needed.
    """
    return str(port()) if name.endswith("PORT") and value == str(TRAINER_PORT) else value


def build_rewriter(
    mounts: Sequence[tuple[str, str]], subdomain: str, namespace: str, port: Callable[[], int]
) -> Rewriter:
    """Return a function that rewrites one text.

    Args:
        mounts: mount path in the container and local folder, for every mounted volume.
        subdomain: the pod's subdomain, whose host names become 127.0.0.1; empty if the pod has none.
        namespace: the pod's namespace.
        port: function that returns the JobSet's port, which replaces the Trainer's after a host; called only if it is
            needed.
    """
    # The longest first: /workspace/output may be another volume than /workspace. A path inside a URL or inside another
    # path is not matched.
    folders = [
        (re.compile(_BEFORE + r"(?<!:/)" + re.escape(path.rstrip("/")) + _AFTER), local)
        for path, local in sorted(mounts, key=lambda mount: -len(mount[0]))
    ]
    zone = rf"(?:\.{re.escape(namespace)}\.svc(?:\.cluster\.local)?)?"
    host = re.compile(rf"{_BEFORE}[a-z0-9-]+\.{re.escape(subdomain)}{zone}{_AFTER}") if subdomain else None

    def rewrite(text: str) -> str:
        pieces = _replace_paths(text, folders)
        local = host.sub("127.0.0.1", pieces) if host else pieces
        return _PORT.sub(lambda found: f"{found[1]}{port()}", local)

    return rewrite


def _replace_paths(text: str, folders: Sequence[tuple[re.Pattern[str], str]]) -> str:
    """Rewrite each match once: text that is already replaced by a folder is not matched again."""
    if not folders:
        return text
    (pattern, local), rest = folders[0], folders[1:]
    return local.join(_replace_paths(piece, rest) for piece in pattern.split(text))
