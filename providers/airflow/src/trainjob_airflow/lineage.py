"""OpenLineage data of a task: the datasets of its step, and the parent run of its pods.

It requires Airflow's OpenLineage provider, which calls these functions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

_InputsAndOutputs = tuple[list[str], list[str]]


def parent_run_variables(context: Context) -> dict[str, str]:
    """Return the environment variables that name the pods' parent run for OpenLineage.

    The names are those of openlineage-python 1.54. A TrainJob that a retry adopts keeps its first try as parent.

    Returns:
        An empty dict if OpenLineage is not installed, is disabled or cannot name the parent.
    """
    try:
        from airflow.providers.openlineage import conf
        from airflow.providers.openlineage.plugins import macros
    except ImportError:
        return {}
    if conf.is_disabled():
        return {}
    ti: Any = context["ti"]
    try:
        parent, root = macros.lineage_parent_id(ti), macros.lineage_root_parent_id(ti)
    except Exception:
        logging.getLogger(__name__).warning(
            "OpenLineage's parent run is not known, so the training's pods do not get it", exc_info=True
        )
        return {}
    return {"OPENLINEAGE_PARENT_ID": parent, "OPENLINEAGE_ROOT_PARENT_ID": root}


def build_lineage(
    step: Any, result: Mapping[str, Any], *, connection: str, namespace: str, workspace: str
) -> OperatorLineage[Any, Any]:
    """Return the datasets of a task's step, and the TrainJob behind the task.

    Args:
        step: the step, as `trainjob.spec` has it.
        result: the task's result; empty before its end.
        connection: ID of the Kubernetes connection; empty if the task has none.
        namespace: the task's namespace; may be empty.
        workspace: name of the DAG's `Workspace`, which is the same in every run, so that the runs of a DAG
            share their datasets; empty if the step mounts another volume.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
    from openlineage.client.generated.external_query_run import ExternalQueryRunFacet
    from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet

    mounted = getattr(step, "workspace", None)
    volume = workspace or (f"{mounted.location}/{mounted.sub_path}".strip("/") if mounted else "")
    claims_uri = "/".join(filter(None, (f"kubernetes://{connection or 'default'}", namespace)))
    sources, targets = _input_and_output_uris(step, "/".join(filter(None, (claims_uri, volume))))
    run_facets: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    sizes: dict[str, Any] = {}
    if "uid" in result:
        source = f"{result['namespace']}/{result['job']}"
        run_facets["externalQuery"] = ExternalQueryRunFacet(externalQueryId=result["uid"], source=source)
    if "digest" in result:
        versions["version"] = DatasetVersionDatasetFacet(datasetVersion=result["digest"])
        sizes["outputStatistics"] = OutputStatisticsOutputDatasetFacet(size=result["bytes"], fileCount=result["files"])
    # A claim has the same name as the workspace of the step that filled it.
    sources = [re.sub("^pvc:/", claims_uri, uri) for uri in sources]
    inputs = [InputDataset(*dataset_from_uri(uri)) for uri in sources]
    outputs = [OutputDataset(*dataset_from_uri(uri), facets=versions, outputFacets=sizes) for uri in targets]
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets=run_facets)


def dataset_from_uri(uri: str) -> tuple[str, str]:
    """Return OpenLineage's namespace and name of the dataset at a URI.

    The namespace is the store of the data, and the name is its path there. A model and a dataset on the Hugging Face
    Hub may have the same name. The path of a dataset therefore begins with `datasets/`, as in the Hub's own addresses.
    """
    parts = urlsplit(uri)
    if parts.scheme == "hf":
        return "hf://huggingface.co", f"{parts.netloc}{parts.path}"
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")


def _input_and_output_uris(step: Any, volume: str) -> _InputsAndOutputs:
    """Return the sources and targets of a step as URIs."""
    from trainjob.spec import ExportModel, FineTune, InitializeDataset, InitializeModel, TrainJobManifest

    if isinstance(step, InitializeDataset):
        return [_to_dataset_uri(step.storage_uri)], [f"{volume}/dataset"]
    if isinstance(step, InitializeModel):
        return [step.storage_uri], [f"{volume}/model"]
    if isinstance(step, ExportModel):
        inside = step.destination.startswith("/")
        target = volume + step.destination.removeprefix("/workspace") if inside else step.destination
        return [f"{volume}/output/{step.output_path}"], [target]
    if isinstance(step, FineTune):
        if step.workspace:
            return [f"{volume}/dataset", f"{volume}/model"], [f"{volume}/output/{step.output_path}"]
        return _initializer_uris(step.dataset, step.model_initializer), []
    if isinstance(step, TrainJobManifest):
        return _manifest_initializer_uris(step.manifest["spec"].get("initializer") or {}), []
    initializer = step.initializer
    return _initializer_uris(initializer.dataset, initializer.model) if initializer else [], []


def _initializer_uris(dataset: Any, model: Any) -> list[str]:
    return [*([_to_dataset_uri(dataset.storage_uri)] if dataset else []), *([model.storage_uri] if model else [])]


def _manifest_initializer_uris(initializer: Mapping[str, Any]) -> list[str]:
    dataset, model = ((initializer.get(kind) or {}).get("storageUri") for kind in ("dataset", "model"))
    return [*([_to_dataset_uri(dataset)] if dataset else []), *([model] if model else [])]


def _to_dataset_uri(uri: str) -> str:
    return uri.replace("hf://", "hf://datasets/", 1)
