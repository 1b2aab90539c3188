"""Promotions and rollbacks, in steps that any later process can complete.

The record is written before each change, and each change can be repeated. So after a kill, the next try of the same
step continues, and every other step can undo what was begun. A change of the service is refused if another process has
written the record or the service since they were read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import takewhile
from typing import Any, Protocol

from trainjob.errors import PromotionError, TrainJobError
from trainjob.programs.promotion.aliases import Alias
from trainjob.programs.promotion.cluster_api import ChangedMeanwhile
from trainjob.programs.promotion.kserve import RolloutFailed
from trainjob.programs.promotion.record import (
    PROMOTED,
    ROLLED_BACK,
    ROLLING_BACK,
    ROLLING_OUT,
    Promotion,
    PromotionRecord,
    Served,
)

__all__ = ["Outcome", "Rollout", "Service"]

_MOST_CONFLICTS = 20


class Service(Protocol):
    """Interface of a service, whether KServe or a command serves the model."""

    def read(self) -> Served:
        """Return the model that is to be served."""

    def read_marks(self) -> dict[str, str]:
        """Return the states by which the next change is recognized."""

    def check(self, wanted: Served) -> None:
        """Refuse a request that the service cannot fulfil."""

    def apply(self, wanted: Served, check: Callable[[], None]) -> None:
        """Make a model the one to serve."""

    def describe_wait(self, wanted: Served, marks: Mapping[str, str]) -> str:
        """Return what the service still waits for; empty if it serves a model."""

    def wait_for_change(self) -> None:
        """Wait until `describe_wait` may return something else."""


@dataclass(frozen=True)
class Outcome:
    """Result of a promotion or a rollback.

    Attributes:
        changed: whether this step, in this try or an earlier one, has changed what is served.
        model: the model that is served now; empty for none.
        before: the model that was served before.
        reason: why nothing has changed; else empty.
    """

    changed: bool
    model: str
    before: str
    reason: str = ""


@dataclass(frozen=True)
class Rollout:
    """Promotions and rollbacks of one service.

    Attributes:
        service: the service.
        record: its promotions.
        key: identifies the step in its workflow run.
        run: the workflow run; may be empty.
        seconds: longest time until a model is served.
        alias: the registry's alias; None without a registry.
        try_out: function that sends a request to the served model; it raises a RolloutFailed.
        is_ending: function that returns whether the pod is being ended.
        say: function that prints a line.
    """

    service: Service
    record: PromotionRecord
    key: str
    run: str
    seconds: float
    alias: Alias | None = None
    try_out: Callable[[], None] = lambda: None
    is_ending: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = print

    def promote(self, wanted: Served, version: str = "") -> Outcome:
        """Make a model the served one, or leave the one that is served now.

        Args:
            wanted: the model.
            version: its version in the registry; by default the newest one with its address.

        Raises:
            PromotionError: the model was not promoted, and the one before is to be served again.
            ExportError: the registry cannot be used; nothing has changed.
        """
        if self.alias and not version:
            version = self.alias.find_version(wanted.model)
        return self._repeat(lambda: self._promote(wanted, version))

    def roll_back(self, *, any_run: bool = False) -> Outcome:
        """Undo the promotion of this workflow run, if no later one has replaced it.

        Args:
            any_run: whether to undo the newest promotion, of any workflow run.

        Raises:
            PromotionError: the API server cannot be used.
            ExportError: the registry cannot be used.
        """
        return self._repeat(lambda: self._roll_back(any_run=any_run))

    def _repeat(self, action: Callable[[], Outcome]) -> Outcome:
        """Decide again from the beginning after each write of another process."""
        for _ in range(_MOST_CONFLICTS):
            try:
                self.record.read()
                return action()
            except ChangedMeanwhile as change:
                self.say(f"another process has written, deciding again: {change}")
        raise PromotionError(f"other processes change {self.service} all the time", hint="end them first")

    def _promote(self, wanted: Served, version: str) -> Outcome:
        own = self.record.find(self.key)
        others = [each for each in self._open() if each.key != self.key]
        if own and own.wanted == wanted and (own.state == PROMOTED or own.ended_by):
            return self._report_earlier(own)
        if others and not others[0].is_late:
            who = others[0].run or others[0].key
            hint = f"it may take until {others[0].until}; wait for it, or undo it with the step Rollback"
            raise PromotionError(f"another promotion of {self.service} is not complete: that of {who}", hint=hint)
        if own and own.state == ROLLING_BACK:
            self._undo([own])
        elif own and own.state == ROLLING_OUT and own.wanted == wanted:
            self.say(f"an earlier try has begun to promote {wanted.model}, continuing")
            return self._complete(self._put(own, until=self._until()), version)
        return self._complete(self._begin(wanted, others), version)

    def _report_earlier(self, own: Promotion) -> Outcome:
        served = self.service.read()
        if own.state == PROMOTED and served.model == own.wanted.model:
            self.say(f"an earlier try has promoted {own.wanted.model}")
            return Outcome(True, served.model, own.before.model)
        reason = f"it was rolled back: {own.reason}" if own.ended_by else "another model has replaced it"
        self.say(f"an earlier try has promoted {own.wanted.model}, but {reason}")
        return Outcome(False, served.model, own.before.model, reason)

    def _begin(self, wanted: Served, lost: Sequence[Promotion]) -> Promotion:
        """Record a promotion before it changes anything.

        With this record, the lost promotions of killed processes end. The model before is then the one before them.
        """
        self.service.check(wanted)
        served, own = self.service.read(), self.record.find(self.key)
        unfinished = [*lost, *([own] if own and own.is_open else [])]
        self._check_registry(unfinished)
        promotion = Promotion(
            key=self.key,
            run=self.run,
            wanted=wanted,
            before=unfinished[-1].before if unfinished else served,
            until=self._until(),
            marks={} if served.model == wanted.model else self.service.read_marks(),
            alias_before=_get_first_alias(unfinished),
        )
        reason = "its process was killed"
        ended = [replace(each, state=ROLLED_BACK, reason=reason, ended_by=self.key) for each in lost]
        self.record.begin(promotion, *ended)
        self.say(f"recorded: {wanted.model} is to replace {promotion.before.model or 'nothing'}")
        return promotion

    def _complete(self, own: Promotion, version: str) -> Outcome:
        wanted = own.wanted
        try:
            self._check_ending()
            self._serve(wanted, own.marks)
            self.say(f"{wanted.model} is ready")
            self.try_out()
            self.say(f"{wanted.model} answers")
            self._check_ending()
            if self.alias and wanted.percent is None:
                own = self._set_alias(self.alias, own, version)
            self._put(own, state=PROMOTED)
        except (RolloutFailed, TrainJobError) as failure:
            hint = self._undo([own], reason=str(failure).partition("\n")[0])
            raise PromotionError(f"{wanted.model} was not promoted: {failure}", hint=hint) from failure
        return Outcome(True, wanted.model, own.before.model)

    def _set_alias(self, alias: Alias, own: Promotion, version: str) -> Promotion:
        found = alias.read()
        if own.alias_before is None:
            own = self._put(own, alias_before=found)
        if found != version:
            alias.set(version)
        self.say(f"version {version} has the alias")
        return own

    def _roll_back(self, *, any_run: bool) -> Outcome:
        done = [each for each in self.record.promotions if each.ended_by == self.key]
        if done and not any(each.is_open for each in done):
            return Outcome(True, self.service.read().model, done[0].wanted.model)
        active = [each for each in self.record.promotions if each.state != ROLLED_BACK]
        run = active[0].run if any_run and active else self.run
        undone = done or list(takewhile(lambda each: each.run == run, active))
        if any_run and not run:
            undone = undone[:1]
        served, reason = self.service.read().model, ""
        if not undone:
            replaced = any(each.run == self.run for each in active)
            reason = (
                "a later promotion has replaced the one of this run" if replaced else "there is no promotion to undo"
            )
        elif not _is_own_model(served, undone):
            reason = "somebody else has replaced the model"
        if reason:
            self.say(f"{reason}; {served or 'nothing'} is served")
            return Outcome(False, served, served, reason)
        self._undo(undone, reason=f"undone by {self.run or self.key}", ended_by=self.key)
        return Outcome(True, undone[-1].before.model, undone[0].wanted.model)

    def _undo(self, promotions: Sequence[Promotion], **changes: Any) -> str:
        """Serve the model before some promotions, of which the newest is the first.

        If it cannot be served in time, it stays the one to serve: nothing better is known.

        Returns:
            What is served now, as a sentence without a full stop.
        """
        self._check_registry(promotions)
        before, served = promotions[-1].before, self.service.read()
        # With a canary, Knative gives all requests to the revision before at once, and not only when its copy is ready.
        is_canary = any(each.wanted.percent is not None for each in promotions)
        first = replace(before, percent=0) if is_canary else before
        marks = {} if served.model == before.model else self.service.read_marks()
        rows = [replace(each, state=ROLLING_BACK, until=self._until(), **changes) for each in promotions]
        self.record.put(*rows)
        found = f"{before.model or 'nothing'} is served"
        self.say(f"rolling back to {before.model or 'nothing'}")
        try:
            if _is_own_model(served.model, promotions):
                self._serve(first, marks)
                if first != before:
                    self._serve(before, {})
            else:
                found = f"{served.model} is served, which somebody else has chosen"
        except RolloutFailed as failure:
            found = f"{before.model or 'nothing'} is to be served again, but is not ready: {failure}"
        alias_before = _get_first_alias(promotions)
        if self.alias and alias_before is not None:
            self.alias.set(alias_before)
        self.record.put(*(replace(each, state=ROLLED_BACK) for each in rows))
        self.say(f"rolled back: {found}")
        return found

    def _serve(self, wanted: Served, marks: Mapping[str, str]) -> None:
        """Make a model the one to serve, and wait until it is served.

        Raises:
            RolloutFailed: it is not served in time, or the pod is being ended.
        """
        self.service.apply(wanted, self.record.check_unchanged)
        self.say(f"{self.service} is to serve {wanted.model or 'nothing'}")
        end, shown = time.monotonic() + self.seconds, ""
        while waited := self.service.describe_wait(wanted, marks):
            self._check_ending()
            if time.monotonic() >= end:
                raise RolloutFailed(f"it is not served after {self.seconds:g} s, waiting for {waited}")
            if waited != shown:
                shown = waited
                self.say(f"waiting for {waited}")
            self.service.wait_for_change()

    def _check_registry(self, promotions: Sequence[Promotion]) -> None:
        if self.alias is None and _get_first_alias(promotions) is not None:
            hint = "give the registry and the alias of that promotion"
            raise PromotionError("a promotion that is to be undone has set an alias in a registry", hint=hint)

    def _check_ending(self) -> None:
        if self.is_ending():
            raise RolloutFailed("the pod is being ended")

    def _open(self) -> list[Promotion]:
        return [each for each in self.record.promotions if each.is_open]

    def _put(self, promotion: Promotion, **changes: Any) -> Promotion:
        changed = replace(promotion, **changes)
        self.record.put(changed)
        return changed

    def _until(self) -> str:
        # A promotion may take this time twice, if it is rolled back.
        return (datetime.now(timezone.utc) + timedelta(seconds=2 * self.seconds)).isoformat(timespec="seconds")


def _is_own_model(served: str, promotions: Sequence[Promotion]) -> bool:
    """Return whether a model is that of a promotion, and not somebody else's."""
    return served in (promotions[-1].before.model, *(each.wanted.model for each in promotions))


def _get_first_alias(promotions: Sequence[Promotion]) -> str | None:
    """Return the version with the alias before some promotions; None if none changed it."""
    return next((each.alias_before for each in reversed(promotions) if each.alias_before is not None), None)
