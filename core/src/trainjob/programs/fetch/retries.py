"""The retry rule of all transfers between a folder and a store.

A request that fails for a reason that may pass is repeated, with growing pauses. Only failures without progress in
between count: a file of 100 GB may lose its connection a hundred times.
"""

from __future__ import annotations

import email.utils
import errno
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from email.message import Message
from http.client import HTTPException
from typing import TypeVar

__all__ = [
    "ATTEMPTS",
    "Retries",
    "StatusError",
    "get_status",
    "is_of_writer",
    "is_transient",
    "parse_retry_after",
    "with_retries",
]

T = TypeVar("T")
ATTEMPTS = 8
"""Failures in succession, without a byte in between, after which a transfer fails: the pauses take about a minute."""
_FIRST_ATTEMPTS = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0  # seconds
_LONGEST_RETRY_AFTER = 310.0  # the hub counts requests in windows of five minutes
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_ERRNOS = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT})
_CONNECTION_ERRORS = (ConnectionError, TimeoutError, HTTPException, ssl.SSLError, socket.gaierror)
# Errors of the HTTP libraries of huggingface_hub: httpx since 1.0, requests before.
_HTTP_LIBRARIES = ("httpx", "httpcore", "requests", "urllib3")
_XML_REASON = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<]*)</Message>")  # of S3 and those that follow it
_STATUS_OF_OPENDAL = re.compile(r"\bstatus: (\d{3})\b")
# S3's codes of status 400 for a connection that was too slow, and of 404 for an upload that a lost response has ended.
_TRANSIENT_CODES = ("RequestTimeout", "NoSuchUpload")
_JITTER = random.SystemRandom()


class StatusError(Exception):
    """A response with an HTTP status that is an error.

    Attributes:
        status: the HTTP status.
        host: the host that responded.
        body: the beginning of the body, which may name the reason.
        retry_after: seconds to wait before the next request, if the server said so.
        from_store: whether the store itself responded, not a host to which it redirected.
    """

    def __init__(self, status: int, host: str, body: str, retry_after: float, *, from_store: bool) -> None:
        reason = _XML_REASON.search(body)
        text = f', code: "{reason[1]}", message: "{reason[2]}"' if reason else ""
        super().__init__(f"HTTP {status} from {host}{text}")
        self.status, self.host, self.body = status, host, body
        self.retry_after, self.from_store = retry_after, from_store

    @property
    def is_expired_address(self) -> bool:
        """Whether a signed address may have expired; the store then has to sign another."""
        return self.status in (400, 403, 410) and (not self.from_store or "xpired" in self.body)


class Retries:
    """Counter of the failures of one transfer since its last progress.

    Args:
        stopped: event that ends a pause early, and makes the failure final.
        report: function that takes a line about each repetition but the first two.
        is_first_contact: whether nothing is known of the server yet. Its address may then be wrong, so a connection
            that fails is tried for some seconds only.
    """

    def __init__(
        self,
        stopped: threading.Event | None = None,
        report: Callable[[str], None] | None = None,
        *,
        is_first_contact: bool = False,
    ) -> None:
        self._stopped, self._report, self._is_first_contact = stopped or threading.Event(), report, is_first_contact
        self._failures = 0

    def reset(self) -> None:
        """Start to count again, because the transfer has made progress."""
        self._failures = 0

    def wait(self, failure: Exception) -> None:
        """Wait until the request may be repeated.

        Raises:
            Exception: `failure`, if a repetition does not help, or did not help.
        """
        self._failures += 1
        has_response = isinstance(failure, StatusError) or get_status(failure) is not None
        attempts = _FIRST_ATTEMPTS if self._is_first_contact and not has_response else ATTEMPTS
        if self._failures >= attempts or self._stopped.is_set() or not is_transient(failure):
            raise failure
        pause = min(_FIRST_PAUSE * 2.0 ** (self._failures - 1), _LONGEST_PAUSE) * (1 - 0.5 * _JITTER.random())
        pause = max(pause, min(_get_retry_after(failure), _LONGEST_RETRY_AFTER))
        if self._report and self._failures > 2:
            text = " ".join(str(failure).split())[:200] or type(failure).__name__
            self._report(f"{text}; attempt {self._failures + 1} of {attempts} in {pause:.0f} s")
        if self._stopped.wait(pause):
            raise failure


def with_retries(request: Callable[[], T], find_result: Callable[[], T | None] | None = None) -> T:
    """Return the result of a request; repeat it after failures that may pass.

    Args:
        request: the request.
        find_result: function that is called before a repetition. It returns the result if only the response to the
            earlier request was lost, else None.
    """
    retries, is_repetition = Retries(is_first_contact=True), False
    while True:
        try:
            if is_repetition and find_result and (found := find_result()) is not None:
                return found
            is_repetition = True
            return request()
        except Exception as failure:  # noqa: BLE001 - `wait` raises those that a repetition does not help
            # huggingface_hub reports a failed upload as a RuntimeError, and the reason as its cause.
            cause = failure.__cause__ if type(failure) is RuntimeError else None
            retries.wait(cause if isinstance(cause, Exception) else failure)


def is_transient(failure: Exception) -> bool:
    """Return whether a failed request may succeed when it is repeated."""
    if isinstance(failure, StatusError):
        return failure.status in _TRANSIENT_STATUSES or failure.is_expired_address
    if isinstance(failure, ssl.SSLCertVerificationError):
        return False
    if isinstance(failure, _CONNECTION_ERRORS) or getattr(failure, "errno", None) in _TRANSIENT_ERRNOS:
        return True
    library = type(failure).__module__.partition(".")[0]
    if (status := get_status(failure)) is not None:
        return status in _TRANSIENT_STATUSES
    if library in _HTTP_LIBRARIES:
        return "CERTIFICATE_VERIFY_FAILED" not in str(failure)
    return (library == "opendal" or is_of_writer(failure)) and _is_transient_in_opendal(failure)


def is_of_writer(failure: Exception) -> bool:
    """Return whether a writer of opendal 0.47 has failed.

    Its OSError has the text of opendal's own error.
    """
    return type(failure) is OSError and failure.errno is None and ", context: {" in str(failure)


def parse_retry_after(headers: Mapping[str, str] | Message) -> float:
    """Return the seconds in a response's `Retry-After`; 0 without one."""
    value = (headers.get("Retry-After") or "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, IndexError):
        return 0.0


def _is_transient_in_opendal(failure: Exception) -> bool:
    """Return whether a repetition may help.

    opendal 0.47 calls a failure persistent if it has repeated the request itself.
    """
    text, status = str(failure), _STATUS_OF_OPENDAL.search(str(failure))
    is_busy = bool(status and int(status[1]) in _TRANSIENT_STATUSES) or any(code in text for code in _TRANSIENT_CODES)
    return is_busy or type(failure).__name__ == "RateLimited" or "(temporary)" in text or "send http request" in text


def get_status(failure: Exception) -> int | None:
    """Return the HTTP status of a failure of huggingface_hub."""
    return getattr(getattr(failure, "response", None), "status_code", None)


def _get_retry_after(failure: Exception) -> float:
    if isinstance(failure, StatusError):
        return failure.retry_after
    headers = getattr(getattr(failure, "response", None), "headers", None)
    return parse_retry_after(headers) if headers is not None else 0.0
