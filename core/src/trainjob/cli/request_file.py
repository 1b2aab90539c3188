"""Requests in the file of a command, and their run keys."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from trainjob.cli import completion
from trainjob.errors import AdmissionRefused, InvalidSpec, Problem
from trainjob.lifecycle import RunKey
from trainjob.lifecycle.prepared_job import PreparedJob, prepare_job
from trainjob.manifest import spec_hash
from trainjob.manifest.request_parser import parse_documents
from trainjob.project_code import pack_request
from trainjob.spec import Step
from trainjob.spec.yaml_documents import SourceDocument

FILE = typer.Argument(
    metavar="FILE",
    help="YAML or JSON file with TrainJobs, their training runtimes, or steps; - means standard input.",
    show_default=False,
)
NAME = typer.Option(help="Prefix of the TrainJob's name, if the file has one document.", show_default=False)
RUN_ID = typer.Option(
    help="Identifier of this run. Submitting again with the same ID adopts a running or succeeded TrainJob instead of "
    "creating another.",
    show_default=False,
)
NAMESPACE = completion.create_namespace_option(
    "Namespace. Default: that of the file, then that of the kubeconfig's context."
)
# Paths of fields in messages of the API server, such as `unknown field "spec.trainer.imagee"`.
_FIELD = re.compile(r"\b(?:spec|metadata)(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])+")
_MAX_FILE_BYTES = 4 << 20  # bytes of a file; the limit of one document is a quarter of this


@dataclass(frozen=True)
class UserRequest:
    """One request and its run key.

    Attributes:
        request: the request.
        key: the run key.
        renewal: a new value for each command without a run ID, so that a TrainJob that succeeded runs again; empty with
            a run ID.
        source: where the request is written; None if it is not from a file.
    """

    request: Step
    key: RunKey
    renewal: str
    source: SourceDocument | None = None

    def prepare(self, namespace: str, default_namespace: str = "default") -> PreparedJob:
        """Return the request as it would be sent.

        See `trainjob.lifecycle.prepared_job.prepare_job`.
        """
        return prepare_job(self.request, self.key, namespace, default_namespace=default_namespace, renewal=self.renewal)

    @contextlib.contextmanager
    def locate_errors(self) -> Iterator[None]:
        """Add file and line to the message if the API server refuses the request in this block.

        Raises:
            AdmissionRefused: the API server refuses it.
        """
        try:
            yield
        except AdmissionRefused as error:
            if self.source:
                fields = _FIELD.findall(error.message)
                where = self.source.locate(*fields, *(f"manifest.{field}" for field in fields))
                error.message = f"{where}: {error.message}"
            raise


@dataclass(frozen=True)
class FileContent:
    """The content of a command's file.

    Attributes:
        requests: the requests with their run keys.
        runtimes: the training runtimes, which are created before the TrainJobs.
    """

    requests: list[UserRequest]
    runtimes: list[dict[str, Any]]


def read_file(file: str, name: str, run_id: str) -> FileContent:
    """Return the requests and training runtimes of a file.

    Without a run ID, the user and the content form the run key. Submitting the same content again then adopts a running
    TrainJob, and creates a new one if the TrainJob has ended. With a run ID, only this ID and the task form the key. A
    TrainJob that succeeded under it is then adopted, too, and a changed content replaces a running TrainJob.

    Args:
        file: path of the file; `-` means standard input.
        name: start of the only request's name; empty keeps the request's own name.
        run_id: ID of the run; may be empty.

    Raises:
        InvalidSpec: the file cannot be read, or a request breaks a rule.
    """
    found = parse_documents(_read_text(file), "standard input" if file == "-" else file, name=name)
    _check_tasks(found.sources, [_task_name(request) for request in found.requests])
    folder = Path() if file == "-" else Path(file).parent
    pairs = zip(found.requests, found.sources, strict=True)
    packed = [(_pack_code(request, folder, source), source) for request, source in pairs]
    return FileContent([to_user_request(request, run_id, source) for request, source in packed], found.runtimes)


def _pack_code(request: Step, folder: Path, source: SourceDocument) -> Step:
    """Pack the code of a request; its path starts at the folder of the file."""
    try:
        return pack_request(request, folder.absolute())
    except InvalidSpec as error:
        problems = [replace(one, field=f"{source.locate(one.field)}: {one.field}") for one in error.problems]
        raise InvalidSpec(problems, hint=error.hint) from None


def to_user_request(request: Step, run_id: str = "", source: SourceDocument | None = None) -> UserRequest:
    """Return a request with the run key of the command's user; see [read_file][]."""
    return UserRequest(request, _key(request, run_id), "" if run_id else uuid.uuid4().hex, source)


def _key(request: Step, run_id: str) -> RunKey:
    if run_id:
        return RunKey("cli", "", _task_name(request), run_id)
    return RunKey("cli", _user(), _task_name(request), spec_hash(request))


def _task_name(request: Step) -> str:
    kind = type(request).__name__
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind).lstrip("-")
    return request.name or ("train-job" if kind == "TrainJobManifest" else words)


def _check_tasks(sources: Sequence[SourceDocument], tasks: Sequence[str]) -> None:
    first: dict[str, SourceDocument] = {}
    problems = []
    for source, task in zip(sources, tasks, strict=True):
        known = first.setdefault(task, source)
        if known is not source:
            allowed = f"the document in line {known.line} has this name, too: give each document another name"
            problems.append(Problem(f"{source.file}:{source.line}: name", repr(task), allowed))
    if problems:
        raise InvalidSpec(problems)


def _read_text(file: str) -> str:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(_MAX_FILE_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise InvalidSpec(Problem("FILE", repr(file), f"it may have at most {_MAX_FILE_BYTES} bytes"))
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidSpec(
            Problem("FILE", repr(file), f"it must be a file that can be read: {error.strerror}")
        ) from None
    except UnicodeDecodeError as error:
        rule = f"it must be text in UTF-8: {error.reason} at byte {error.start}"
        raise InvalidSpec(Problem("FILE", repr(file), rule)) from None


def _user() -> str:
    with contextlib.suppress(OSError, KeyError):  # in containers the user often has no name
        return getpass.getuser()
    return str(os.getuid())
