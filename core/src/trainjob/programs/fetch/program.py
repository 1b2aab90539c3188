"""The fetch program, from its environment to its exit code.

It reads REVISION and the variables of the Trainer's initializers (Trainer 2.3 `pkg/initializers/utils/utils.py`,
get_config_from_env). Exit codes: 0 fetched (or already there), 1 failed, with one sentence about the reason, 2 wrong
arguments. Credentials come from the environment only, and are never printed.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainjob.addresses import MOUNTED_SCHEMES, STORE_SCHEMES, Kind, parse_source
from trainjob.credentials import clean_environment, redact_credentials
from trainjob.errors import FetchError, InvalidSpec, Problem, ProblemKind, TrainJobError
from trainjob.programs.fetch.bucket import create_bucket
from trainjob.programs.fetch.connections import use_certificates
from trainjob.programs.fetch.credentials import CREDENTIALS_HELP, check_secrets
from trainjob.programs.fetch.folder import Folder
from trainjob.programs.fetch.hub import HubSource
from trainjob.programs.fetch.listing import Listing, StoreFile, compute_digests
from trainjob.programs.fetch.mounted import MountedSource, find_models
from trainjob.programs.fetch.names import check_conflicts, check_names
from trainjob.programs.fetch.objects import ObjectSource
from trainjob.programs.fetch.part_file import PART_FOLDER, PartFile, get_part_names
from trainjob.programs.fetch.preparation import SOURCE_FOLDER, WORK_FOLDER, Preparation, add_options, parse_options
from trainjob.programs.fetch.progress import TransferProgress, format_size, print_line
from trainjob.programs.fetch.record import RECORD_FILE, RECORD_FOLDER, Record, RecordedFile, RecordWriter, read_record
from trainjob.programs.fetch.selection import choose_files, describe_choice
from trainjob.programs.fetch.transfer import transfer_files
from trainjob.programs.fetch.web import WebSource
from trainjob.version import check_version

__all__ = ["Fetch", "fetch", "main"]


_LOCK_FILE = f"{RECORD_FOLDER}/lock"  # held while a fetch fills the folder
_FULL_ADVICE = "enlarge the PersistentVolumeClaim, remove files from it, or leave files out with ignore_patterns"

Source = HubSource | ObjectSource | WebSource | MountedSource


@dataclass(frozen=True)
class Fetch:
    """The request of a fetch.

    Attributes:
        kind: `dataset` or `model`.
        folder: the target folder.
        uri: an address of [trainjob.addresses][].
        revision: a branch, a tag or a commit of a repository; empty means the newest commit.
        ignore_patterns: files not to fetch; see [trainjob.programs.fetch.selection.choose_files][].
        environment: endpoint, region, role and credentials, in the variables of the Trainer's initializers.
        source: folder at which a PersistentVolumeClaim or an image is mounted; None for other addresses.
        preparation: request to prepare the rows of a dataset; its files are then fetched into the subfolder `source`.
    """

    kind: Kind
    folder: Path
    uri: str
    revision: str = ""
    ignore_patterns: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    source: Path | None = None
    preparation: Preparation | None = None

    def place(self, file: StoreFile) -> StoreFile:
        """Return a file with its path below the target folder."""
        return replace(file, path=f"{SOURCE_FOLDER}/{file.path}") if self.preparation else file


def create_source(request: Fetch) -> Source:
    """Return the source that the request's address names.

    Raises:
        InvalidSpec: the address has no known form, or its files are to be mounted and the request names no folder.
    """
    env, address = request.environment, parse_source(request.uri, request.kind, "STORAGE_URI")
    endpoint = env.get("ENDPOINT", "")
    if address.scheme == "hf":
        token = env.get("ACCESS_TOKEN") or env.get("HF_TOKEN") or ""
        path = address.path if request.preparation else ""
        return HubSource(request.kind, address.bucket, request.revision or address.revision, path, endpoint, token)
    if address.scheme in STORE_SCHEMES:
        bucket = create_bucket(address, env, endpoint, env.get("REGION", ""), is_read_only=True)
        return ObjectSource(bucket, address.path)
    if address.scheme not in MOUNTED_SCHEMES:
        return WebSource(request.uri.partition("#")[0], address.revision, env.get("ACCESS_TOKEN", ""))
    if request.source is None:
        rule = f"name the folder at which {request.uri} is mounted"
        raise InvalidSpec(Problem("--source", "", rule, ProblemKind.MISSING))
    root = request.source.resolve()
    return MountedSource(root, find_models(root) if address.scheme == "oci" else address.path, request.uri)


def fetch(request: Fetch, report: Callable[[str], None] = print_line) -> dict[str, Any]:
    """Fill a folder with the files of a store, and check them; a repetition continues.

    Args:
        request: the request.
        report: function that takes the lines of progress; it may be called from other threads.

    Returns:
        `uri`, `revision`, `files`, `bytes`, and `fetched`, the number of files that had to be fetched.

    Raises:
        InvalidSpec: the address has no known form, or the dataset does not have the rows of the preparation.
        FetchError: the store refuses, cannot be reached, or sends other content than it lists; there is no file to
            fetch, or a model has no weights; the folder is full; or the rows cannot be prepared.
    """
    source = create_source(request)
    try:
        found = source.list_files()
        paths = choose_files(request.kind, [file.path for file in found.files], request.ignore_patterns, str(source))
        for line in describe_choice(request.kind, paths, {file.path: file.size for file in found.files}):
            report(f"fetch: {line}")
        chosen = set(paths)
        listing = replace(found, files=tuple(request.place(file) for file in found.files if file.path in chosen))
        advice = "exclude it with ignore_patterns"
        check_names(paths, str(source), FetchError, RECORD_FOLDER, hint=advice)
        check_conflicts(paths, str(source), FetchError, hint=advice)
        fetched = _FetchRun(source, listing, request, report).run()
    except TrainJobError:
        raise
    except Exception as failure:
        if getattr(failure, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError(f"the volume of {request.folder} is full: {failure}", hint=_FULL_ADVICE) from failure
        # opendal's errors have no common base; those of huggingface_hub are OSErrors, too.
        raise source.to_error(failure) from failure
    return {
        "uri": request.uri,
        "revision": listing.revision,
        "files": len(listing.files),
        "bytes": sum(file.size for file in listing.files),
        "fetched": fetched,
    }


class _FetchRun:
    """A running fetch."""

    def __init__(self, source: Source, listing: Listing, request: Fetch, report: Callable[[str], None]) -> None:
        self._source, self._listing, self._request, self._report = source, listing, request, report
        self._folder = Folder(request.folder)
        self._prepared_paths = request.preparation.paths if request.preparation else ()
        size = sum(file.size for file in listing.files)
        self._progress = TransferProgress("fetch", len(listing.files), size, report)

    def run(self) -> int:
        """Fetch the missing files and prepare the rows; return the number of fetched files."""
        total = format_size(sum(file.size for file in self._listing.files))
        at = f" at {self._listing.revision}" if self._listing.revision else ""
        self._report(f"fetch: {len(self._listing.files)} files, {total}, from {self._request.uri}{at}")
        self._folder.path.mkdir(parents=True, exist_ok=True)
        earlier = self._read_record()
        paths = {file.path for file in self._listing.files} | self._find_stale(earlier) | {*self._prepared_paths}
        for name in (*paths, _LOCK_FILE, f"{PART_FOLDER}/any", f"{WORK_FOLDER}/any"):
            self._folder.size(name)  # raises for a linked folder before anything changes
        if self._is_filled(earlier):
            return 0
        note = f"fetch: another fetch fills {self._folder.path}: waiting for its end"
        with self._folder.lock(_LOCK_FILE, lambda: self._report(note)):
            return self._fill(self._read_record())

    def _read_record(self) -> Record:
        earlier = read_record(self._folder.path)
        advice = "remove this record; the files in the folder are then compared with the store"
        check_names(earlier.files, f"{self._folder.path}/{RECORD_FILE}", FetchError, RECORD_FOLDER, hint=advice)
        return earlier

    def _find_stale(self, earlier: Record) -> set[str]:
        """Return the paths of recorded files that the request does not have."""
        return set(earlier.files) - {file.path for file in self._listing.files} - {*self._prepared_paths}

    def _is_filled(self, earlier: Record) -> bool:
        """Return whether the folder has exactly what is requested, and report it."""
        existing = [found for file in self._listing.files if (found := self._find_recorded(file, earlier))]
        prepared = self._find_prepared(existing, earlier)
        is_same = (earlier.uri, earlier.revision) == (self._request.uri, self._listing.revision)
        is_whole = len(existing) == len(self._listing.files) and len(prepared) == len(self._prepared_paths)
        if not (earlier.complete and is_same and is_whole) or self._find_stale(earlier):
            return False
        self._report("fetch: all files are in the folder already" + (", prepared" if prepared else ""))
        return True

    def _fill(self, earlier: Record) -> int:
        if self._is_filled(earlier):  # another fetch has filled it meanwhile
            return 0
        stale = self._find_stale(earlier)
        existing = [found for file in self._listing.files if (found := self._find_existing(file, earlier))]
        prepared = self._find_prepared(existing, earlier)
        self._remove_work_folder()
        if removed := {*stale, *(() if prepared else self._prepared_paths)} & earlier.files.keys():
            # A kill while files are removed leaves no complete record, but all are still listed.
            RecordWriter(self._folder.path, earlier.uri, earlier.revision, earlier.files.values()).close()
        for name in removed:
            self._folder.remove(name)
        missing, origin = self._list_missing(existing), (self._request.uri, self._listing.revision)
        with contextlib.closing(RecordWriter(self._folder.path, *origin, [*existing, *prepared])) as writer:
            fetched = self._fetch(missing, writer)
            self._folder.clear(PART_FOLDER)
            if self._request.preparation and not prepared:
                self._prepare(self._request.preparation, [*existing, *fetched], writer)
            writer.finish()
        return len(missing)

    def _find_prepared(self, existing: Sequence[RecordedFile], earlier: Record) -> list[RecordedFile]:
        """Return the records of the prepared files that are in the folder already.

        The result is empty if one is missing, or if the request or a fetched file has changed.
        """
        if not self._request.preparation or len(existing) < len(self._listing.files):
            return []
        mark = self._request.preparation.compute_mark(existing)
        found = [earlier.files[path] for path in self._prepared_paths if path in earlier.files]
        valid = [file for file in found if file.mark == mark and self._folder.size(file.path) == file.size]
        return valid if len(valid) == len(self._prepared_paths) else []

    def _prepare(self, preparation: Preparation, sources: Sequence[RecordedFile], writer: RecordWriter) -> None:
        rows = importlib.import_module("trainjob.programs.fetch.rows")  # packed only for a step that prepares rows
        try:
            for file in rows.prepare_rows(self._folder.path, preparation, sources, self._report):
                writer.add(file)  # first, because a later fetch removes only what a record lists
                self._folder.move(f"{WORK_FOLDER}/{file.path}", file.path)
        finally:
            self._remove_work_folder()

    def _remove_work_folder(self) -> None:
        """Remove the temporary files of a preparation, also those of a killed program."""
        gc.collect()  # NFS keeps a removed file, and thus its folder, while it is mapped into memory
        shutil.rmtree(self._folder.path / WORK_FOLDER, ignore_errors=True)

    def _find_recorded(self, file: StoreFile, earlier: Record) -> RecordedFile | None:
        """Return the valid record of a file that is in the folder; None without one."""
        found = earlier.files.get(file.path)
        is_valid = found and (found.size, found.mark) == (file.size, file.mark)
        return found if is_valid and self._folder.size(file.path) == file.size else None

    def _find_existing(self, file: StoreFile, earlier: Record) -> RecordedFile | None:
        """Return the record of a file that is in the folder already; None if it must be fetched.

        If the file has no valid record, but the store has a digest of it, its content is compared with the digest.
        """
        if recorded := self._find_recorded(file, earlier):
            return recorded
        if self._folder.size(file.path) != file.size:
            return None
        file = self._source.add_digest(file, has_arrived=False)
        return self._verify(file) if file.has_digest else None

    def _list_missing(self, existing: Sequence[RecordedFile]) -> list[StoreFile]:
        existing_paths = {file.path for file in existing}
        for file in self._listing.files:
            if file.path in existing_paths:
                self._progress.report_file(file.path, file.size, moved=False)
        return [file for file in self._listing.files if file.path not in existing_paths]

    def _fetch(self, files: Sequence[StoreFile], writer: RecordWriter) -> list[RecordedFile]:
        """Fetch files, and record each as soon as it is complete."""
        fetched: list[RecordedFile] = []
        for file in files:
            self._folder.remove(file.path)  # first, because a volume may not have space for both
        self._folder.clear(PART_FOLDER, keep={name for file in files for name in get_part_names(file)})
        self._check_space(files)

        def finish(part: PartFile) -> bool:
            file = self._source.add_digest(part.file, has_arrived=True)
            if not (recorded := _check_digests(file, part.sha256, part.blob)):
                return False
            part.move_to(file.path)
            fetched.append(recorded)
            writer.add(recorded)
            self._progress.report_file(file.path, file.size)
            return True

        create_reader, connections = self._source.create_readers(self._listing.revision), self._source.connections
        with self._progress.report_periodically():
            damaged = transfer_files(self._folder, files, create_reader, finish, self._progress, connections)
        if damaged:
            raise FetchError(
                f"{damaged[0].key} of {self._source} was damaged during the transfer",
                hint="its size or digest differs from the store's listing, or from the digest in the address",
            )
        return fetched

    def _check_space(self, files: Sequence[StoreFile]) -> None:
        """Raise a FetchError if the volume has no space for files, of which parts may be there."""
        size = sum(file.size for file in files) - sum(self._folder.list_usage(PART_FOLDER).values())
        free = self._folder.get_free_bytes()
        if free is not None and size > free:
            raise FetchError(
                f"the files need {format_size(size)} more, but the volume of {self._folder.path} has "
                f"{format_size(free)} left",
                hint=_FULL_ADVICE,
            )

    def _verify(self, file: StoreFile) -> RecordedFile | None:
        """Return the record of a file in the folder; None if its content differs from the listing."""
        with self._folder.open_for_reading(file.path) as content:
            return _check_digests(file, *compute_digests(content, file.size))


def _check_digests(file: StoreFile, sha256: str, blob: str) -> RecordedFile | None:
    """Return the record of a file with these digests; None if the store has others."""
    if file.sha256 not in ("", sha256) or file.blob not in ("", blob):
        return None
    return RecordedFile(file.path, file.size, file.mark, sha256)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fetch as a program and return its exit code.

    The last line of a successful run is `fetch: done {json}`.
    """
    if problem := clean_environment():
        return _fail(2, problem)
    if note := use_certificates():
        print_line(f"fetch: {note}")
    try:
        receipt = fetch(_parse_arguments(check_version(sys.argv[1:] if arguments is None else arguments)))
    except InvalidSpec as refusal:
        return _fail(2, str(refusal))
    except TrainJobError as failure:
        return _fail(1, str(failure))
    except Exception as error:  # noqa: BLE001 - a traceback may show a credential
        return _fail(1, f"{type(error).__name__}: {error}")
    print_line(f"fetch: done {json.dumps(receipt)}")
    return 0


