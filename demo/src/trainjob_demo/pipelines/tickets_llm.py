"""Fine-tune a tiny Llama on support tickets; `make demo-kfp` runs this pipeline.

    tickets_llm.py compile OUT.yaml   # to upload to Kubeflow Pipelines
    tickets_llm.py run [NAME=VALUE …] # on this machine, against the cluster that KUBECONFIG names

Its steps download dataset and model, fine-tune with TorchTune, and export. `run` compiles the pipeline, loads the YAML,
and runs it with `kfp.local`. The claim `tickets` must exist. On a real cluster, remove the settings in CPU and TINY,
and name a real dataset and model.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from kfp import compiler, components, dsl, local

from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model

CPU = ["device=cpu", "optimizer=torch.optim.AdamW"]
# The shape of the demo's model. The recipe's default is the shape of Llama 3.2 1B.
TINY = [
    "model=torchtune.models.llama3_2.llama3_2",
    "model.vocab_size=576",
    "model.num_layers=2",
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.embed_dim=64",
    "model.intermediate_dim=128",
    "model.max_seq_len=2048",
    "tokenizer.special_tokens_path=/workspace/model/tokenizer.json",
]


# kfp reads the annotations immediately, so a pipeline's file has no `from __future__ import annotations`.
@dsl.pipeline(name="tickets-llm")
def tickets_llm(
    dataset_uri: str = "hf://demo/tickets/data",
    model_uri: str = "hf://demo/tiny-llama",
    destination: str = "/workspace/export",
    workspace: str = "tickets",
):
    dataset = initialize_dataset(storage_uri=dataset_uri, workspace=workspace)
    model = initialize_model(storage_uri=model_uri, workspace=workspace).after(dataset)
    tune = fine_tune(
        model="llama3.2-1b",
        framework="torchtune",
        workspace=workspace,
        epochs=4,
        batch_size=8,
        learning_rate=3e-3,
        config={
            "dtype": "fp32",
            "dataset_preprocess_config": {"source": "parquet"},
            "overrides": [*CPU, *TINY],
        },
        after_jobs=[dataset.outputs["job"], model.outputs["job"]],
    )
    export_model(workspace=workspace, destination=destination, after_jobs=[tune.outputs["job"]])


def run(pipeline: Any, arguments: dict[str, Any]) -> None:
    """Run the compiled pipeline in this environment; raises if a step fails."""
    with tempfile.TemporaryDirectory(prefix=f"{pipeline.name}-") as folder:
        compiled = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(compiled))
        local.init(
            local.SubprocessRunner(use_venv=False),
            pipeline_root=f"{folder}/outputs",
            workspace_root=f"{folder}/workspace",  # for pipelines that have one; kfp deletes it after each run
            raise_on_error=True,
        )
        components.load_component_from_file(str(compiled))(**arguments)


def argument(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE, and parse the value as JSON if it is valid JSON."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main(pipeline: Any, description: str | None) -> None:
    """Run the command line that all examples share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("compile", help="write the pipeline as YAML").add_argument("out", type=Path)
    running = commands.add_parser("run", help="run it here with kfp.local")
    running.add_argument("arguments", nargs="*", type=argument, metavar="NAME=VALUE")
    given = parser.parse_args()
    if given.command == "compile":
        compiler.Compiler().compile(pipeline, str(given.out))
    else:
        run(pipeline, dict(given.arguments))


if __name__ == "__main__":
    main(tickets_llm, __doc__)
