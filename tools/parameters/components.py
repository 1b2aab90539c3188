"""Generator of the components of Kubeflow Pipelines: signatures, docstrings and bodies.

What a component does is its program in `trainjob_kfp.component_programs`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.parameters.docstrings import format_entries, wrap_paragraphs
from tools.parameters.fields import Field, list_fields
from trainjob.spec import (
    CustomTrainer,
    CustomTrainerContainer,
    Evaluate,
    ExportModel,
    FineTune,
    Generate,
    InitializeDataset,
    InitializeModel,
    Promote,
    Rollback,
    TrainJob,
)

FOLDER = Path("components/kfp/src/trainjob_kfp/components")
_TYPES = {
    "text": "str",
    "boolean": "bool",
    "integer": "int",
    "number": "float",
    "duration": "str",
    "texts": "List[str]",
    "integers": "List[int]",
    "list": "List[Dict[str, Any]]",
    "mapping": "Dict[str, Any]",
    "function": "str",
    "object": "Dict[str, Any]",
    "workspace": "str",
}
_EMPTY = {"str": '""', "bool": "False", "int": "0", "float": "0.0", "List": "[]", "Dict": "{}"}


def _input(name: str, kind: str, description: str, *, default: Any = None, required: bool = False) -> Field:
    return Field(name, kind, default, required, description)


# Fields with another meaning, or other values, than elsewhere.
_OWN_FIELDS = {
    field.name: field
    for field in (
        _input(
            "workspace",
            "workspace",
            "name of the PersistentVolumeClaim of the steps, mounted at /workspace; or a path, see the overview",
        ),
        _input(
            "on_kill",
            "text",
            "action on a terminated task's TrainJob: `delete`, `keep`, or `keep_on_drain` (keep after a drain)",
            default="delete",
        ),
        _input(
            "num_nodes",
            "integers",
            "number of training nodes; by default the runtime's number. With a range `[minimum, maximum]`, an attempt "
            "requests the maximum first, and fewer nodes if they are not free",
        ),
        _input(
            "code",
            "mapping",
            "folder of the project that travels to the pods, such as `.`, or a `Code`. The project is packed when the "
            "pipeline is compiled",
        ),
    )
}
_AFTER_JOBS = _input(
    "after_jobs",
    "texts",
    "output `job` of the earlier steps whose files this step reads; with it, this step may be cached",
)
_FOR_LAUNCHER = (
    _input("namespace", "text", "namespace of the TrainJob; by default the pipeline's own"),
    _input(
        "delete_with_run",
        "boolean",
        "whether a finished TrainJob, too, is deleted along with the run's Workflow",
        default=False,
    ),
    _input(
        "attempts",
        "integer",
        "number of TrainJobs that may fail, with pauses of 10 s to 5 min, before the step fails",
        default=1,
    ),
)
_CONFIG = (
    _input(
        "framework",
        "text",
        "name of the training framework, unless `config` has it; for one of another package, the image of the step "
        "contains the package",
    ),
    _input("method", "text", "method of the framework, such as sft or dpo"),
    _input("epochs", "number", "passes over the dataset; by default the framework's number"),
    _input("max_steps", "integer", "optimizer steps, in place of `epochs`"),
    _input("batch_size", "integer", "samples that a process computes at once; by default the framework's number"),
    _input("learning_rate", "number", "the optimizer's learning rate at its highest; by default the framework's"),
    _input("lora_rank", "integer", "rank of LoRA; by default all weights are trained, or as `config` says"),
    _input("eval_dataset_path", "text", "rows for evaluation, below `/workspace/dataset`; by default there are none"),
    _input("arguments", "mapping", 'other arguments of the framework by name, such as {"beta": 0.1}'),
)
_FUNCTION = (
    _input("function", "text", "a Python function, or its text from `trainjob_kfp.source(function)`"),
    _input("function_args", "mapping", "arguments of the function, by name"),
)
_MANIFEST = _input("manifest", "mapping", "a whole TrainJob, which replaces the other arguments about its content")


@dataclass(frozen=True)
class Component:
    """A component.

    Attributes:
        folder: its folder.
        step: class of its step.
        text: the beginning of its docstring.
        output_path: meaning of its output `output_path`.
        first: inputs before those of the step.
        omitted: fields of the step that are no inputs.
        from_artifact: name of the field whose value may come from an input artifact instead.
        input_artifacts: name, type and meaning of each input artifact, which is optional.
        artifacts: name, type and meaning of each output artifact.
        outputs: name, type and meaning of each output after the common ones.
    """

    folder: str
    step: type[Any]
    text: str
    output_path: str
    first: tuple[Field, ...] = ()
    omitted: tuple[str, ...] = ()
    from_artifact: str = ""
    input_artifacts: tuple[tuple[str, str, str], ...] = ()
    artifacts: tuple[tuple[str, str, str], ...] = ()
    outputs: tuple[tuple[str, str, str], ...] = ()

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.folder.rpartition("/")[2]


_PASSTHROUGH = (
    "Accelerators, CPU, memory, environment, volumes, tolerations, node selector and affinity that are set on the task "
    "apply to the training pods. The task's own pod only follows the TrainJob."
)
_CONVENTIONS = (
    "An input whose default is empty or 0 is not given then. Where a description names a class, give a dict of its "
    "fields; a text for `queue`, `runtime` or `secret` means the name."
)
_WORKSPACE = (
    "`workspace` may also be a path at which the task has mounted a PersistentVolumeClaim. It is "
    "`dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's own workspace, a path below it, or a path below a volume of "
    "`kubernetes.mount_pvc`."
)
_COMMON_OUTPUTS = (
    ("job", "str", "Name of the TrainJob."),
    ("namespace", "str", "Namespace of the TrainJob."),
    ("uid", "str", "UID of the TrainJob."),
    ("status", "str", "`Complete`; a step that fails has no outputs."),
    ("workspace", "str", "Name of the PersistentVolumeClaim that was mounted at /workspace; empty if there is none."),
)
_NO_OUTPUT_PATH = "Folder of the claim; empty without one."
_SERVED_MODELS = (
    ("served_model", "str", "Address of the model that is served now; empty for none."),
    ("earlier_model", "str", "Address of the model that was served before; empty for none."),
)
_TRACKING_URL = ("tracking_url", "str", "Address of the tracked run; empty without `tracking`, or without a page.")
_TRAINING_METRICS = (
    "metrics",
    "dsl.Metrics",
    (
        "last and first training loss (`loss`, `first_loss`), other metrics, `steps`, `epochs`, `seconds`, "
        "`gpu_seconds`, `pod_seconds` and `attempts`, as far as they are known."
    ),
)
_CONDITION = (
    "To run the next steps only after a good score, create them inside "
    '`with dsl.If(evaluated.outputs["passed"] == True):`. `kfp.local` 2.17 evaluates such a condition as false. There, '
    "pass `passed` to a nested pipeline that contains the `dsl.If`."
)
COMPONENTS = (
    Component(
        "data_processing/initialize_dataset",
        InitializeDataset,
        "Fetch a dataset into `/workspace/dataset` with a TrainJob.\n\n"
        "Later steps read the dataset from that folder. Resources and other settings of the task apply to the "
        "TrainJob's pod.\n\n"
        "In place of `storage_uri`, the step accepts the artifact `dataset` of another step or of `dsl.importer`. With "
        "s3:// or minio://, endpoint, region and Secret of the artifact's store are those of the ConfigMap "
        "`kfp-launcher`, unless they are given.",
        "Folder of the dataset: `/workspace/dataset`.",
        omitted=("after_jobs",),
        from_artifact="storage_uri",
        input_artifacts=(("dataset", "dsl.Dataset", "artifact of the dataset, in place of `storage_uri`."),),
        outputs=(
            (
                "eval_dataset_path",
                "str",
                "Folder of the prepared rows for evaluation, as `fine_tune` reads it; empty if there are none.",
            ),
        ),
    ),
    Component(
        "data_processing/initialize_model",
        InitializeModel,
        "Fetch a model into `/workspace/model` with a TrainJob.\n\n"
        "Later steps read the model from that folder. Resources and other settings of the task apply to the TrainJob's "
        "pod.",
        "Folder of the model: `/workspace/model`.",
        omitted=("after_jobs",),
    ),
    Component(
        "training/fine_tune",
        FineTune,
        "Fine-tune `/workspace/model` on `/workspace/dataset` with a training framework.\n\n"
        "The configuration is the inputs `framework` to `arguments`, and `config` with any other field of the "
        "framework's class. The checkpoints and the final model are written to `/workspace/output`.\n\n"
        f"{_PASSTHROUGH}",
        "Folder of the checkpoints: `/workspace/output` or a folder below it.",
        first=_CONFIG,
        artifacts=(
            _TRAINING_METRICS,
            ("loss_curve", "dsl.HTML", "page with the loss by optimizer step, or the reward if it is reported."),
        ),
        outputs=(_TRACKING_URL,),
    ),
    Component(
        "deployment/export_model",
        ExportModel,
        "Export the final checkpoint in `/workspace/output` as a Hugging Face folder.\n\n"
        "A TrainJob writes it directly to the destination, so that no file of the model passes through the task's own "
        "pod. Without a destination, it writes to the location of the artifact `model`, below the pipeline's root. "
        "It must begin with s3://, gs:// or minio://. With s3:// or minio://, endpoint, region and Secret are those of "
        "the ConfigMap `kfp-launcher`, unless they are given.\n\n"
        "A checkpoint of another run is refused; see `after_jobs`. With `after_jobs`, the step may be cached.",
        "Location of the exported model.",
        artifacts=(("model", "dsl.Model", "artifact of the model with location, digest, size and training metrics."),),
    ),
    Component(
        "training/train",
        TrainJob,
        "Run a container, a Python function or a runtime's own training program as a TrainJob.\n\n"
        f"{_PASSTHROUGH} torchrun runs a function on each node.",
        "`/workspace`; empty if no workspace is mounted.",
        first=(*_FUNCTION, _MANIFEST),
        omitted=("trainer", "options"),
        artifacts=(_TRAINING_METRICS,),
        outputs=(
            ("result", "str", "JSON value that the function returned on rank 0; empty if it returned none."),
            _TRACKING_URL,
        ),
    ),
    Component(
        "evaluation/evaluate",
        TrainJob,
        "Score the content of a workspace with a function, and compare a score to a minimum.\n\n"
        "The function runs in a TrainJob under torchrun, on each node. The dict that rank 0 returns has the scores by "
        'name, such as {"exact_match": 0.98}. Settings on the task apply to the TrainJob\'s pods.\n\n'
        f"The step succeeds with any score. {_CONDITION}\n\n"
        "A model in a folder that `function_args` or `env` names must be of this run; see `after_jobs`. With "
        "`after_jobs`, the step may be cached.",
        "`/workspace`; empty if no workspace is mounted.",
        first=(
            replace(
                _FUNCTION[0],
                required=True,
                description="a function that returns scores by name, or its text from `trainjob_kfp.source(function)`",
            ),
            _input("metric", "text", "name of the score to compare", required=True),
            _input("minimum", "number", "smallest value of the score that is good enough", required=True),
            _FUNCTION[1],
            _input("any_run", "boolean", "whether the model may be of any run", default=False),
        ),
        omitted=(
            *(
                "trainer",
                "options",
                "initializer",
                "tracking",
                "watchdog",
                "program",
                "model_check",
                "managed_by",
                "command",
                "args",
            ),
            *("module", "script", "resume", "resume_from"),
        ),
        artifacts=(("metrics", "dsl.Metrics", "all scores that the function returned, and `attempts`."),),
        outputs=(
            ("score", "float", "Value of the score `metric`."),
            ("passed", "bool", "Whether the score is at least `minimum`."),
        ),
    ),
    Component(
        "evaluation/evaluate_model",
        Evaluate,
        "Score a model with tasks, held-out rows or a function, and compare it with a champion.\n\n"
        f"A gate that fails is a result and no error. {_CONDITION}\n\n"
        "A model of another run is refused; see `after_jobs`. With `after_jobs`, the step may be cached.",
        "Folder with `report.json` and the samples of each task.",
        artifacts=(
            (
                "metrics",
                "dsl.Metrics",
                (
                    "all scores, those of the champion and the differences (`champion_` and `difference_` before the "
                    "name), and `attempts`."
                ),
            ),
            ("summary", "dsl.Markdown", "page with the scores of both models, their differences, and the gates."),
        ),
        outputs=(
            ("passed", "bool", "Whether all gates have passed."),
            ("report", "str", "JSON object with `scores`, `champion_scores`, `differences` and `gates`."),
        ),
    ),
    Component(
        "deployment/generate",
        Generate,
        "Generate an answer for each row of a dataset, on one or several nodes.\n\n"
        "A model of another run is refused; see `after_jobs`. With `after_jobs`, the step may be cached.",
        "Folder with `generated.jsonl`.",
        artifacts=(
            (
                "metrics",
                "dsl.Metrics",
                "`rows`, `shards`, `tokens`, `seconds` and `tokens_per_second` of all nodes, and `attempts`.",
            ),
        ),
        outputs=(("rows", "int", "Number of rows, each with its answer."),),
    ),
    Component(
        "deployment/promote_model",
        Promote,
        "Make a model the served one, or leave the one that is served now.\n\n"
        "A model that cannot be served fails the step, and the one before is served again. The step is never cached.",
        _NO_OUTPUT_PATH,
        omitted=("after_jobs",),
        outputs=(
            ("promoted", "bool", "Whether the model is served; false if another try of the step was undone."),
            *_SERVED_MODELS,
        ),
    ),
    Component(
        "deployment/rollback_model",
        Rollback,
        "Undo a promotion: the model before is served again.\n\nThe step is never cached.",
        _NO_OUTPUT_PATH,
        omitted=("after_jobs",),
        outputs=(("rolled_back", "bool", "Whether there was a promotion to undo."), *_SERVED_MODELS),
    ),
)
_MODULE = '''"""Component `{name}`.