def _parse_arguments(arguments: Sequence[str]) -> Fetch:
    parser = argparse.ArgumentParser(
        prog="python -m trainjob.programs.fetch", description="Fetch a dataset or a model."
    )
    parser.add_argument("--kind", required=True, choices=("dataset", "model"), help="what to fetch")
    parser.add_argument("--folder", required=True, type=Path, help="target folder")
    parser.add_argument("--source", type=Path, help="folder at which the files of pvc:// or oci:// are mounted")
    add_options(parser)
    names = ("SECRET", "VARIABLE")
    parser.add_argument("--secret", action="append", default=[], nargs="+", metavar=names, help=CREDENTIALS_HELP)
    given = parser.parse_args(arguments)
    check_secrets(given.secret, os.environ, FetchError)
    patterns = (pattern.strip() for pattern in os.environ.get("IGNORE_PATTERNS", "").split(","))
    return Fetch(
        given.kind,
        given.folder,
        os.environ.get("STORAGE_URI", "").strip(),
        os.environ.get("REVISION", "").strip(),
        tuple(pattern for pattern in patterns if pattern),
        dict(os.environ),
        given.source,
        parse_options(given),
    )


def _fail(code: int, message: str) -> int:
    print(f"fetch: failed: {redact_credentials(message)}", file=sys.stderr, flush=True)
    return code
