"""Default destination of an export, and the URI of the pipeline's model artifact.

The export's TrainJob writes the model directly to the artifact's location, so that nothing is copied. If the model is
elsewhere, the artifact is a small file that names its location.

The artifact's URI can't name another store. KFP's launcher fails a step if an artifact of it is in an object store but
not below the root of the run. It would record a URI of another scheme, such as hf://, but it fails each later step that
has such an input (KFP 2.17, backend/src/v2/component/launcher_v2.go, uploadOutputArtifacts and fetchNonDefaultBuckets;
backend/src/v2/objectstore/config.go, KeyFromURI and ParseBucketConfigForArtifactURI).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob.status import Outcome, get_model_facts

_DESTINATION_FORMS = "s3:// or gs://BUCKET/PATH, az://CONTAINER/PATH, hf://ORGANIZATION/NAME, or a path in /workspace"
STORE_SCHEMES = {"s3": "s3", "minio": "s3", "gs": "gs"}
"""Scheme of a store in the address of a step, by its scheme in the URI of an artifact."""


class Artifact(Protocol):
    """The part of a `kfp.dsl.Model` that is used here."""

    uri: str
    path: str
    metadata: dict[str, Any]


def choose_destination(uri: str, destination: str, endpoint: str) -> str:
    """Return the destination of an export: the given one, or the artifact's own URI.

    Args:
        uri: URI of the artifact, which KFP creates from the root of the run.
        destination: the component's `destination`; may be empty.
        endpoint: URL of the object store; may be empty.

    Raises:
        InvalidSpec: no destination is given, and an export cannot write to the artifact's URI.
    """
    if destination:
        return destination
    scheme, separator, place = uri.partition("://")
    if scheme == STORE_SCHEMES.get(scheme):
        return uri
    if scheme == "minio":
        if endpoint:
            return f"s3://{place}"
        rule = "the pipeline stores its artifacts in MinIO: give the URL of MinIO, or a destination"
        raise InvalidSpec(Problem("endpoint", "''", rule))
    where = f"at {scheme}://" if separator else "in local files"
    rule = f"the pipeline stores its artifacts {where}, to which an export can't write: give {_DESTINATION_FORMS}"
    raise InvalidSpec(Problem("destination", "''", rule))


def find_uri(uri: str, destination: str) -> str:
    """Return the URI of a model below the root of the run; empty if it is elsewhere.

    Args:
        uri: URI of the artifact: root of the run, task, a random word and the artifact's name.
        destination: destination of the export.
    """
    scheme = uri.partition("://")[0]
    store, _, place = destination.partition("://")
    root = uri.rsplit("/", 3)[0]
    wanted = f"{scheme}://{place}"
    is_below_root = "://" in root and wanted.startswith(f"{root}/")
    return wanted if STORE_SCHEMES.get(scheme) == store and is_below_root else ""


def update_artifact(model: Artifact, outcome: Outcome, destination: str, receipt: Mapping[str, Any]) -> None:
    """Set the artifact's URI and metadata to those of the exported model.

    If the model is not below the root of the run, the metadata is written to the artifact's file. KFP's launcher
    uploads it, so that the artifact's URI names a file that names the model's location.

    Args:
        model: the artifact.
        outcome: outcome of the export's TrainJob.
        destination: destination of the export.
        receipt: the export's receipt in its log; empty if the log is not available any more.
    """
    facts = {
        "location": destination,
        "job": outcome.job,
        "namespace": outcome.namespace,
        **get_model_facts(receipt),
    }
    model.metadata.update(facts)
    if uri := find_uri(model.uri, destination):
        model.uri = uri
    else:
        Path(model.path).write_text(f"{json.dumps(facts, indent=2)}\n", encoding="utf-8")
