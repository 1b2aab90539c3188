"""Events go an hour after they were written last, as kube-apiserver has it (1.36, `--event-ttl`)."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta

from trainjob_local.apiserver.object_registry import ObjectRegistry
from trainjob_local.apiserver.refusals import Refusal
from trainjob_local.apiserver.store import Change

__all__ = ["Expiry"]

_TTL = timedelta(hours=1)


class Expiry:
    """Deletes old events whenever an event is written; of a kept state, the hour begins anew.

    Args:
        registry: whose objects.
        clock: gives the time.
    """

    def __init__(self, registry: ObjectRegistry, clock: Callable[[], datetime]) -> None:
        self._registry, self._clock = registry, clock
        self._written: OrderedDict[tuple[str, str], datetime] = OrderedDict()  # the oldest first
        registry.subscribe(self._note, resources=("events",))

    def _note(self, change: Change) -> None:
        now = self._clock()
        self._written.pop(change.key, None)
        if change.type == "DELETED":
            return
        self._written[change.key] = now
        while now - next(iter(self._written.values())) >= _TTL:
            (namespace, name), _ = self._written.popitem(last=False)
            with contextlib.suppress(Refusal):  # it went with its namespace
                self._registry.delete("events", name, namespace)
