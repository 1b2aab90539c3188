"""Fetches of one file from a web server.

The standard library is used. The service `http` of opendal 0.47 needs HEAD, allows no query in an address, and fails if
a server ignores ranges. The HTTP library of huggingface_hub is requests or httpx, depending on its version.
"""

from __future__ import annotations

import re
import ssl
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from trainjob.errors import FetchError
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.listing import Listing, StoreFile
from trainjob.version import VERSION

__all__ = ["WebSource"]

_BLOCK = 1 << 20
_TIMEOUT = 60.0  # seconds without a byte
_PAUSES = (0.5, 1.0, 2.0)  # seconds between tries
_RETRY_STATUSES = (429, 500, 502, 503, 504)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_REPEAT = "the step may be repeated at any time"
_LOGIN_ADVICE = "give the step a Secret with the key ACCESS_TOKEN, which is sent as a Bearer token, or correct it"


@dataclass(frozen=True)
class WebSource:
    """One file of a web server.

    Attributes:
        url: the file's address, without a fragment.
        sha256: the file's digest in hex; empty if the address has none.
        token: Bearer token; empty for none.
    """

    url: str
    sha256: str = ""
    token: str = field(default="", repr=False)

    def list_files(self) -> Listing:
        """Return the file, as the header of a response describes it.

        The request is a GET whose body is not read, because some servers refuse HEAD.
        """
        with self._open(0) as response:
            return Listing((self._describe(response, 0),))

    def download(self, file: StoreFile, target: BinaryIO, revision: str) -> None:  # noqa: ARG002 - a file has none
        """Append the bytes of the file that `target` does not have yet.

        A broken connection is opened again as long as each one brings bytes. If the server ignores ranges, `target`
        is emptied first.
        """
        while (here := target.tell()) < file.size:
            with self._open(here) as response:
                found = self._describe(response, here)
                if (found.size, found.mark) != (file.size, file.mark):
                    raise self._changed()
                if response.status != 206:
                    target.truncate(0)
                _append(response, target)
            if target.tell() <= here:
                raise FetchError(f"{self} sent no bytes after the first {here}", hint=_REPEAT)

    def add_digest(self, file: StoreFile) -> StoreFile:
        """Return the file unchanged, because it already has the digest of the address."""
        return file

    def to_error(self, failure: Exception) -> FetchError:
        """Return the error for a failure of the HTTP library: one sentence, and a hint."""
        status, kind = getattr(failure, "code", None), type(failure).__name__
        if status in (401, 403):
            return FetchError(f"{self}: access denied (HTTP {status})", hint=_LOGIN_ADVICE)
        if status in (404, 410):
            return FetchError(f"{self} does not exist (HTTP {status})", hint="correct the address")
        if status == 416:  # the file has become smaller
            return self._changed()
        text = f"HTTP {status}" if status else f"{kind}: {' '.join(str(failure).split())[:300]}"
        return FetchError(f"{self} can't be fetched: {text}", hint=find_connection_advice(str(failure), _REPEAT))

    def __str__(self) -> str:
        return self.url

    def _open(self, offset: int) -> Any:
        """Return the response with the file from an offset on.

        The request is repeated if the server cannot be reached, or is busy.
        """
        for pause in _PAUSES:
            try:
                return self._open_once(offset)
            except HTTPError as refusal:
                if refusal.code not in _RETRY_STATUSES:
                    raise
            except URLError as failure:
                if isinstance(failure.reason, ssl.SSLError):
                    raise
            time.sleep(pause)
        return self._open_once(offset)

    def _open_once(self, offset: int) -> Any:
        request = Request(self.url, headers={"User-Agent": f"trainjob/{VERSION}"})  # noqa: S310 - http(s)
        if offset:
            request.add_header("Range", f"bytes={offset}-")
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        return build_opener(_Redirects).open(request, timeout=_TIMEOUT)

    def _describe(self, response: Any, offset: int) -> StoreFile:
        """Return the file that the header of a response describes.

        Raises:
            FetchError: the response has no length, nothing that changes with the content, or is a web page.
        """
        headers, name = response.headers, PurePosixPath(unquote(urlsplit(self.url).path)).name
        if headers.get_content_type() == "text/html" and not name.lower().endswith((".html", ".htm")):
            hint = f"it may be the page of a login: {_LOGIN_ADVICE}; or name the address of the file itself"
            raise FetchError(f"the response of {self} is a web page (text/html), not the file {name}", hint=hint)
        size = headers.get("Content-Length", "")
        if response.status == 206:
            found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
            size = found[2] if found and int(found[1]) == offset else ""
        if not size.isdecimal():
            hint = "without it a complete file can't be distinguished from a part of it: put the file into a store"
            raise FetchError(f"{self}: the response has no valid length", hint=hint)
        mark = " ".join(filter(None, (headers.get("ETag"), headers.get("Last-Modified")))) or self.sha256
        if not mark:
            hint = "add #sha256=HEX to the address, by which the file is checked"
            raise FetchError(
                f"{self}: the response has neither ETag nor Last-Modified, so a change is not seen", hint=hint
            )
        return StoreFile(name, name, int(size), mark, self.sha256)

    def _changed(self) -> FetchError:
        return FetchError(f"{self} changed while it was fetched", hint=_REPEAT)


class _Redirects(HTTPRedirectHandler):
    """A handler that keeps the token on its server, and the connection encrypted."""

    def redirect_request(self, request: Request, *response: Any) -> Request | None:
        """Return the request to the address of the redirect.

        Raises:
            FetchError: the redirect leads from HTTPS to another protocol.
        """
        following = super().redirect_request(request, *response)
        if following is None:
            return None
        if following.type not in ("https", request.type):
            hint = "name the address of the file itself"
            raise FetchError(f"{request.full_url} redirects to {following.type}://, without TLS", hint=hint)
        token = request.unredirected_hdrs.get("Authorization")
        if token and (following.type, following.host) == (request.type, request.host):
            following.add_unredirected_header("Authorization", token)
        return following


def _append(response: Any, target: BinaryIO) -> None:
    """Append the body of a response, or the part before its connection breaks."""
    while True:
        try:
            block = response.read(_BLOCK)
        except (OSError, HTTPException):
            return
        if not block:
            return
        target.write(block)
