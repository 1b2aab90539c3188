"""Faults that tests switch on: slow responses, errors, dropped or expired watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainjob_local.apiserver.status_errors import StatusError, bad_request, expired

__all__ = ["Faults", "InjectedError"]

_TOO_MANY_REQUESTS = "the server has received too many requests and has asked us to try again later"  # quotation
_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden: switched on by a test"),
    409: ("Conflict", "Operation cannot be fulfilled: switched on by a test"),
    410: ("Expired", "The provided resource version is too old."),
    429: ("TooManyRequests", _TOO_MANY_REQUESTS),
    500: ("InternalError", "Internal error occurred: switched on by a test"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted duration"),
}


@dataclass
class InjectedError:
    """An error that the server sends instead of the true response.

    Attributes:
        code: HTTP status, such as 429, 500, 503 or 401.
        times: number of further requests that get the error.
        verb: verb of these requests (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, ...); `*` for all.
        resource: plural of these requests, with its subresource as in `pods/log`; `*` for all.
        retry_after: seconds for the `Retry-After` header, or None.
        executed: whether the server executes the request first, so that only its response is lost.
    """

    code: int
    times: int = 1
    verb: str = "*"
    resource: str = "*"
    retry_after: int | None = None
    executed: bool = False

    def matches(self, verb: str, resource: str) -> bool:
        """Return whether a request with this verb and resource gets the error."""
        return self.times > 0 and self.verb in ("*", verb) and self.resource in ("*", resource)

    def to_status_error(self) -> StatusError:
        """Return the error as a StatusError."""
        reason, text = _REASONS.get(self.code, ("", "switched on by a test"))
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after else {}
        return StatusError(self.code, reason, text, details=details, retry_after=self.retry_after)


class Faults:
    """The faults of one server; any thread may call every method.

    If the server runs in another process, the administrator switches faults over HTTP. `POST /faults` takes a JSON
    object of `latency` (seconds), `error` (the fields of `InjectedError`), `drop_watches` (true) and `expire_watches`
    (a number). `DELETE /faults` switches all faults off. `GET /faults` returns the active faults.

    Attributes:
        latency: seconds that each request waits before the server processes it.
    """

    def __init__(self) -> None:
        self.latency = 0.0
        self._lock = threading.Lock()
        self._injected_errors: list[InjectedError] = []
        self._expired_watches = 0
        self._drop_callbacks: list[Callable[[], None]] = []

    def answer(
        self,
        code: int,
        times: int = 1,
        *,
        verb: str = "*",
        resource: str = "*",
        retry_after: int | None = None,
        executed: bool = False,
    ) -> None:
        """Send an error to the next matching requests; see `InjectedError` for the arguments."""
        with self._lock:
            self._injected_errors.append(InjectedError(code, times, verb, resource, retry_after, executed))

    def drop_watches(self) -> None:
        """Drop all open watch streams now."""
        for drop in list(self._drop_callbacks):
            drop()

    def expire_watches(self, times: int = 1) -> None:
        """Send 410 to the next watches from a resourceVersion, as an ERROR event in the stream.

        Args:
            times: number of watches that get the 410.
        """
        with self._lock:
            self._expired_watches = times

    def clear(self) -> None:
        """Switch all faults off."""
        with self._lock:
            self.latency, self._injected_errors, self._expired_watches = 0.0, [], 0

    def apply(self, body: Any) -> None:
        """Switch on the faults of the body of a `POST /faults`.

        Raises:
            StatusError: 400 if the body is not valid.
        """
        known = {"latency", "error", "drop_watches", "expire_watches"}
        if not isinstance(body, Mapping) or body.keys() - known:
            raise bad_request(f"faults are an object of {', '.join(sorted(known))}")
        try:
            self.latency = float(body.get("latency", self.latency))
            if "error" in body:
                self.answer(**body["error"])
            if "expire_watches" in body:
                self.expire_watches(int(body["expire_watches"]))
        except (TypeError, ValueError) as error:
            raise bad_request(str(error)) from error
        if body.get("drop_watches"):
            self.drop_watches()

    def to_dict(self) -> dict[str, Any]:
        """Return the active faults as a JSON object."""
        with self._lock:
            errors = [asdict(error) for error in self._injected_errors if error.times > 0]
            return {"latency": self.latency, "errors": errors, "expire_watches": self._expired_watches}

    # -- for the server -----------------------------------------------------------------------------------------------

    def add_drop_callback(self, callback: Callable[[], None]) -> None:
        """Register a function that drops the open watch streams of the server."""
        self._drop_callbacks.append(callback)

    def take_error(self, verb: str, resource: str) -> InjectedError | None:
        """Return the error for a request, or None; each returned error reduces its `times` by one."""
        with self._lock:
            for error in self._injected_errors:
                if error.matches(verb, resource):
                    error.times -= 1
                    return error
        return None

    def check_watch(self) -> None:
        """Count a watch from a resourceVersion, and let it expire if it has to.

        Raises:
            StatusError: 410 while `expire_watches` has further watches to expire.
        """
        with self._lock:
            if self._expired_watches <= 0:
                return
            self._expired_watches -= 1
        raise expired("The resourceVersion for the provided watch is too old.")
