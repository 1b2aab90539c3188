"""The export program, from its arguments to its exit code.

Exit codes: 0 exported (or already there), 1 failed, with one sentence about the reason, 2 wrong arguments. Credentials
come from the environment only, and are never printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.credentials import clean_environment, redact_credentials
from trainjob.errors import ExportError, InvalidSpec, Problem, TrainJobError
from trainjob.programs.export.base_card import read_inherited_fields
from trainjob.programs.export.card import with_card
from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.export.code_origin import read_code_origin
from trainjob.programs.export.destinations import Access, Target, create_target
from trainjob.programs.export.finished_run import FinishedRun, find_run
from trainjob.programs.export.folder import FolderTarget
from trainjob.programs.export.hashed_file import HashedFile
from trainjob.programs.export.layout import find_missing_files, is_trained_on, plan_files
from trainjob.programs.export.manifest_file import ExportContent, build_content, check_metadata
from trainjob.programs.export.mlflow_registration import MLflowEntry, MLflowRegistration
from trainjob.programs.export.origin import OriginRule, check_origin, get_own_run, read_origin
from trainjob.programs.export.receipt import Receipt
from trainjob.programs.export.registration import Registration, RegistryEntry
from trainjob.programs.fetch.connections import use_certificates
from trainjob.programs.fetch.credentials import CREDENTIALS_HELP, check_secrets
from trainjob.programs.fetch.progress import TransferProgress, format_size, print_line
from trainjob.programs.fetch.record import read_record
from trainjob.programs.registry_client import TOKEN_VARIABLE, get_authorization
from trainjob.version import check_version

__all__ = ["Export", "export_model", "main"]

# Fields of --registry by backend: the required ones, of which the first is the server's URL, and the others.
_REGISTRY_FIELDS = {
    "": (("server", "model", "uri"), ("version", "author")),
    "mlflow": (("tracking_uri", "model", "uri"), ("alias",)),
}


@dataclass(frozen=True)
class Export:
    """The request of an export.

    Attributes:
        output: folder that the training wrote to.
        model: folder of the base model; it may be missing.
        destination: an address, see [trainjob.programs.export.destinations][].
        access: endpoint, region and credentials of the destination.
        metadata: values for the manifest, unchanged: `base_model`, `dataset`, `run_key`, `parameters`, `created`, …
            They override the values from the workspace: `parameters` of the run's own configuration, and the origins of
            dataset and model.
        registry_entry: entry in a model registry; None for no registration.
        dataset: folder of the dataset; it may be missing.
        adapter: `merge` for the merged model of a LoRA run, or for its adapter if the run has no merged model; `keep`
            for the adapter alone.
        origin: the TrainJobs and runs whose checkpoint is exported; a checkpoint of another origin is refused.
    """

    output: Path
    model: Path
    destination: str
    access: Access = field(default_factory=Access)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    registry_entry: RegistryEntry | MLflowEntry | None = None
    dataset: Path | None = None
    adapter: str = "merge"
    origin: OriginRule = field(default_factory=OriginRule)


def export_model(request: Export, report: Callable[[str], None] = print_line) -> Receipt:
    """Export the final checkpoint of a run.

    It may be repeated: a complete export is not changed, and an interrupted one is completed.

    Args:
        request: the request.
        report: function that takes the lines of progress; it may be called from other threads.

    Raises:
        InvalidSpec: the destination has no known form.
        ExportError: there is no complete checkpoint of an accepted origin, or it cannot be sent or registered.
        OSError: a folder cannot be read or written.
    """
    target = create_target(request.destination, request.access)
    origin_note = check_origin(request.output, request.origin)
    run = find_run(request.output, request.adapter)
    checkpoint, metrics = run.checkpoint, run.metrics
    _check_no_overlap(target, request.model, checkpoint)
    metadata = {**_read_workspace_metadata(request, run), **request.metadata}
    check_metadata(metadata)
    files = plan_files(checkpoint, request.model, str(metadata.get("base_model") or ""), request.output)
    missing = find_missing_files(checkpoint, files, request.model)
    inherited = read_inherited_fields(request.model) if is_trained_on(checkpoint, request.model) else {}
    files = with_card(files, checkpoint, metrics, metadata, inherited)
    total = sum(file.get_size() for file in files)
    for note in filter(None, [origin_note, *missing, *_list_notes(run, metadata)]):
        report(f"export: {note}")
    report(
        f"export: {checkpoint.kind} of {checkpoint.name} ({checkpoint.dtype or 'mixed types'}), "
        f"{len(files)} files, {format_size(total)}, to {request.destination}"
    )

    def build(hashed: Sequence[HashedFile]) -> ExportContent:
        content = build_content(hashed, checkpoint, metrics, metadata)
        if registration := _create_registration(request, content.manifest.sha256):
            registration.check()
        return content

    progress = TransferProgress("export", len(files) + 1, total, report)
    content, revision = target.send(files, build, progress)
    registration = _create_registration(request, content.manifest.sha256)
    registered = registration.create({**metadata, "metrics": metrics, "revision": revision}) if registration else {}
    if registered:
        report(f"export: registered version {registered['version']} of {registered['model']}")
    return Receipt(
        destination=request.destination,
        kind=checkpoint.kind,
        epoch=checkpoint.epoch,
        files=len(files),
        bytes=total,
        sent=progress.files_moved,
        manifest_sha256=content.manifest.sha256,
        revision=revision,
        metrics=dict(metrics),
        registered=registered,
        step=checkpoint.step,
    )


def _create_registration(request: Export, digest: str) -> Registration | MLflowRegistration | None:
    entry = request.registry_entry
    if isinstance(entry, MLflowEntry):
        return MLflowRegistration(entry, digest, read_origin(request.output))
    return Registration(entry, digest) if entry else None


def _read_workspace_metadata(request: Export, run: FinishedRun) -> dict[str, Any]:
    """Return the metadata in the workspace: origins, and the run's own values."""
    base_model = request.model if is_trained_on(run.checkpoint, request.model) else None
    known: dict[str, Any] = {}
    for name, folder in (("base_model", base_model), ("dataset", request.dataset)):
        if folder and (record := read_record(folder)).complete:
            known[name] = record.uri
            known |= {f"{name}_revision": record.revision} if record.revision else {}
    origin = read_origin(request.output)
    code = read_code_origin(request.output, origin.job)
    return {**known, **run.metadata, **origin.to_dict(), **({"code": dict(code)} if code else {})}