Written by tools/parameters from the classes in `trainjob.spec`: run `make reference`.

Kubeflow Pipelines sends only the function's source, and evaluates its annotations immediately. The annotations are
therefore not postponed, and the body uses no name of this module.
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, List, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def {name}(
{parameters}
) -> NamedTuple("Outputs", [{outputs}]):
{docstring}
    given = locals()
    from trainjob_kfp import component_programs

    return component_programs.{name}(**given)
'''


def render_components() -> dict[Path, str]:
    """Return the module of each component by its path."""
    return {FOLDER / each.folder / "component.py": _render_component(each) for each in COMPONENTS}


def list_inputs(step: type[Any]) -> list[str]:
    """Return the names of the inputs of a step's first component."""
    of_step = [each for each in COMPONENTS if each.step is step]
    return [field.name for each in of_step[:1] for field in list_component_fields(each)]


def list_own_inputs() -> dict[str, list[Field]]:
    """Return the inputs that are no fields of a step, by what has them."""
    of_all = [_OWN_FIELDS["workspace"], _OWN_FIELDS["on_kill"], *_FOR_LAUNCHER]
    found = {"all with a TrainJob": of_all, "all but the initializers": [_AFTER_JOBS]}
    for each in COMPONENTS:
        of_trainer = _list_trainer_fields() if each.step is TrainJob else []
        own = [*each.first, *(_adapt(field, each) for field in of_trainer if field.name not in each.omitted)]
        found |= {f"`{each.name}`": own} if own else {}
    return found


def list_component_fields(component: Component) -> list[Field]:
    """Return the inputs of a component, the required ones first."""
    of_trainer = _list_trainer_fields() if component.step is TrainJob else []
    omitted = {*component.omitted, *(each.name for each in of_trainer)}
    of_step = [each for each in list_fields(component.step) if each.name not in omitted]
    own = [*component.first, *of_trainer, *of_step]
    if "after_jobs" not in {each.name for each in own}:
        own.append(_AFTER_JOBS)
    fields = [_adapt(each, component) for each in own if each.name not in component.omitted]
    return sorted([*fields, *_FOR_LAUNCHER], key=lambda field: not field.required)


def _list_trainer_fields() -> list[Field]:
    """Return the fields of the trainers that run a command or a function, except the function."""
    both = {each.name: each for each in [*list_fields(CustomTrainerContainer), *list_fields(CustomTrainer)]}
    return [each for name, each in both.items() if name not in ("func", "func_args")]


def _adapt(field: Field, component: Component) -> Field:
    own = _OWN_FIELDS.get(field.name)
    if field.name in (component.from_artifact, "destination"):  # by default the location of the artifact
        return replace(field, required=False, description=f"{field.description}; see the overview")
    return replace(own, required=field.required) if own else field


def _render_component(component: Component) -> str:
    fields = list_component_fields(component)
    outputs = list_outputs(component)
    required = [f"    {each.name}: {get_type(each)}," for each in fields if each.required]
    artifacts = [f"    {name}: dsl.Output[{kind}]," for name, kind, _ in component.artifacts]
    inputs = [f"    {name}: dsl.Input[{kind}] = None," for name, kind, _ in component.input_artifacts]
    optional = [f"    {each.name}: {get_type(each)} = {render_default(each)}," for each in fields if not each.required]
    return _MODULE.format(
        name=component.name,
        parameters="\n".join([*required, *artifacts, *inputs, *optional, "    task_config: dsl.TaskConfig = None,"]),
        outputs=", ".join(f'("{name}", {kind})' for name, kind, _ in outputs),
        docstring=textwrap.indent(_render_docstring(component, fields, outputs), "    "),
    )


def get_type(field: Field) -> str:
    """Return the type of an input, as the component's signature has it."""
    return _TYPES[field.kind]


def list_outputs(component: Component) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of each output parameter of a component."""
    return [*_COMMON_OUTPUTS, ("output_path", "str", component.output_path), *component.outputs]


def render_overview(component: Component) -> str:
    """Return the beginning of a component's docstring."""
    return wrap_paragraphs(f"{component.text}\n\n{_CONVENTIONS}\n\n{_WORKSPACE}")


def render_default(field: Field) -> str:
    """Return the default of an input as Python source."""
    if field.default is not None:
        return repr(field.default)
    return _EMPTY[get_type(field).partition("[")[0]]


def _render_docstring(component: Component, fields: Sequence[Field], outputs: Sequence[tuple[str, str, str]]) -> str:
    described = {each.name: each.full_description for each in fields if each.required}
    described |= {name: text for name, _, text in (*component.artifacts, *component.input_artifacts)}
    described |= {each.name: each.full_description for each in fields if not each.required}
    described["task_config"] = "settings of the task for its pods; Kubeflow Pipelines sets this value."
    return "\n".join(
        [
            f'"""{render_overview(component)}',
            "",
            "Args:",
            format_entries({name: text[:1].upper() + text[1:] for name, text in described.items()}, indent=4),
            "",
            "Returns:",
            format_entries({name: text for name, _, text in outputs}, indent=4),
            '"""',
        ]
    )
