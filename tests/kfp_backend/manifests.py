"""The objects of Kubeflow Pipelines' own manifests, read from its checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from programs import SUPERVISOR

__all__ = ["INSTALLED_KINDS", "NAMESPACE", "load_argo_config", "load_crds", "load_installation"]

NAMESPACE = "kubeflow"
INSTALLED_KINDS = ("ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Secret")
"""The kinds that the test back end applies unchanged; its pods come from the Deployments."""

_MANIFESTS = "manifests/kustomize"
_BUCKET = "mlpipeline"

Object = dict[str, Any]


def load_installation(source: Path) -> list[Object]:
    """Return the objects of the generic installation and the Secret of its object store.

    The object store's own folder is not rendered, because it also has the store's Deployment.
    """
    folder = source / _MANIFESTS / "base" / "installs" / "generic"
    built = subprocess.run(
        [SUPERVISOR.folder / "controlplane", "build", folder], stdout=subprocess.PIPE, check=True, text=True
    )
    store = source / _MANIFESTS / "third-party/seaweedfs/base/seaweedfs/mlpipeline-minio-artifact-secret.yaml"
    return [*yaml.safe_load_all(built.stdout), *yaml.safe_load_all(store.read_text())]


def load_crds(source: Path) -> list[Object]:
    """Return the CustomResourceDefinitions that the API server and the persistence agent need."""
    base = source / _MANIFESTS / "base"
    files = [
        base / "pipeline/cluster-scoped/scheduled-workflow-crd.yaml",
        *sorted((base / "crds").glob("pipelines.*.yaml")),
    ]
    return [found for file in files for found in yaml.safe_load_all(file.read_text()) if found]


def load_argo_config(source: Path) -> dict[str, str]:
    """Return KFP's configuration of Argo: log archive, executor and Workflow defaults."""
    file = source / _MANIFESTS / "third-party/argo/base/workflow-controller-configmap-patch.yaml"
    text = file.read_text().replace("$(kfp-namespace)", NAMESPACE).replace("$(kfp-artifact-bucket-name)", _BUCKET)
    data: dict[str, str] = yaml.safe_load(text)["data"]
    return data
