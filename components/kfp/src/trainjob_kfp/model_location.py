"""Where an export goes when nobody says, and what the pipeline's model artifact then refers to.

An exported model is written by its TrainJob straight to where the artifact is to be, so nothing is copied: KFP's
launcher uploads an artifact only where there is a local file, and records it in any case. It fails a step, though,
whose artifact is in an object store, but not below the run's own root there (KFP 2.17, backend/src/v2/component/
launcher_v2.go, uploadOutputArtifacts; backend/src/v2/objectstore/config.go, KeyFromURI).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob.status import Outcome, export_facts

_FORMS = "s3://BUCKET/PATH, gs://BUCKET/PATH, hf://ORGANIZATION/NAME, or a path below /workspace"
# How a pipeline's root and an export call the same stores.
_STORES = {"s3": "s3", "minio": "s3", "gs": "gs"}


class Artifact(Protocol):
    """A `kfp.dsl.Model`, as far as it is used here."""

    uri: str
    metadata: dict[str, Any]


def destination_of(uri: str, given: str, endpoint: str) -> str:
    """Where the export goes: what was given, else the artifact's own place, as far as an export can write there.

    Args:
        uri: the artifact's, made by KFP from the run's root.
        given: the component's `destination`; may be empty.
        endpoint: the object store's URL; may be empty.

    Raises:
        InvalidSpec: nothing was given, and an export can't write to the artifact's place.
    """
    if given:
        return given
    scheme, separator, place = uri.partition("://")
    if scheme == _STORES.get(scheme):
        return uri
    if scheme == "minio":
        if endpoint:
            return f"s3://{place}"
        rule = "the pipeline keeps its artifacts in a MinIO of its own: give that one's URL, or a destination"
        raise InvalidSpec(Problem("endpoint", "''", rule))
    where = f"at {scheme}://" if separator else "in files of this machine"
    rule = f"the pipeline keeps its artifacts {where}, where an export can't write to: give {_FORMS}"
    raise InvalidSpec(Problem("destination", "''", rule))


def artifact_uri(uri: str, destination: str) -> str:
    """What the artifact refers to: the destination where KFP can record it, else the URI it had.

    Args:
        uri: the artifact's: the run's root, the task, a random word and the artifact's name.
        destination: where the model was exported to.
    """
    if destination.startswith("hf://"):
        return destination
    scheme = uri.partition("://")[0]
    store, _, place = destination.partition("://")
    if _STORES.get(scheme) == store:
        wanted = f"{scheme}://{place}"
        root = uri.rsplit("/", 3)[0]
        return wanted if wanted.startswith(f"{root}/") and "://" in root else uri
    return uri


def describe(model: Artifact, outcome: Outcome, destination: str, receipt: Mapping[str, Any]) -> None:
    """Have the artifact refer to the exported model, and tell what it is.

    Args:
        model: the artifact.
        outcome: how the export's TrainJob ended.
        destination: where the model was exported to.
        receipt: what the export told of itself; empty where its log was gone.
    """
    model.uri = artifact_uri(model.uri, destination)
    model.metadata.update({"location": destination, "job": outcome.job, "namespace": outcome.namespace})
    model.metadata.update(export_facts(receipt))
