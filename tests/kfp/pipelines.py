"""Pipelines with plain commands in place of trainings, and a program that runs one with `kfp.local`.

pipelines.py NAME FOLDER [ARGUMENT=VALUE ...]
"""

import sys

from kfp import compiler, components, dsl, local

from trainjob_kfp import fine_tune, initialize_dataset, train


@dsl.pipeline
def chain(workspace: str, mark: str):
    first = train(
        image="busybox",
        workspace=workspace,
        command=["sh", "-c", "echo $MARK > /workspace/mark; echo written"],
        env={"MARK": "a-mark"},
    )
    second = train(image="busybox", workspace=workspace, command=["cat", "/workspace/mark"], args=[mark])
    second.after(first)


@dsl.pipeline
def handing_on():
    first = train(image="busybox", command=["sh", "-c", "echo first"])
    train(image="busybox", command=["echo"], args=[first.outputs["job"], first.outputs["status"]])


@dsl.pipeline
def failing():
    broken = train(image="busybox", command=["sh", "-c", "echo about to fail; echo 'ValueError: row 7' >&2; exit 3"])
    train(image="busybox", command=["echo", "never"]).after(broken)


@dsl.pipeline
def slow():
    train(image="busybox", command=["sh", "-c", "echo started; sleep 4; echo finished"])


@dsl.pipeline
def retried():
    train(image="busybox", command=["sh", "-c", "echo started; sleep 4; echo finished"]).set_retry(1)


@dsl.pipeline
def endless():
    train(image="busybox", command=["sh", "-c", "echo started; sleep 600"])


@dsl.pipeline
def side_by_side():
    with dsl.ParallelFor(["a", "b", "c"]) as letter:
        train(image="busybox", command=["echo", letter])


@dsl.pipeline
def wrong(workspace: str):
    dataset = initialize_dataset(storage_uri="acme/tickets", workspace=workspace)
    fine_tune(model="llama3.2-1b", workspace=workspace).after(dataset)


if __name__ == "__main__":
    name, folder, *arguments = sys.argv[1:]
    compiler.Compiler().compile(globals()[name], f"{folder}/{name}.yaml")
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=f"{folder}/outputs", raise_on_error=True)
    components.load_component_from_file(f"{folder}/{name}.yaml")(**dict(word.split("=", 1) for word in arguments))
