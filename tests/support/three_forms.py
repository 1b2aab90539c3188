"""The example that a page has in three forms: a file, a DAG and a pipeline."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.code_blocks import ALL_BLOCKS, CodeBlock, python_blocks
from trainjob import FineTune

PAGE = "docs/how-to/fine-tune-another-model.md"


def find_block(engine: str) -> CodeBlock:
    """Return the page's example for an engine."""
    [block] = [each for each in python_blocks(engine) if each.page == PAGE]
    return block


def read_training() -> dict[str, Any]:
    """Return the training of the page's file as JSON values, without its resources."""
    [block] = [each for each in ALL_BLOCKS if (each.page, each.title) == (PAGE, "tickets.yaml")]
    [fields] = [each for each in yaml.safe_load_all(block.text) if each.pop("step") == "FineTune"]
    fields["config"]["learning_rate"] = float(fields["config"]["learning_rate"])  # YAML 1.1 reads 2e-4 as a text
    return describe_training(FineTune(**fields))


def describe_training(step: FineTune) -> dict[str, Any]:
    """Return what a step trains as JSON values, without its resources and its workspace."""
    config = step.config.model_dump(mode="json", exclude={"resources_per_node"})
    return {"model": step.model, "dataset_path": step.dataset_path, "model_path": step.model_path, "config": config}
