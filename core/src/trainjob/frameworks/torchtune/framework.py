"""TorchTune's implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from trainjob.frameworks.torchtune.arguments import WorkspacePaths, build_tune_arguments, recipe_arguments
from trainjob.frameworks.torchtune.config import TorchTuneConfig
from trainjob.frameworks.torchtune.models import MODELS, get_model
from trainjob.frameworks.torchtune.recipes import check_recipe
from trainjob.job_variables import NAME_VARIABLE, RUN_VARIABLE
from trainjob.packing import program_command
from trainjob.spec import CustomTrainerContainer, FineTune, FrameworkConfig
from trainjob.spec.base import invalid_field
from trainjob.spec.framework import Framework
from trainjob.spec.trainers import escape_expansion, trainer_image
from trainjob.spec.volumes import WORKSPACE

PROGRAM_DEPENDENCIES = (
    "trainjob.frameworks.checkpoint_owner",
    "trainjob.frameworks.durable_files",
    "trainjob.frameworks.folder_lease",
    "trainjob.frameworks.input_identity",
    "trainjob.frameworks.packed_code",
    "trainjob.programs.fetch.folder",
    "trainjob.programs.fetch.record",
    "trainjob.heartbeats",
    "trainjob.job_variables",
    "trainjob.credentials",
    "trainjob.errors",
)
"""Names of the modules that the program in the pod imports."""
_ADAPTER_ONLY = "save_adapter_weights_only=True"
# Overrides with which the user decides how a training resumes.
_RESUME_OVERRIDES = tuple(f"{part}{end}" for part in ("checkpointer", "lr_scheduler") for end in ("=", "._component_="))


class _TorchTuneFramework:
    """TorchTune 0.6.1; see [trainjob.spec.framework.Framework][] for the methods."""

    config_class = TorchTuneConfig

    def canonical_model_name(self, name: str) -> str:
        return get_model(name).name

    def check_step(self, step: FineTune) -> None:
        config = _to_torchtune_config(step.config)
        if step.resume_from is not None:
            rule = (
                "TorchTune restores the old learning rate with its state: use TRL, LLaMA-Factory or Unsloth, or export "
                "the model and train it anew with model_path"
            )
            raise invalid_field("resume_from", step.resume_from, rule)
        if step.checkpoint_uri is not None:
            rule = "TorchTune's checkpoints are not copied: use TRL, LLaMA-Factory or Unsloth, or leave it out"
            raise invalid_field("checkpoint_uri", step.checkpoint_uri, rule)
        if step.workspace:
            check_recipe(step.model, config)
            _check_resume_override(config, step)
            return
        if not step.runtime and not MODELS[step.model].has_runtime:
            raise invalid_field(
                "runtime", None, f"the Trainer ships no runtime for {step.model}: name your own, or use a workspace"
            )
        if step.runtime and step.runtime.builtin_model != step.model:
            raise invalid_field(
                "runtime",
                step.runtime.name,
                f"its name must be WORD-{step.model}, because the name determines the model",
            )
        check_recipe(step.model, config, builtin=True)

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:
        check_recipe(model, _to_torchtune_config(config), field=field, builtin=True)

    def can_resume(self, step: FineTune) -> bool:
        """Return whether an attempt can continue after the last complete epoch of an earlier one.

        It cannot:

        * if nothing is trained;
        * on several nodes, because each node would decide for itself;
        * with the user's own checkpointer or learning rate schedule;
        * with LoRA on a CPU, unless only the adapter is saved: saving merges the adapter into the weights that are
          trained on (torchtune 0.6.1, get_merged_lora_ckpt).
        """
        config = _to_torchtune_config(step.config)
        own = any(override.startswith(_RESUME_OVERRIDES) for override in config.overrides)
        merged = config.peft_config and "device=cpu" in config.overrides and _ADAPTER_ONLY not in config.overrides
        return config.quantization is None and (config.max_nodes or 1) == 1 and not own and not merged

    def build_trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        config, paths = _to_torchtune_config(step.config), _workspace_paths(step)
        # With exactly [tune, run] as command, the Trainer would choose recipe and configuration by its runtime's name.
        command, arguments = ["tune"], build_tune_arguments(get_model(step.model), config, paths)
        if step.tracking:
            arguments += _metric_arguments(config)
        if run and not config.quantization:
            # TorchTune writes them into torchtune_config.yaml, where the export reads them. Kubernetes expands them.
            origin = (("trained_by", NAME_VARIABLE), ("workflow_run", RUN_VARIABLE))
            arguments += [f"trainjob_{key}=$({variable})" for key, variable in origin]
        if run and step.can_resume:
            command = program_command("trainjob.frameworks.torchtune.pod", *PROGRAM_DEPENDENCIES, source=step.program)
            arguments = [*_resume_arguments(config, paths, run), "tune", *arguments]
        # The Trainer's image contains no `trainjob`, but that of a given runtime does.
        stock = trainer_image("torchtune-trainer") if step.program == "packed" else None
        return CustomTrainerContainer(
            image=step.image or stock,
            command=tuple(command),
            args=tuple(arguments),
            num_nodes=config.max_nodes or 1,
            num_proc_per_node=config.processes_per_node,
            resources_per_node=config.resources_per_node,
        )

    def build_builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:
        return recipe_arguments(_to_torchtune_config(config), dataset)


FRAMEWORK: Framework = _TorchTuneFramework()


def _to_torchtune_config(config: FrameworkConfig) -> TorchTuneConfig:
    if not isinstance(config, TorchTuneConfig):
        raise TypeError(f"a {type(config).__name__} is not a TorchTuneConfig")
    return config


def _check_resume_override(config: TorchTuneConfig, step: FineTune) -> None:
    for override in config.overrides if step.resume else ():
        if override.startswith("resume_from_checkpoint="):
            rule = "the last complete epoch is resumed automatically; give resume=False to choose a checkpoint yourself"
            raise invalid_field("config.overrides", override, rule)


def _workspace_paths(step: FineTune) -> WorkspacePaths:
    return WorkspacePaths(
        dataset=escape_expansion(f"{WORKSPACE}/dataset/{step.dataset_path}".rstrip("/")),
        model=escape_expansion(f"{WORKSPACE}/{step.model_path}"),
        output=escape_expansion(f"{WORKSPACE}/output/{step.output_path}".rstrip("/")),
    )


def _metric_arguments(config: TorchTuneConfig) -> list[str]:
    """Return the arguments with which the log has all metrics of each step, for the tracker.

    They are empty if the user chooses a metric logger, or if nothing is trained.
    """
    if config.quantization or any(override.startswith("metric_logger") for override in config.overrides):
        return []
    logger = "torchtune.training.metric_logging.StdoutLogger"  # it has no folder (torchtune 0.6.1)
    return [f"metric_logger._component_={logger}", "~metric_logger.log_dir"]


def _resume_arguments(config: TorchTuneConfig, paths: WorkspacePaths, run: str) -> list[str]:
    """Return the arguments of the program that resumes an earlier attempt.

    TorchTune's own command follows these arguments.
    """
    folders = [paths.model, f"{WORKSPACE}/dataset"]
    if config.distillation:
        folders.append(escape_expansion(f"{WORKSPACE}/{config.distillation.teacher_path}"))
    inputs = [word for folder in folders for word in ("--input", folder)]
    return [
        "--run",
        escape_expansion(run),
        "--output",
        paths.output,
        *inputs,
        *(["--adapter"] if config.peft_config else []),
    ]
