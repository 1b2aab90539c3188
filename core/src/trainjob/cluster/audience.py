"""Who is told what: the objects as they are known, and those who wait for news of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.errors import ClusterError, ClusterUnreachable


@dataclass(frozen=True)
class Change:
    """What a subscriber is told.

    Attributes:
        found: the object as it is now, or as it was last when it is gone; None with an error.
        gone: the object does not exist any more.
        error: nothing more will come.
    """

    found: Mapping[str, Any] | None = None
    gone: bool = False
    error: ClusterError | None = None


Deliver = Callable[[Change], None]
Missing = Callable[[], None]


class Subscription:
    """One waiter's place at a feed; close it when the waiting is over."""

    def __init__(
        self, key: str | None, deliver: Deliver, missing: Missing, leave: Callable[[Subscription], None]
    ) -> None:
        self.key, self.deliver, self.missing, self._leave = key, deliver, missing, leave
        self.ended = False

    def close(self) -> None:
        """Deliver nothing more; also inside of what it delivers to."""
        self._leave(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Audience:
    """The bookkeeping of a feed: no IO, no thread; whoever uses it from several threads holds a lock.

    A subscriber that fails on what it is told is told so, and is one no more: the others hear all the same.
    """

    def __init__(self) -> None:
        """Nothing is known, and nobody waits."""
        self._subscribers: dict[str | None, dict[Subscription, None]] = {}  # by key: an event concerns few of thousands
        self._objects: dict[str, dict[str, Mapping[str, Any]]] = {}  # by key, then by uid
        self.listed = False

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._subscribers)

    def join(self, subscription: Subscription) -> None:
        """Tell what is known already, and from now on each change.

        Raises:
            Exception: what the subscriber raises; it has not joined then.
        """
        known = self._known_by(subscription.key)
        for found in known:
            subscription.deliver(Change(found))
        if self.listed and not known:
            subscription.missing()
        self._subscribers.setdefault(subscription.key, {})[subscription] = None

    def leave(self, subscription: Subscription) -> None:
        """Tell nothing more, also of what is being told now."""
        subscription.ended = True
        of_key = self._subscribers.get(subscription.key, {})
        of_key.pop(subscription, None)
        if not of_key:
            self._subscribers.pop(subscription.key, None)

    def tell(self, key: str, found: Mapping[str, Any], *, gone: bool = False) -> None:
        """An object has changed; what is known already is not told again."""
        uid, of_key = found["metadata"]["uid"], self._objects.setdefault(key, {})
        news = gone or of_key.get(uid) != found
        if gone:
            of_key.pop(uid, None)
        else:
            of_key[uid] = found
        if not of_key:
            del self._objects[key]
        for subscription in [*self._subscribers.get(key, ()), *self._subscribers.get(None, ())] if news else ():
            self._hand(subscription, lambda one: one.deliver(Change(found, gone=gone)))

    def settle(self, listed: set[str]) -> None:
        """All objects that exist were told: others are gone. Who misses one is told so, after the first list.

        Args:
            listed: the objects' uids.
        """
        for key, uid, known in [(k, uid, known) for k, of in self._objects.items() for uid, known in of.items()]:
            if uid not in listed:
                self.tell(key, known, gone=True)
        if not self.listed:
            self.listed = True
            for subscription in self._everybody():
                if not self._known_by(subscription.key):
                    self._hand(subscription, lambda one: one.missing())

    def end(self, error: ClusterError) -> None:
        """Tell everybody that nothing more comes, and begin anew with nobody."""
        told, self._subscribers = self._everybody(), {}
        self.forget()
        for subscription in told:
            self._hand(subscription, lambda one: one.deliver(Change(error=error)))
            subscription.ended = True

    def forget(self) -> None:
        """What is known is not true any more: nobody looks."""
        self._objects, self.listed = {}, False

    def _known_by(self, key: str | None) -> list[Mapping[str, Any]]:
        of_keys = self._objects.values() if key is None else (self._objects.get(key, {}),)
        return [found for of_key in of_keys for found in of_key.values()]

    def _everybody(self) -> list[Subscription]:
        return [subscription for of_key in self._subscribers.values() for subscription in of_key]

    def _hand(self, subscription: Subscription, tell: Callable[[Subscription], None]) -> None:
        if subscription.ended:  # by another one, who was told before it
            return
        try:
            tell(subscription)
        except Exception as error:  # noqa: BLE001 - the subscriber's own mistake, which is told to it
            self.leave(subscription)
            broken = ClusterUnreachable(f"the waiting failed on what it was told: {type(error).__name__}: {error}")
            broken.__cause__ = error
            with contextlib.suppress(Exception):
                subscription.deliver(Change(error=broken))
