"""TorchTune's implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from trainjob.frameworks.torchtune.arguments import Places, recipe_arguments, tune_run
from trainjob.frameworks.torchtune.config import TorchTuneConfig
from trainjob.frameworks.torchtune.models import MODELS, model_named
from trainjob.frameworks.torchtune.recipes import check_recipe
from trainjob.packing import program_command
from trainjob.spec import CustomTrainerContainer, FineTune, FrameworkConfig
from trainjob.spec.base import refuse
from trainjob.spec.framework import Framework
from trainjob.spec.trainers import literal, upstream_image
from trainjob.spec.volumes import WORKSPACE

_ADAPTER_ALONE = "save_adapter_weights_only=True"
# Overrides with which the user decides how a training resumes.
_DECIDES_RESUMING = tuple(f"{part}{end}" for part in ("checkpointer", "lr_scheduler") for end in ("=", "._component_="))


class _TorchTune:
    """TorchTune 0.6.1; see [trainjob.spec.framework.Framework][] for the methods."""

    config = TorchTuneConfig

    def model_name(self, name: str) -> str:
        return model_named(name).name

    def check(self, step: FineTune) -> None:
        config = _config(step.config)
        if step.workspace:
            check_recipe(step.model, config)
            _check_not_resumed(config, step)
            return
        if not step.runtime and not MODELS[step.model].runtime:
            raise refuse("runtime", None, f"the Trainer ships none for {step.model}: name yours, or use a workspace")
        if step.runtime and step.runtime.builtin_model != step.model:
            raise refuse("runtime", step.runtime.name, f"it must be called WORD-{step.model}, as it names the model")
        check_recipe(step.model, config, builtin=True)

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:
        check_recipe(model, _config(config), field=field, builtin=True)

    def can_resume(self, step: FineTune) -> bool:
        """Return whether an attempt can continue after the last complete epoch of an earlier one.

        It cannot:

        * if nothing is trained;
        * on several nodes, because each node would decide for itself;
        * with the user's own checkpointer or learning rate schedule;
        * with LoRA on a CPU, unless only the adapter is saved: saving merges the adapter into the weights that are
          trained on (torchtune 0.6.1, get_merged_lora_ckpt).
        """
        config = _config(step.config)
        own = any(override.startswith(_DECIDES_RESUMING) for override in config.overrides)
        merged = config.peft_config and "device=cpu" in config.overrides and _ADAPTER_ALONE not in config.overrides
        return config.quantization is None and (config.num_nodes or 1) == 1 and not own and not merged

    def trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        config, places = _config(step.config), _places(step)
        # With exactly [tune, run] as command, the Trainer would choose recipe and configuration by its runtime's name.
        command, arguments = ["tune"], tune_run(model_named(step.model), config, places)
        if run and step.can_resume:
            command = program_command("frameworks.torchtune.pod")
            arguments = [*_resume_arguments(config, places, run), "tune", *arguments]
        return CustomTrainerContainer(
            image=step.image or upstream_image("torchtune-trainer"),
            command=tuple(command),
            args=tuple(arguments),
            num_nodes=config.num_nodes or 1,
            num_proc_per_node=config.processes,
            resources_per_node=config.resources_per_node,
        )

    def builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:
        return recipe_arguments(_config(config), dataset)


FRAMEWORK: Framework = _TorchTune()


def _config(config: FrameworkConfig) -> TorchTuneConfig:
    if not isinstance(config, TorchTuneConfig):
        raise TypeError(f"a {type(config).__name__} is not TorchTune's")
    return config


def _check_not_resumed(config: TorchTuneConfig, step: FineTune) -> None:
    for override in config.overrides if step.resume else ():
        if override.startswith("resume_from_checkpoint="):
            rule = "what was saved is found and resumed by itself; give resume=False to say yourself from what"
            raise refuse("config.overrides", override, rule)


def _places(step: FineTune) -> Places:
    return Places(
        dataset=literal(f"{WORKSPACE}/dataset/{step.dataset_path}".rstrip("/")),
        model=literal(f"{WORKSPACE}/{step.model_path}"),
        output=literal(f"{WORKSPACE}/output/{step.output_path}".rstrip("/")),
    )


def _resume_arguments(config: TorchTuneConfig, places: Places, run: str) -> list[str]:
    """Return the arguments of the program that resumes an earlier attempt.

    TorchTune's own command follows these arguments.
    """
    folders = [places.model, f"{WORKSPACE}/dataset"]
    if config.distillation:
        folders.append(literal(f"{WORKSPACE}/{config.distillation.teacher_path}"))
    inputs = [word for folder in folders for word in ("--input", folder)]
    return ["--run", run, "--output", places.output, *inputs, *(["--adapter"] if config.peft_config else [])]
