"""Faults that tests switch on: slow answers, errors, dropped or expired watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainjob_local.apiserver.refusals import Refusal, bad_request, expired

__all__ = ["Answer", "Faults"]

_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden: switched on by a test"),
    409: ("Conflict", "Operation cannot be fulfilled: switched on by a test"),
    410: ("Expired", "The provided resource version is too old."),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: switched on by a test"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted duration"),
}


@dataclass
class Answer:
    """An error to give instead of the true answer.

    Attributes:
        code: HTTP status, such as 429, 500, 503 or 401.
        times: for how many requests.
        verb: only for this verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, ...); `*` for all.
        resource: only for this plural, with its subresource as in `pods/log`; `*` for all.
        retry_after: seconds for the `Retry-After` header, or None.
        carried_out: the request is carried out first, and only its answer is lost.
    """

    code: int
    times: int = 1
    verb: str = "*"
    resource: str = "*"
    retry_after: int | None = None
    carried_out: bool = False

    def is_for(self, verb: str, resource: str) -> bool:
        """Says whether a request gets it."""
        return self.times > 0 and self.verb in ("*", verb) and self.resource in ("*", resource)

    def refusal(self) -> Refusal:
        """Makes the error."""
        reason, text = _REASONS.get(self.code, ("", "switched on by a test"))
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after else {}
        return Refusal(self.code, reason, text, details=details, retry_after=self.retry_after)


class Faults:
    """The faults of one server; every method is safe to call from any thread.

    In a child process the same is reached over HTTP: `POST /faults` as admin with a JSON object of `latency` (seconds),
    `answer` (the fields of `Answer`), `drop_watches` (true) and `expire_watches` (a number); `DELETE /faults` clears,
    `GET /faults` shows.

    Attributes:
        latency: seconds each request waits before it is looked at.
    """

    def __init__(self) -> None:
        self.latency = 0.0
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._expired_watches = 0
        self._droppers: list[Callable[[], None]] = []

    def answer(
        self,
        code: int,
        times: int = 1,
        *,
        verb: str = "*",
        resource: str = "*",
        retry_after: int | None = None,
        carried_out: bool = False,
    ) -> None:
        """Answers the next requests that fit with an error; see `Answer`."""
        with self._lock:
            self._answers.append(Answer(code, times, verb, resource, retry_after, carried_out))

    def drop_watches(self) -> None:
        """Ends all open watch streams now."""
        for drop in list(self._droppers):
            drop()

    def expire_watches(self, times: int = 1) -> None:
        """Answers the next watches that name a resourceVersion with 410, inside the stream."""
        with self._lock:
            self._expired_watches = times

    def clear(self) -> None:
        """Switches everything off."""
        with self._lock:
            self.latency, self._answers, self._expired_watches = 0.0, [], 0

    def apply(self, wanted: Any) -> None:
        """Switches on what a `POST /faults` names.

        Raises:
            Refusal: 400, it can't be read.
        """
        known = {"latency", "answer", "drop_watches", "expire_watches"}
        if not isinstance(wanted, Mapping) or wanted.keys() - known:
            raise bad_request(f"faults are an object of {', '.join(sorted(known))}")
        try:
            self.latency = float(wanted.get("latency", self.latency))
            if "answer" in wanted:
                self.answer(**wanted["answer"])
            if "expire_watches" in wanted:
                self.expire_watches(int(wanted["expire_watches"]))
        except (TypeError, ValueError) as error:
            raise bad_request(str(error)) from error
        if wanted.get("drop_watches"):
            self.drop_watches()

    def to_dict(self) -> dict[str, Any]:
        """Shows what is switched on."""
        with self._lock:
            answers = [asdict(answer) for answer in self._answers if answer.times > 0]
            return {"latency": self.latency, "answers": answers, "expire_watches": self._expired_watches}

    # -- for the server -----------------------------------------------------------------------------------------------

    def on_drop(self, drop: Callable[[], None]) -> None:
        """Registers how watches are dropped."""
        self._droppers.append(drop)

    def take(self, verb: str, resource: str) -> Answer | None:
        """Takes the error for a request, if one is due."""
        with self._lock:
            for answer in self._answers:
                if answer.is_for(verb, resource):
                    answer.times -= 1
                    return answer
        return None

    def check_watch(self) -> None:
        """Raises the 410 Refusal for a watch, if one is due."""
        with self._lock:
            if self._expired_watches <= 0:
                return
            self._expired_watches -= 1
        raise expired("The resourceVersion for the provided watch is too old.")
