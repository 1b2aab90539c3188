"""Turns a container's command and environment into those of a local process; pure functions.

Two things of a container have no counterpart for a plain process: its mount points and the cluster's DNS. So paths of
mounted volumes are rewritten to the local folders, and names of the job's own pods to 127.0.0.1, wherever they stand
in command, args and
environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

__all__ = ["Rewriter", "expand"]

_REFERENCE = re.compile(r"\$\$|\$\(([\w.-]+)\)")
_BEFORE, _AFTER = r"(?<![\w.-])", r"(?![\w.-])"

Rewriter = Callable[[str], str]


def expand(text: str, env: Mapping[str, str]) -> str:
    """Expands `$(NAME)`; an unknown name stays, `$$` is a dollar sign.

    Source: Kubernetes 1.36 `third_party/forked/golang/expansion`.
    """
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


def rewriter(mounts: Sequence[tuple[str, str]], subdomain: str, namespace: str) -> Rewriter:
    """Makes the function that rewrites one text.

    Args:
        mounts: mount path in the container and local folder, of every mounted volume.
        subdomain: the pod's subdomain; names of hosts in it become 127.0.0.1. Empty for none.
        namespace: the pod's namespace.
    """
    # The longest first: /workspace/output may be another volume than /workspace. Not inside a URL's or another path.
    folders = [
        (re.compile(_BEFORE + r"(?<!:/)" + re.escape(path.rstrip("/")) + _AFTER), local)
        for path, local in sorted(mounts, key=lambda mount: -len(mount[0]))
    ]
    zone = rf"(?:\.{re.escape(namespace)}\.svc(?:\.cluster\.local)?)?"
    host = re.compile(rf"{_BEFORE}[a-z0-9-]+\.{re.escape(subdomain)}{zone}{_AFTER}") if subdomain else None

    def rewrite(text: str) -> str:
        pieces = _apply(text, folders)
        return host.sub("127.0.0.1", pieces) if host else pieces

    return rewrite


def _apply(text: str, folders: Sequence[tuple[re.Pattern[str], str]]) -> str:
    """Rewrites each place once: what one folder became is not looked at again."""
    if not folders:
        return text
    (pattern, local), rest = folders[0], folders[1:]
    return local.join(_apply(piece, rest) for piece in pattern.split(text))
