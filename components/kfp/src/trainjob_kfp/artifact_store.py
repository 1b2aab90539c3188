"""Object store of a pipeline's artifacts: endpoint, region and Secret, as Kubeflow Pipelines itself is configured.

The ConfigMap `kfp-launcher` in the namespace of the runs has them in `providers`; without it, or without an entry for
the scheme `minio`, they are those of the store that Kubeflow Pipelines installs (2.17, backend/src/v2/config: env.go,
s3.go, minio.go; backend/src/v2/objectstore/config.go). A Secret is only referenced, and never read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from trainjob.client import Cluster, Connection
from trainjob.client.resources import Resource
from trainjob.errors import InvalidSpec, PermissionDenied, Problem
from trainjob_kfp.identity import get_own_cluster
from trainjob_kfp.input_values import is_empty_text
from trainjob_kfp.standard_output import print_line

CONFIG_NAME = "kfp-launcher"
"""Name of the ConfigMap."""
_CONFIG_MAPS = Resource("configmaps", "/api/v1", "")
_INSTALLED_STORE = {
    "endpoint": "seaweedfs.kubeflow:9000",
    "region": "minio",
    "disablessl": True,
    "credentials": {
        "secretref": {
            "secretname": "mlpipeline-minio-artifact",
            "accesskeykey": "accesskey",
            "secretkeykey": "secretkey",
        }
    },
}
_ADVICE = "give endpoint and secret, or another address"


@dataclass(frozen=True)
class RunNamespace:
    """Namespace of a launcher and its run.

    Attributes:
        config: data of the ConfigMap; empty if it does not exist.
        name: name of the namespace.
        jobs: namespace of the TrainJobs.
    """

    config: Mapping[str, str]
    name: str
    jobs: str


def find_store(uri: str, given: Mapping[str, Any], connection: Connection | None = None) -> dict[str, Any]:
    """Return the arguments for the store of an artifact that the author has not given.

    Args:
        uri: URI of the artifact.
        given: arguments of the component by name.
        connection: how to reach the cluster of the TrainJobs.

    Returns:
        `endpoint`, `region` and `secret`, as far as Kubeflow Pipelines has them.

    Raises:
        InvalidSpec: the configuration cannot be used.
        PermissionDenied: the launcher may not read the ConfigMap, and the store is unknown without it.
        ClusterError: the cluster cannot be reached.
    """
    scheme, has_secret = uri.partition("://")[0], bool(given["secret"]) and not is_empty_text("secret", given["secret"])
    if given["endpoint"] or scheme not in ("minio", "s3") or (scheme == "s3" and has_secret):
        return {}
    try:
        namespace = _read_namespace(connection or Connection(), given["namespace"])
    except PermissionDenied as error:
        if scheme == "minio":
            hint = f"apply manifests/kfp in the namespace of the run, or {_ADVICE}"
            raise PermissionDenied(error.message, hint=hint) from None
        print_line(f"The step uses no settings of the ConfigMap {CONFIG_NAME}: {error.message}")
        return {}
    found = parse_store(uri, namespace.config)
    if has_secret:
        found.pop("secret", None)
    if "secret" in found and namespace.name != namespace.jobs:
        rule = (
            f"the Secret {found['secret']['name']} of Kubeflow Pipelines is in namespace {namespace.name}, and the "
            f"TrainJob in {namespace.jobs}: {_ADVICE}"
        )
        raise InvalidSpec(Problem("secret", "''", rule))
    return found | ({"region": given["region"]} if given["region"] else {})


def parse_store(uri: str, config: Mapping[str, str]) -> dict[str, Any]:
    """Return endpoint, region and Secret of the store of an artifact; see [find_store][].

    Args:
        uri: URI of the artifact.
        config: data of the ConfigMap.

    Raises:
        InvalidSpec: `providers` in the ConfigMap is not what Kubeflow Pipelines expects.
    """
    scheme, _, place = uri.partition("://")
    try:
        provider = (_lower_names(yaml.safe_load(config.get("providers", "")) or {}).get(scheme)) or {}
        default = provider.get("default") or {}
        bucket, _, path = place.partition("/")
        overrides = (each for each in provider.get("overrides") or () if _is_within(bucket, path, each))
        store = {**default, **{name: value for name, value in next(overrides, {}).items() if value not in (None, "")}}
        if not store:
            store = _INSTALLED_STORE if scheme == "minio" and not provider else {}
        return _to_arguments(store)
    except (yaml.YAMLError, AttributeError, TypeError, KeyError) as error:
        rule = f"`providers` in the ConfigMap {CONFIG_NAME} cannot be read ({type(error).__name__}): {_ADVICE}"
        raise InvalidSpec(Problem("endpoint", "''", rule)) from None


def _to_arguments(store: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if endpoint := store.get("endpoint"):
        scheme = "http" if store.get("disablessl") else "https"
        found["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if region := store.get("region"):
        found["region"] = region
    credentials = store.get("credentials") or {}
    if credentials and not credentials.get("fromenv"):
        reference = credentials["secretref"]
        keys = {"ACCESS_KEY_ID": reference["accesskeykey"], "SECRET_ACCESS_KEY": reference["secretkeykey"]}
        found["secret"] = {"name": reference["secretname"], "keys": keys}
    return found


def _is_within(bucket: str, path: str, override: Mapping[str, Any]) -> bool:
    prefix = f"{override.get('keyprefix') or ''}".strip("/")
    return override.get("bucketname") == bucket and (not prefix or f"{path}/".startswith(f"{prefix}/"))


def _lower_names(value: Any) -> Any:
    """Return a value with lower case names, because Go reads the names of fields in any case."""
    if isinstance(value, Mapping):
        return {f"{name}".lower(): _lower_names(inner) for name, inner in value.items()}
    return [_lower_names(inner) for inner in value] if isinstance(value, list) else value


def _read_namespace(connection: Connection, jobs: str) -> RunNamespace:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(contextlib.closing(Cluster(connection)))
        own_cluster = get_own_cluster(cluster, connection)
        if own_cluster is not cluster:
            stack.callback(own_cluster.close)
        found = own_cluster.get_object(_CONFIG_MAPS, CONFIG_NAME, own_cluster.namespace) or {}
        return RunNamespace(found.get("data") or {}, own_cluster.namespace, jobs or cluster.namespace)
