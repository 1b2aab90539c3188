"""Fetches from the Hugging Face hub, at one commit.

A dataset is the whole repository, even if its address names a folder, as in the initializers of Trainer 2.3
(`pkg/initializers/dataset/huggingface.py`). If its rows are prepared, it is only that folder or file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from trainjob.errors import FetchError
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.http_reader import HttpReader, Location, Locations
from trainjob.programs.fetch.listing import Listing, StoreFile
from trainjob.programs.fetch.retries import StatusError, get_status, with_retries
from trainjob.programs.fetch.transfer import CONNECTIONS, ReaderFactory

__all__ = ["HubSource"]


@dataclass(frozen=True)
class HubSource:
    """A repository on the hub.

    Attributes:
        kind: `dataset` or `model`.
        repository: `org/name`.
        revision: a branch, a tag or a commit; empty means the newest commit of `main`.
        path: folder or file of the repository whose files are listed, relative to it; empty means all.
        endpoint: address of the hub; empty means HF_ENDPOINT, or the public hub.
        token: access token; empty means the token that huggingface_hub finds.
    """

    kind: str
    repository: str
    revision: str
    path: str = ""
    endpoint: str = ""
    token: str = field(default="", repr=False)
    connections = CONNECTIONS

    def list_files(self) -> Listing:
        """Return the files of the repository, at the current commit of its revision."""
        api, kind = self._api, self.kind
        info = with_retries(lambda: api.repo_info(self.repository, repo_type=kind, revision=self.revision or None))
        tree = with_retries(
            lambda: list(api.list_repo_tree(self.repository, recursive=True, revision=info.sha, repo_type=kind))
        )
        files = [_store_file(entry) for entry in tree if hasattr(entry, "size")]
        if self.path:
            files = _select_below(files, PurePosixPath(self.path))
        return Listing(tuple(sorted(files, key=lambda file: file.path)), str(info.sha))

    def create_readers(self, revision: str) -> ReaderFactory:
        """Return the factory of readers at a commit.

        `hf_hub_download` is not used, because it chooses its own paths, restarts the download after a kill, reads a
        file over one connection, and verifies no digest (huggingface_hub 1.27, `_download_to_tmp_and_move`).
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        url = functools.partial(hf_hub_url, repo_type=self.kind, revision=revision, endpoint=self._api.endpoint)
        headers = build_hf_headers(token=self.token or None)
        return functools.partial(HttpReader, Locations(lambda file: Location(url(self.repository, file.key), headers)))

    def add_digest(self, file: StoreFile, *, has_arrived: bool) -> StoreFile:  # noqa: ARG002
        """Return the file unchanged, because the listing already contains its digest."""
        return file

    def to_error(self, failure: Exception) -> FetchError:
        """Return the error for a failure of huggingface_hub: one sentence, and a hint."""
        status = get_status(failure)
        if isinstance(failure, StatusError) and failure.from_store:
            status = failure.status
        kind, shown_status = type(failure).__name__, f"(HTTP {status})"
        if kind == "GatedRepoError" or status == 403:
            hint = f"request access to {self.repository} on the hub, and put ACCESS_TOKEN into the step's secret"
            return FetchError(f"no access to {self} {shown_status}", hint=hint)
        if kind == "RepositoryNotFoundError":
            return FetchError(
                f"{self} is not on the hub {shown_status}, or it is private", hint="check the name and ACCESS_TOKEN"
            )
        if kind == "RevisionNotFoundError":
            return FetchError(
                f"{self} does not exist {shown_status}", hint="check the revision: a branch, a tag or a commit"
            )
        if status == 401:
            return FetchError(f"the hub rejected ACCESS_TOKEN {shown_status} in a request for {self}")
        text = " ".join(str(failure).split())[:300]
        advice = find_connection_advice(str(failure), "the step may be repeated at any time")
        return FetchError(f"{self} can't be fetched: {kind}: {text}", hint=advice)

    def __str__(self) -> str:
        place = f"{self.repository}/{self.path}".rstrip("/")
        return f"{self.kind} {place}" + (f" at {self.revision}" if self.revision else "")

    @functools.cached_property
    def _api(self) -> Any:
        # One line per file is enough in a log. The library reads this variable when it is imported.
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint or None, token=self.token or None)


def _select_below(files: Sequence[StoreFile], path: PurePosixPath) -> list[StoreFile]:
    """Return the file at a path, or those in its folder, relative to the folder."""
    by_path = {PurePosixPath(file.path): file for file in files}
    folder = path.parent if path in by_path else path
    return [
        replace(file, path=found.relative_to(folder).as_posix())
        for found, file in by_path.items()
        if found.is_relative_to(path)
    ]


def _store_file(entry: Any) -> StoreFile:
    """Return a file of the hub's listing as a `StoreFile`.

    The hub identifies large files by their SHA-256, and the others by their git blob name.
    """
    large = getattr(entry, "lfs", None)
    sha256 = str(large.sha256) if large else ""
    blob = "" if large else str(entry.blob_id or "")
    return StoreFile(entry.path, entry.path, entry.size, sha256 or blob, sha256, blob)
