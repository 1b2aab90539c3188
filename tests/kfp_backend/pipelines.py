"""The pipelines that run on the back end: compiled in the environment kfp, with the components of this checkout."""

# kfp reads the annotations immediately, so this file has no `from __future__ import annotations`.

import random
import string

from kfp import dsl, kubernetes

from trainjob_demo.pipelines.tickets_llm import CPU, TINY
from trainjob_kfp import cleanup, export_model, fine_tune, initialize_dataset, initialize_model, train
from trainjob_kfp.image import BASE_IMAGE

SHORT = {"image": "busybox", "command": ["true"]}
WAITING = {"image": "busybox", "command": ["sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.1; done"]}
WAIT_FOR_FILE = "trap 'exit 143' TERM; until [ -e /workspace/finish ]; do sleep 0.1; done; echo trained"


@dsl.pipeline(name="short")
def short():
    train(**SHORT)


@dsl.pipeline(name="one-second")
def one_second():
    train(image="busybox", command=["sleep", "1"])


def _chain(length: int):
    last = None
    for _ in range(length):
        step = train(**SHORT)
        if last is not None:
            step.after(last)
        last = step
    return last


@dsl.pipeline(name="ten-steps")
def ten_steps():
    _chain(10)


@dsl.pipeline(name="ten-steps-and-loop")
def ten_steps_and_loop():
    last = _chain(10)
    with dsl.ParallelFor(items=list(range(20)), parallelism=4):
        train(**SHORT).after(last)


@dsl.pipeline(name="long-argument")
def long_argument():
    text = "".join(random.Random(1).choices(string.ascii_letters, k=63_900))  # noqa: S311 - no secret
    train(**SHORT, args=[text])


@dsl.pipeline(name="failing")
def failing():
    train(image="busybox", command=["sh", "-c", "echo the data has no column label >&2; exit 3"])


@dsl.pipeline(name="failing-twice")
def failing_twice():
    train(image="busybox", command=["sh", "-c", "echo no memory on this GPU >&2; exit 3"], attempts=2)


@dsl.pipeline(name="absent-secret")
def absent_secret():
    initialize_model(storage_uri="hf://demo/tiny-llama", workspace="shared", secret="absent")


@dsl.pipeline(name="absent-model")
def absent_model():
    initialize_model(storage_uri="hf://demo/absent", workspace="shared")


@dsl.pipeline(name="absent-claim")
def absent_claim():
    train(**SHORT, workspace="absent")


@dsl.pipeline(name="absent-namespace")
def absent_namespace():
    train(**SHORT, namespace="absent")


@dsl.pipeline(name="lost")
def lost():
    train(image="busybox", command=["sh", "-c", WAIT_FOR_FILE], workspace="shared")


@dsl.pipeline(name="terminated")
def terminated():
    train(**WAITING)


@dsl.pipeline(name="terminated-with-cleanup")
def terminated_with_cleanup():
    with dsl.ExitHandler(cleanup()):
        train(**WAITING)


@dsl.pipeline(name="terminated-with-cleanup-keep")
def terminated_with_cleanup_keep():
    with dsl.ExitHandler(cleanup()):
        train(**WAITING, on_kill="keep")


@dsl.pipeline(name="settings")
def settings():
    step = train(image="busybox", command=["sh", "-c", "echo $PASSWORD $PLAIN; cat /settings/a.txt; ls /shared"])
    step.set_cpu_limit("2").set_memory_limit("1G").set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)
    step.set_env_variable("PLAIN", "plain-value")
    kubernetes.use_secret_as_env(step, "extra", {"password": "PASSWORD"})
    kubernetes.use_config_map_as_volume(step, "settings", mount_path="/settings")
    kubernetes.mount_pvc(step, pvc_name="shared", mount_path="/shared")
    kubernetes.add_toleration(step, key="gpu", operator="Exists", effect="NoSchedule")
    kubernetes.add_node_selector(step, "kubernetes.io/os", "linux")


@dsl.pipeline(name="cached")
def cached(word: str = "first"):
    train(image="busybox", command=["echo"], args=[word])


def _fine_tune(rate, **more):
    """Return the task of a short training with real weights; the claim has dataset and model."""
    return fine_tune(
        model="llama3.2-1b",
        framework="torchtune",
        workspace="tickets",
        epochs=1.0,
        batch_size=8,
        learning_rate=rate,
        config={
            "dtype": "fp32",
            "max_steps_per_epoch": 3,
            "seed": 1,
            "dataset_preprocess_config": {"source": "parquet"},
            "overrides": [*CPU, *TINY],
        },
        **more,
    )


