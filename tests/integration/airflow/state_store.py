"""A task state store in memory, for tests without an API server."""

from __future__ import annotations

from typing import Any


class StateStore(dict[str, Any]):
    """A task state store in memory."""

    set = dict.__setitem__
