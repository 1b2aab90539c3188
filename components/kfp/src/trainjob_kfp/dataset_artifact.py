"""Source of a dataset that an earlier step of the pipeline wrote, or that the pipeline imported, as an artifact.

The TrainJob fetches the artifact's files from their store. Its pods cannot read the launcher's copy of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob_kfp.artifact_store import find_store
from trainjob_kfp.model_location import STORE_SCHEMES


class Artifact(Protocol):
    """The part of a `kfp.dsl.Dataset` that is used here."""

    uri: str


def refuse_address(storage_uri: str) -> Problem:
    """Return the problem of an address that is given together with an artifact."""
    return Problem("storage_uri", repr(storage_uri), "leave it out, because the artifact `dataset` is given")


def find_source(dataset: Artifact | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which a step fetches an artifact; nothing without an artifact.

    Args:
        dataset: the artifact.
        given: arguments of the component by name.

    Raises:
        InvalidSpec: `storage_uri` is given, too, the artifact is in local files, or the configuration of Kubeflow
            Pipelines cannot be used.
        PermissionDenied: the launcher may not read that configuration.
        ClusterError: the cluster cannot be reached.
    """
    if dataset is None:
        return {}
    if given["storage_uri"]:
        raise InvalidSpec(refuse_address(given["storage_uri"]))
    scheme, separator, place = dataset.uri.partition("://")
    if not separator:
        rule = "kfp.local keeps artifacts in local files, which no TrainJob can fetch: give storage_uri"
        raise InvalidSpec(Problem("dataset", repr(dataset.uri), rule))
    return {"storage_uri": f"{STORE_SCHEMES.get(scheme, scheme)}://{place}", **find_store(dataset.uri, given)}
