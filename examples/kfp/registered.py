"""Fine-tune, export, and register the model with its metrics and sources in a registry.

    registered.py compile OUT.yaml
    registered.py run 'registry={"server": "http://127.0.0.1:8080", "model": "tickets"}'

Every run creates a version of the model, named after the export's digest. A task that runs again therefore finds the
version that it created. The registry is a Kubeflow Model Registry. If it requires a token, store it in a Secret with
the key `REGISTRY_TOKEN`, and set `"secret": "model-registry"`.
"""

from typing import Any, Dict  # noqa: UP035 - kfp requires these types

from kfp import dsl
from tickets_llm import CPU, TINY, main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

REGISTRY = {"server": "http://model-registry-service.kubeflow:8080", "model": "tickets"}


@dsl.pipeline(name="registered")
def registered(
    registry: Dict[str, Any] = REGISTRY,  # noqa: UP006
    dataset_uri: str = "hf://demo/tickets/data",
    model_uri: str = "hf://demo/tiny-llama",
    revision: str = "main",  # on a real hub, set a tag or a commit, so that every run starts from the same weights
    destination: str = "/workspace/registered",
    workspace: str = "tickets",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=workspace)
    model = initialize_model(storage_uri=model_uri, revision=revision, workspace=workspace).after(dataset)
    tune = fine_tune(
        model="llama3.2-1b",
        framework="torchtune",
        workspace=workspace,
        epochs=1,
        batch_size=8,
        learning_rate=3e-3,
        config={
            "dtype": "fp32",
            "max_steps_per_epoch": 10,
            "dataset_preprocess_config": {"source": "parquet"},
            "overrides": [*CPU, *TINY],
        },
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    export_model(
        workspace=workspace,
        destination=destination,
        metadata={"trainjob_uid": tune.outputs["uid"]},
        registry=registry,
        after_jobs=[tune.outputs["job"]],
    )


if __name__ == "__main__":
    main(registered, __doc__)
