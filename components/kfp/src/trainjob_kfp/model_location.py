"""Default destination of an export, and the URI of the pipeline's model artifact.

The export's TrainJob writes the model directly to the artifact's location, so that nothing is copied. KFP's launcher
uploads an artifact only if there is a local file, and records it in any case. It fails a step whose artifact is in an
object store but not below the root of the run there (KFP 2.17, backend/src/v2/component/launcher_v2.go,
uploadOutputArtifacts; backend/src/v2/objectstore/config.go, KeyFromURI).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob.status import Outcome, get_model_facts

_DESTINATION_FORMS = "s3://BUCKET/PATH, gs://BUCKET/PATH, hf://ORGANIZATION/NAME, or a path below /workspace"
# Scheme in the root of a pipeline run -> scheme in an export's destination, for the same store.
_STORE_SCHEMES = {"s3": "s3", "minio": "s3", "gs": "gs"}


class Artifact(Protocol):
    """The part of a `kfp.dsl.Model` that is used here."""

    uri: str
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
    if scheme == _STORE_SCHEMES.get(scheme):
        return uri
    if scheme == "minio":
        if endpoint:
            return f"s3://{place}"
        rule = "the pipeline stores its artifacts in MinIO: give the URL of MinIO, or a destination"
        raise InvalidSpec(Problem("endpoint", "''", rule))
    where = f"at {scheme}://" if separator else "in local files"
    rule = f"the pipeline stores its artifacts {where}, to which an export can't write: give {_DESTINATION_FORMS}"
    raise InvalidSpec(Problem("destination", "''", rule))


def artifact_uri(uri: str, destination: str) -> str:
    """Return the URI of the artifact after the export.

    It is the destination if KFP can record that; otherwise the artifact keeps its URI.

    Args:
        uri: URI of the artifact: root of the run, task, a random word and the artifact's name.
        destination: destination of the export.
    """
    if destination.startswith("hf://"):
        return destination
    scheme = uri.partition("://")[0]
    store, _, place = destination.partition("://")
    if _STORE_SCHEMES.get(scheme) == store:
        wanted = f"{scheme}://{place}"
        root = uri.rsplit("/", 3)[0]
        return wanted if wanted.startswith(f"{root}/") and "://" in root else uri
    return uri


def update_artifact(model: Artifact, outcome: Outcome, destination: str, receipt: Mapping[str, Any]) -> None:
    """Set the artifact's URI and metadata to those of the exported model.

    Args:
        model: the artifact.
        outcome: outcome of the export's TrainJob.
        destination: destination of the export.
        receipt: the export's receipt in its log; empty if the log is not available any more.
    """
    model.uri = artifact_uri(model.uri, destination)
    model.metadata.update({"location": destination, "job": outcome.job, "namespace": outcome.namespace})
    model.metadata.update(get_model_facts(receipt))