def _list_notes(run: FinishedRun, metadata: Mapping[str, Any]) -> Iterator[str]:
    if run.note:
        yield run.note
    if run.checkpoint.kind == "adapter" and not metadata.get("base_model"):
        yield "the origin of the adapter's base model is not known; add base_model to the metadata to record it"


def _check_no_overlap(target: Target, model: Path, checkpoint: Checkpoint) -> None:
    if isinstance(target, FolderTarget):
        for folder in (model, checkpoint.folder):
            if target.overlaps(folder):
                raise InvalidSpec(
                    Problem("destination", str(target.path), f"name a folder outside {folder} that does not contain it")
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the export as a program and return its exit code.

    The last line of a successful run is `export: done {json}`.
    """
    if problem := clean_environment():
        return _fail(2, problem)
    if note := use_certificates():
        print_line(f"export: {note}")
    try:
        receipt = export_model(_parse_arguments(check_version(sys.argv[1:] if arguments is None else arguments)))
    except InvalidSpec as refusal:
        return _fail(2, str(refusal))
    except (TrainJobError, OSError) as failure:
        return _fail(1, str(failure))
    except Exception as error:  # noqa: BLE001 - a traceback may show a credential
        return _fail(1, f"{type(error).__name__}: {error}")
    print_line(f"export: done {json.dumps(receipt.to_dict())}")
    return 0


def _parse_arguments(arguments: Sequence[str]) -> Export:
    parser = argparse.ArgumentParser(
        prog="python -m trainjob.programs.export", description="Export the final checkpoint of a run."
    )
    parser.add_argument("--output", type=Path, default=Path("/workspace/output"), help="folder that the run wrote to")
    parser.add_argument("--model", type=Path, default=Path("/workspace/model"), help="folder of the base model")
    parser.add_argument("--dataset", type=Path, default=Path("/workspace/dataset"), help="folder of the dataset")
    forms = "/folder, or an address such as s3://bucket/path or hf://org/name[@revision][/folder]"
    parser.add_argument("--destination", required=True, help=forms)
    parser.add_argument(
        "--adapter", choices=("merge", "keep"), default="merge", help="of a LoRA run: merged model, or adapter alone"
    )
    parser.add_argument("--after-job", action="append", default=[], help="TrainJob that may have trained the model")
    parser.add_argument("--any-run", action="store_true", help="export the model of any workflow run")
    parser.add_argument("--endpoint", default="", help="URL of the object store or the hub")
    parser.add_argument("--region", default="", help="region of an S3 bucket")
    parser.add_argument("--manifest", default="{}", help="JSON object with additional values for manifest.json")
    parser.add_argument(
        "--registry",
        default="{}",
        help="JSON object with server, model and uri, and optionally version and author; "
        "with the backend mlflow: tracking_uri, model and uri, and optionally alias",
    )
    names = ("SECRET", "VARIABLE")
    parser.add_argument("--secret", action="append", default=[], nargs="+", metavar=names, help=CREDENTIALS_HELP)
    given = parser.parse_args(arguments)
    check_secrets(given.secret, os.environ, ExportError)
    access = Access(given.endpoint, given.region, dict(os.environ))
    metadata, registry = _json_object("manifest", given.manifest), _json_object("registry", given.registry)
    return Export(
        given.output,
        given.model,
        given.destination,
        access,
        metadata,
        _registry_entry(registry),
        given.dataset,
        given.adapter,
        _origin_rule(given.after_job, any_run=given.any_run),
    )


def _origin_rule(after_jobs: Sequence[str], *, any_run: bool) -> OriginRule:
    if any_run:
        return OriginRule()
    return OriginRule(after_jobs=tuple(after_jobs)) if after_jobs else OriginRule(workflow_run=get_own_run())


def _registry_entry(registry: Mapping[str, Any]) -> RegistryEntry | MLflowEntry | None:
    if not registry:
        return None
    fields = {name: str(value) for name, value in registry.items() if value}
    backend = "mlflow" if fields.get("backend") == "mlflow" else ""
    required, optional = _REGISTRY_FIELDS[backend]
    given = fields.keys() - ({"backend"} if backend else set())
    if not set(required) <= given <= {*required, *optional}:
        form = f"give {', '.join(required[:-1])} and {required[-1]}, and optionally {' and '.join(optional)}"
        raise InvalidSpec(Problem("registry", ", ".join(fields), form))
    values = {name: fields[name] for name in given}
    address = values[required[0]]
    if not address.startswith(("https://", "http://")):
        raise InvalidSpec(Problem("registry", address, "the server's address must begin with https:// or http://"))
    if backend:
        return MLflowEntry(**values, authorization=get_authorization(os.environ))
    return RegistryEntry(**values, token=os.environ.get(TOKEN_VARIABLE, ""))


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidSpec(Problem(name, repr(text[:60]), "give a JSON object"))
    return found


def _fail(code: int, message: str) -> int:
    print(f"export: failed: {redact_credentials(message)}", file=sys.stderr, flush=True)
    return code
