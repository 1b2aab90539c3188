"""Logs of pods: what a client may ask for, and the source (the kubelet) that answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["LogRequest", "LogSource"]


@dataclass(frozen=True)
class LogRequest:
    """One request for the log of a container; the server has checked that pod and container exist.

    Attributes:
        namespace: the pod's namespace.
        pod: the pod's name.
        uid: the pod's uid.
        container: the container's name, never empty.
        follow: go on until the container ends.
        previous: the instance before the last restart.
        tail_lines: only the last lines, this many; None for all.
        since: only lines from this time on; None for all.
        limit_bytes: end after this many bytes; None for no limit.
        timestamps: put the RFC 3339 time before each line.
        cancelled: set when the client has gone; a source that follows must end within a second or so of it.
    """

    namespace: str
    pod: str
    uid: str
    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event, compare=False)


LogSource = Callable[[LogRequest], Iterator[bytes]]
"""Gives the log in pieces of any size; it is called and iterated on a thread of its own and may block there.

The call raises `Refusal` (400 `container "c" in pod "p" is waiting to start: ContainerCreating`, ...); once it has
returned, the answer begins. A generator that it returns is closed when the client has gone."""
