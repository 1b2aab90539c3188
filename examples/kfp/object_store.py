"""Download dataset and model from an object store, fine-tune, and upload the result there.

    object_store.py compile OUT.yaml
    object_store.py run endpoint=http://127.0.0.1:9000 destination=s3://models/tickets-llm

The Secret `object-store` in the TrainJobs' namespace has the keys `ACCESS_KEY_ID` and `SECRET_ACCESS_KEY`. Its values
never pass through the pipeline. For AWS, omit `endpoint`. For Google Cloud Storage, use `gs://` and the Secret's key
`GOOGLE_CREDENTIALS`. Without a destination, the export writes the model to the URI of its artifact, below
the pipeline root.
"""

from kfp import dsl
from tickets_llm import CPU, TINY, main

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

STORE = {"secret": "object-store"}


@dsl.pipeline(name="object-store")
def object_store(
    endpoint: str = "http://minio.kubeflow:9000",
    dataset_uri: str = "s3://models/tickets",
    model_uri: str = "s3://models/tiny-llama",
    destination: str = "s3://models/tickets-llm",
    workspace: str = "tickets",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, endpoint=endpoint, workspace=workspace, **STORE)
    model = initialize_model(storage_uri=model_uri, endpoint=endpoint, workspace=workspace, **STORE).after(dataset)
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
        destination=destination, endpoint=endpoint, workspace=workspace, **STORE, after_jobs=[tune.outputs["job"]]
    )


if __name__ == "__main__":
    main(object_store, __doc__)
