"""Upstream's images, of the newest release this project was checked with."""

from __future__ import annotations

_REGISTRY, _RELEASE = "ghcr.io/kubeflow/trainer", "v2.3.0"
DATASET_INITIALIZER = f"{_REGISTRY}/dataset-initializer:{_RELEASE}"
MODEL_INITIALIZER = f"{_REGISTRY}/model-initializer:{_RELEASE}"
TORCHTUNE = f"{_REGISTRY}/torchtune-trainer:{_RELEASE}"
