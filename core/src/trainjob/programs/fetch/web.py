"""Fetches of one file from a web server.

The service `http` of opendal 0.47 needs HEAD, allows no query in an address, and fails if a server ignores ranges.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from trainjob.errors import FetchError
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.http_reader import HttpReader, Location, Locations, open_location
from trainjob.programs.fetch.listing import Listing, StoreFile
from trainjob.programs.fetch.retries import with_retries
from trainjob.programs.fetch.transfer import ReaderFactory

__all__ = ["WebSource"]

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
    connections = 4  # a server of one file may be a small one

    def list_files(self) -> Listing:
        """Return the file, as the header of a response describes it.

        The request is a GET whose body is not read, because some servers refuse HEAD.
        """
        with with_retries(lambda: open_location(self._location)) as response:
            return Listing((self._describe(response),))

    def create_readers(self, revision: str) -> ReaderFactory:  # noqa: ARG002 - a file has none
        """Return the factory of readers."""
        return functools.partial(HttpReader, Locations(lambda _: self._location, self._check_unchanged))

    def add_digest(self, file: StoreFile, *, has_arrived: bool) -> StoreFile:  # noqa: ARG002
        """Return the file unchanged, because it already has the digest of the address."""
        return file

    def to_error(self, failure: Exception) -> FetchError:
        """Return the error for a failure of the HTTP library: one sentence, and a hint."""
        status, kind = getattr(failure, "status", None), type(failure).__name__
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

    @property
    def _location(self) -> Location:
        return Location(self.url, {"Authorization": f"Bearer {self.token}"} if self.token else {})

    def _check_unchanged(self, file: StoreFile, response: HTTPResponse) -> None:
        found = self._describe(response)
        if (found.size, found.mark) != (file.size, file.mark):
            raise self._changed()

    def _describe(self, response: HTTPResponse) -> StoreFile:
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
            size = headers.get("Content-Range", "").rpartition("/")[2]
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
