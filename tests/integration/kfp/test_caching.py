"""Caching in compiled pipelines: a step on a workspace is not cached, unless an output of an earlier step is its input.

KFP's driver reads the caching option of each task alone (2.17, backend/src/v2/driver/container.go), so these tests read
it from all parts of the compiled YAML.
"""

# kfp reads the annotations immediately, so this file has no `from __future__ import annotations`.

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import yaml
from kfp import dsl

import trainjob_kfp
from tests.integration.kfp import golden
from trainjob_kfp import (
    cleanup,
    evaluate,
    evaluate_model,
    export_model,
    fine_tune,
    initialize_dataset,
    promote_model,
    rollback_model,
    train,
)

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples" / "kfp").glob("*.py"))
OURS = {name.replace("_", "-") for name in trainjob_kfp.__all__} - {"cleanup"}


def list_tasks(pipeline):
    """Yield name, caching and inputs of each task of our components, in all parts."""
    [compiled, *_] = yaml.safe_load_all(golden.compile_to_yaml(pipeline))
    parts = [compiled["root"], *compiled["components"].values()]
    for part in parts:
        for name, task in part.get("dag", {}).get("tasks", {}).items():
            if re.sub(r"^comp-|-\d+$", "", task["componentRef"]["name"]) in OURS:
                given = task.get("inputs", {}).get("parameters", {})
                yield name, task["cachingOptions"].get("enableCache", False), given


def read_caching(pipeline):
    return {name: cached for name, cached, _ in list_tasks(pipeline)}


@dsl.pipeline(name="nested")
def nested():
    fine_tune(model="llama3.2-1b", framework="torchtune", workspace="w")


@dsl.pipeline(name="everywhere")
def everywhere(workspace: str, ready: bool = True):
    with dsl.ExitHandler(cleanup()):
        dataset = initialize_dataset(storage_uri="hf://acme/tickets", workspace=workspace)
        with dsl.If(ready == True):  # noqa: E712 - kfp builds the condition from this comparison
            export_model(workspace="w").after(dataset)
        with dsl.ParallelFor([1, 2]) as number:
            train(command=["train"], args=[number], workspace="w")
        nested()
    evaluate(function="def f(): ...", metric="a", minimum=0.5, workspace=workspace)


def test_no_step_on_a_workspace_is_cached_in_any_part_of_a_pipeline():
    names = ("initialize-dataset", "export-model", "train", "fine-tune", "evaluate")
    assert read_caching(everywhere) == dict.fromkeys(names, False)


@dsl.pipeline(name="served")
def served():
    model = train(command=["true"])
    place = {"workspace": "w", "tasks": ["tickets"], "after_jobs": [model.outputs["job"]]}
    evaluate_model(champion={"service": "tickets"}, **place)
    evaluate_model(champion_path="champion", **place)
    promote_model(model="s3://models/a", service="tickets")
    rollback_model(service="tickets")


def test_what_reads_or_changes_the_served_model_is_not_cached():
    cached = {"train": True, "evaluate-model-2": True}
    assert read_caching(served) == {
        **dict.fromkeys(("evaluate-model", "promote-model", "rollback-model"), False),
        **cached,
    }


@dsl.pipeline(name="linked")
def linked():
    dataset = initialize_dataset(storage_uri="hf://acme/tickets", workspace="w").set_caching_options(True)
    tune = fine_tune(model="llama3.2-1b", framework="torchtune", workspace="w", after_jobs=[dataset.outputs["job"]])
    export_model(workspace="w", after_jobs=[tune.outputs["job"]])
    train(command=["true"])
    train(command=["true"], workspace="w", after_jobs=[tune.outputs["job"]]).set_caching_options(False)


def test_a_linked_step_and_one_without_a_workspace_have_the_default():
    assert read_caching(linked) == {
        "initialize-dataset": True,
        "fine-tune": True,
        "export-model": True,
        "train": True,
        "train-2": False,
    }


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_component_that_is_compiled_alone_is_not_cached(name):
    assert read_caching(getattr(trainjob_kfp, name.replace("-", "_"))) == {name: False}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_steps_of_an_example_are_linked_or_not_cached(path, monkeypatch):
    """A step that reads files names the steps that write them."""
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, example)
    spec.loader.exec_module(example)
    tasks = list(list_tasks(getattr(example, path.stem)))
    assert tasks
    for name, cached, given in tasks:
        linked = "after_jobs" in given
        assert linked or not (cached and "workspace" in given), name
        if name.startswith(("fine-tune", "export-model", "evaluate")):
            assert linked or len(tasks) == 1 or path.stem == "nightly_promotion", name