@dsl.pipeline(name="chain")
def chain(rate: float, destination: str = "/workspace/export"):
    """Run the README's steps in an exit handler."""
    with dsl.ExitHandler(cleanup()):
        dataset = initialize_dataset(storage_uri="hf://demo/tickets/data", workspace="tickets")
        model = initialize_model(storage_uri="hf://demo/tiny-llama", workspace="tickets")
        tune = _fine_tune(rate, after_jobs=[dataset.outputs["job"], model.outputs["job"]])
        export_model(workspace="tickets", destination=destination, after_jobs=[tune.outputs["job"]])


@dsl.pipeline(name="cached-chain")
def cached_chain(destination: str):
    dataset = initialize_dataset(storage_uri="hf://demo/tickets/data", workspace="tickets").set_caching_options(True)
    model = initialize_model(storage_uri="hf://demo/tiny-llama", workspace="tickets").set_caching_options(True)
    tune = _fine_tune(5e-3, after_jobs=[dataset.outputs["job"], model.outputs["job"]])
    export_model(workspace="tickets", destination=destination, after_jobs=[tune.outputs["job"]])


@dsl.pipeline(name="slow-export")
def slow_export(rate: float, mark: str):
    """Export after the file `mark` exists, without a link to the training."""
    dataset = initialize_dataset(storage_uri="hf://demo/tickets/data", workspace="tickets")
    model = initialize_model(storage_uri="hf://demo/tiny-llama", workspace="tickets")
    tune = _fine_tune(rate).after(dataset, model)
    script = f"trap 'exit 143' TERM; until [ -e {mark} ]; do sleep 0.1; done"
    waiting = train(image="busybox", command=["sh", "-c", script], workspace="tickets").after(tune)
    export_model(workspace="tickets", destination=f"{mark}-model").after(waiting)


@dsl.pipeline(name="inner")
def inner():
    train(**SHORT, workspace="shared")


@dsl.pipeline(name="everywhere")
def everywhere(ready: bool = True):
    """Run one step on a workspace in each kind of group."""
    with dsl.ExitHandler(cleanup()):
        train(**SHORT, workspace="shared")
        with dsl.If(ready == True):  # noqa: E712 - kfp builds the condition from this comparison
            train(**SHORT, workspace="shared")
        with dsl.ParallelFor([1, 2]) as number:
            train(image="busybox", command=["echo"], args=[number], workspace="shared")
        inner()


@dsl.pipeline(name="linked")
def linked(word: str = "first"):
    """Run two linked steps, of which the first one may be cached."""
    first = train(image="busybox", command=["echo"], args=[word], workspace="shared").set_caching_options(True)
    train(**SHORT, workspace="shared", after_jobs=[first.outputs["job"]])


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def write_rows(count: int, rows: dsl.Output[dsl.Dataset]):
    """Write rows to the artifact's path, which has no extension."""
    import json

    with open(rows.path, "w") as file:
        file.writelines(json.dumps({"prompt": f"{number}?", "completion": "✓"}) + "\n" for number in range(count))


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def list_model(model: dsl.Input[dsl.Model]):
    """Print the files of a model with their digests."""
    import hashlib
    from pathlib import Path

    for path in Path(model.path).rglob("*"):
        if path.is_file():
            print(f"opened {path.relative_to(model.path)} {hashlib.sha256(path.read_bytes()).hexdigest()}")


@dsl.pipeline(name="opened-model")
def opened_model():
    """Export without a destination, and open the model in the next step."""
    dataset = initialize_dataset(storage_uri="hf://demo/tickets/data", workspace="tickets")
    model = initialize_model(storage_uri="hf://demo/tiny-llama", workspace="tickets")
    tune = _fine_tune(2e-3, after_jobs=[dataset.outputs["job"], model.outputs["job"]])
    exported = export_model(workspace="tickets", after_jobs=[tune.outputs["job"]])
    list_model(model=exported.outputs["model"])


@dsl.pipeline(name="dataset-artifact")
def dataset_artifact(count: int = 5):
    rows = write_rows(count=count)
    initialize_dataset(dataset=rows.outputs["rows"], workspace="shared")
