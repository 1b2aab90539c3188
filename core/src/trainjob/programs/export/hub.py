"""Exports to the Hugging Face hub, in one commit, so that no reader sees a partial export."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from trainjob.errors import ExportError, TrainJobError
from trainjob.programs.export.hashed_file import HashedFile, hash_files, map_files
from trainjob.programs.export.layout import MANIFEST, ExportFile
from trainjob.programs.export.manifest_file import BuildContent, ExportContent, parse_manifest_files
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.progress import TransferProgress
from trainjob.programs.fetch.retries import with_retries

__all__ = ["HubTarget"]

_SMALL = 16 << 20  # bytes; the hub stores files of more than 10 MB as LFS files, which are uploaded before the commit
_UPLOADS_AT_ONCE = 8  # huggingface_hub uploads 5; a connection may be limited


@dataclass(frozen=True)
class HubTarget:
    """A model repository, or a folder in it.

    Attributes:
        repo: `org/name`. If it does not exist, a private repository is created.
        revision: a branch. If it does not exist, it is created from main.
        folder: folder in the repository; empty means its root.
        endpoint: address of the hub; empty means HF_ENDPOINT, or the public hub.
        token: access token; empty means the token that huggingface_hub finds.
    """

    repo: str
    revision: str
    folder: str
    endpoint: str = ""
    token: str = field(default="", repr=False)

    def send(
        self, files: Sequence[ExportFile], build: BuildContent, progress: TransferProgress
    ) -> tuple[ExportContent, str]:
        """Upload the missing files and commit; return the content and the commit.

        The same commit deletes the files of an earlier export that this one does not have. It deletes nothing else.

        Raises:
            ExportError: the hub refuses or cannot be reached, the repository has a manifest that no export wrote, or a
                file cannot be exported.
        """
        content = build(hash_files(files, progress))
        try:
            return content, self._send(content, progress)
        except TrainJobError:
            raise
        except Exception as failure:  # httpx errors, OSError or ValueError, depending on the version of huggingface_hub
            raise self._to_error(failure) from failure

    def _send(self, content: ExportContent, progress: TransferProgress) -> str:
        from huggingface_hub import CommitOperationDelete, HfApi
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        api = HfApi(endpoint=self.endpoint or None, token=self.token or None)
        with_retries(lambda: self._make_repo(api))
        manifest = self._read_manifest(api)
        earlier = frozenset() if manifest is None else parse_manifest_files(manifest)
        existing = set(with_retries(lambda: api.list_repo_files(self.repo, revision=self.revision)))
        stale = {self._in_repo(name) for name in earlier - {file.path for file in content.files}} & existing
        deletions = [CommitOperationDelete(path, is_folder=False) for path in sorted(stale)]
        message = f"Export {self.folder or 'model'}"
        with contextlib.ExitStack() as opened:
            with progress.report_periodically():
                additions = map_files(
                    lambda file: self._upload(api, file, progress, opened), content.all_files, _UPLOADS_AT_ONCE
                )
            operations = [*additions, *deletions]

            def commit() -> str:
                return str(api.create_commit(self.repo, operations, commit_message=message, revision=self.revision).oid)

            def find_commit() -> str | None:
                is_there = self._read_manifest(api) == content.manifest.file.content
                return str(api.repo_info(self.repo, revision=self.revision).sha) if is_there else None

            return with_retries(commit, find_commit)

    def _make_repo(self, api: Any) -> None:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        try:
            api.repo_info(self.repo)
        except GatedRepoError:
            raise
        except RepositoryNotFoundError:
            api.create_repo(self.repo, private=True, exist_ok=True)
        if self.revision != "main" and not self.revision.startswith("refs/"):
            api.create_branch(self.repo, branch=self.revision, exist_ok=True)

    def _read_manifest(self, api: Any) -> bytes | None:
        name = self._in_repo(MANIFEST)

        def read() -> bytes | None:
            if not api.file_exists(self.repo, name, revision=self.revision):
                return None
            with tempfile.TemporaryDirectory() as folder:
                path = api.hf_hub_download(self.repo, name, revision=self.revision, local_dir=folder)
                return Path(path).read_bytes()

        return with_retries(read)

    def _upload(self, api: Any, file: HashedFile, progress: TransferProgress, opened: contextlib.ExitStack) -> Any:
        """Upload the bytes of a large file ahead of the commit, and count the file.

        `opened` gets the file if the commit will read it.
        """
        from huggingface_hub import CommitOperationAdd

        with contextlib.ExitStack() as source:
            large = file.size > _SMALL and file.file.source
            content = source.enter_context(large.open()) if large else None
            addition = CommitOperationAdd(
                self._in_repo(file.path), _get_path(content) if content else b"".join(file.blocks(_SMALL))
            )
            addition.upload_info.sha256 = bytes.fromhex(file.sha256)  # otherwise the file is read again
            with_retries(lambda: api.preupload_lfs_files(self.repo, [addition], revision=self.revision))
            if content:
                file.check_unchanged(content)
            if addition.path_or_fileobj:  # preupload_lfs_files clears it after an upload
                opened.push(source.pop_all())
        # The hub returns the ID of its content for this path. The attributes are private; if they are missing, the file
        # counts as sent.
        known = getattr(addition, "_remote_oid", None)
        is_new = known is None or known != getattr(addition, "_local_oid", "")
        progress.add_bytes(file.size if is_new else 0)
        progress.report_file(file.path, file.size, moved=is_new)
        return addition

    def _in_repo(self, path: str) -> str:
        return f"{self.folder}/{path}" if self.folder else path

    def _to_error(self, failure: Exception) -> ExportError:
        address = f"hf://{self.repo}@{self.revision}"
        kind, text = type(failure).__name__, " ".join(str(failure).split())[:300]
        status = getattr(getattr(failure, "response", None), "status_code", None)
        if status in (401, 403):
            hint = "check ACCESS_TOKEN in the step's secret: it needs write access to this repository"
            return ExportError(f"{address}: access denied ({status})", hint=hint)
        if kind == "RepositoryNotFoundError":
            return ExportError(
                f"{address}: no such repository, or no access to it", hint="check the name and ACCESS_TOKEN"
            )
        advice = find_connection_advice(str(failure), "the export may be repeated at any time")
        return ExportError(f"{address}: {kind}: {text}", hint=advice)


def _get_path(opened: BinaryIO) -> str | BinaryIO:
    """Return a path that leads to an open file, even if another process replaces it.

    Linux has such paths. huggingface_hub 1.27 uploads paths with Xet, but not opened files.
    """
    path = Path(f"/proc/self/fd/{opened.fileno()}")
    return str(path) if path.exists() else opened
