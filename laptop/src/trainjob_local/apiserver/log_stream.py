"""The log of a pod over HTTP: checks of the request, and a thread for the log source."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from trainjob_local.apiserver.request_parsing import Query, parse_flag, parse_integer
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.status_errors import FieldProblem, StatusError, bad_request, invalid
from trainjob_local.apiserver.store import StoredObject

__all__ = ["LogRequest", "LogSource", "LogStream", "parse_log_request"]

_LOG = logging.getLogger(__name__)
_OPTIONS = Resource("", "v1", "podlogoptions", "PodLogOptions")
_MAX_PENDING_CHUNKS = 64
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True)
class LogRequest:
    """One request for the log of an existing container; the server has checked that it exists.

    Attributes:
        namespace: the pod's namespace.
        pod: the pod's name.
        uid: the pod's uid.
        container: the container's name, never empty.
        follow: whether the log continues until the container ends.
        previous: whether to read the log of the instance before the last restart.
        tail_lines: maximum number of lines, counted from the end; None for all.
        since: earliest time of a line; None for all lines.
        limit_bytes: maximum size in bytes; None for no limit.
        timestamps: whether each line begins with its RFC 3339 time.
        cancelled: event that is set when the client has disconnected; a source that follows must then end within about
            one second.
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
"""Function that returns an iterator over pieces of a log, of any size.

The server calls and iterates it on a thread of its own, where it may block. If there is no log, the call raises
`StatusError`, such as 400 `container "c" in pod "p" is waiting to start: ContainerCreating`. The response begins when
the call has returned. If it returned a generator, the server closes the generator after the log has ended or the client
has disconnected."""


def parse_log_request(stored: StoredObject, query: Query, now: datetime) -> LogRequest:
    """Return the request for the log source.

    Args:
        stored: the pod.
        query: query of the HTTP request.
        now: current time, from which `sinceSeconds` counts.

    Raises:
        StatusError: 400 if a value is not valid, the pod has no such container, or the query must name one because the
            pod has several; 422 if a number is too small, or if both `sinceTime` and `sinceSeconds` are given.
    """
    namespace, pod = stored.key
    numbers = {name: parse_integer(query, name) for name in ("tailLines", "sinceSeconds", "limitBytes")}
    _check_numbers(numbers, query, pod)
    return LogRequest(
        namespace=namespace,
        pod=pod,
        uid=stored.body["metadata"]["uid"],
        container=_choose_container(stored.body, pod, query.get("container", "")),
        follow=parse_flag(query, "follow"),
        previous=parse_flag(query, "previous"),
        tail_lines=numbers["tailLines"],
        since=_parse_since(query.get("sinceTime", ""), numbers["sinceSeconds"], now),
        limit_bytes=numbers["limitBytes"],
        timestamps=parse_flag(query, "timestamps"),
    )


def _check_numbers(numbers: Mapping[str, int | None], query: Query, pod: str) -> None:
    problems = []
    for name, least, text in (("tailLines", 0, "greater than or equal to 0"), ("sinceSeconds", 1, "greater than 0"),
                              ("limitBytes", 1, "greater than 0")):  # fmt: skip
        value = numbers[name]
        if value is not None and value < least:
            problems.append(FieldProblem(name, "Invalid value", str(value), f"must be {text}"))
    if numbers["sinceSeconds"] is not None and query.get("sinceTime"):
        detail = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        problems.append(FieldProblem("[]", "Forbidden", detail=detail))
    if problems:
        raise invalid(_OPTIONS, pod, problems)


def _choose_container(body: Mapping[str, Any], pod: str, requested: str) -> str:
    spec = body["spec"]
    names = [container["name"] for key in ("initContainers", "containers") for container in spec.get(key) or ()]
    if not requested and len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {pod}, choose one of: [{' '.join(names)}]")
    if requested and requested not in names:
        raise bad_request(f"container {requested} is not valid for pod {pod}")
    return requested or str(names[0])


def _parse_since(text: str, seconds: int | None, now: datetime) -> datetime | None:
    if seconds is not None:
        return now - timedelta(seconds=seconds)
    if not text:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        shown = json.dumps(text)
        raise bad_request(f'parsing time {shown} as "2006-01-02T15:04:05Z07:00": cannot parse {shown} as "2006"')
    whole, fraction, zone = found.groups()
    moment = datetime.fromisoformat(whole + (fraction or ".0")[:7].ljust(7, "0") + zone.replace("Z", "+00:00"))
    return moment.astimezone(timezone.utc)


class LogStream:
    """A log source that runs on a thread and passes its pieces to the event loop.

    The source pauses while 64 pieces wait for the client.

    Args:
        source: function that returns the log.
        request: request for the log.
        loop: event loop of the server.
    """

    def __init__(self, source: LogSource, request: LogRequest, loop: asyncio.AbstractEventLoop) -> None:
        self._source, self._request, self._loop = source, request, loop
        self._chunks: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._free_slots = threading.Semaphore(_MAX_PENDING_CHUNKS)
        self._thread = threading.Thread(target=self._run, name=f"log of {request.pod}", daemon=True)

    async def start(self) -> AsyncGenerator[bytes, None]:
        """Call the source and return the body of the response.

        Raises:
            StatusError: the source rejects the request.
        """
        self._thread.start()
        if isinstance(result := await self._chunks.get(), BaseException):
            raise result
        return self._iterate_chunks()

    async def _iterate_chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while isinstance(chunk := await self._chunks.get(), bytes):
                self._free_slots.release()
                if chunk:
                    yield chunk
        finally:
            self._request.cancelled.set()
            self._free_slots.release()

    # -- on the source's thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            chunks = self._source(self._request)
            self._put_chunk(b"")  # the source accepts the request: the response begins, even if the log is still empty
            try:
                self._forward(chunks)
            finally:
                if isinstance(chunks, Generator):
                    chunks.close()
            self._put_chunk(None)
        except StatusError as status_error:
            self._put_chunk(status_error)
        except Exception as error:  # noqa: BLE001 - logged
            _LOG.exception("the log of %s failed", self._request.pod)
            self._put_chunk(StatusError(500, "InternalError", f"Internal error occurred: {error}"))

    def _forward(self, chunks: Iterator[bytes]) -> None:
        for chunk in chunks:
            self._free_slots.acquire()
            if self._request.cancelled.is_set():
                return
            self._put_chunk(chunk)

    def _put_chunk(self, chunk: bytes | BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
