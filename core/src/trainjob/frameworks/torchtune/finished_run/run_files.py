"""Files that a TorchTune run wrote about itself: its configuration and its metrics.

Source: torchtune 0.6.1 `training/metric_logging.py`: `torchtune_config.yaml` in the output folder, written before the
first step; `logs/log_<unix time>.txt` with a line `Step 6 | loss:2.42 lr:0.003 ` for each logged step.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from trainjob.frameworks.torchtune.origin import RECORD_FILE

__all__ = ["RunConfiguration", "read_configuration", "read_metrics", "read_parameters"]

_TOP_LEVEL_KEY = re.compile(r"^(\w+):[ \t]*(\S*)", re.MULTILINE)
_NESTED_KEY = re.compile(r"^(?P<indent>|  )(?P<name>\w+):(?:[ \t]+(?P<value>\S.*?))?[ \t]*$")
# Parameters that describe a training. The other ones are for paths, logging and devices.
_PARAMETERS = (
    "model._component_",
    "model.lora_rank",
    "model.lora_alpha",
    "model.lora_dropout",
    "optimizer._component_",
    "optimizer.lr",
    "lr_scheduler._component_",
    "lr_scheduler.num_warmup_steps",
    "dataset._component_",
    "epochs",
    "max_steps_per_epoch",
    "batch_size",
    "gradient_accumulation_steps",
    "dtype",
    "seed",
)
_STEP = re.compile(r"^Step ([0-9]{1,18}) \| (.*)$")


@dataclass(frozen=True)
class RunConfiguration:
    """The configuration of the run that last wrote to an output folder.

    It contains only the values that an export needs.

    Attributes:
        epochs: number of epochs to run; None if the run left no configuration.
        adapter_only: whether the run saves adapters without merged weights.
        resumed: whether the run continued an earlier run, whose last epoch may be the final one.
        started_at: time of the configuration, in seconds since 1970; 0.0 without a configuration.
    """

    epochs: int | None = None
    adapter_only: bool = False
    resumed: bool = False
    started_at: float = 0.0


def read_configuration(output: Path) -> RunConfiguration:
    """Return the configuration in `torchtune_config.yaml`; an empty one without the file.

    It reads top-level scalars only, so no YAML library is needed.
    """
    path = output / RECORD_FILE
    if not path.is_file():
        return RunConfiguration()
    found = dict(_TOP_LEVEL_KEY.findall(path.read_text(encoding="utf-8", errors="replace")))
    epochs = found.get("epochs", "")
    return RunConfiguration(
        epochs=int(epochs) if re.fullmatch(r"[0-9]{1,9}", epochs) else None,
        adapter_only=found.get("save_adapter_weights_only") == "true",
        resumed=found.get("resume_from_checkpoint") == "true",
        started_at=path.stat().st_mtime,
    )


def read_parameters(output: Path) -> dict[str, int | float | str]:
    """Return the training's parameters from `torchtune_config.yaml`, by dotted names.

    The file is OmegaConf's own dump, with two blanks per level and plain scalars. The result is empty without the file.
    """
    path = output / RECORD_FILE
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    section = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if match := _NESTED_KEY.fullmatch(line):
            name, value = match["name"], match["value"]
            if not match["indent"]:
                section = name
            found[f"{section}.{name}" if match["indent"] else name] = value or ""
    parameters = {name: found[name] for name in _PARAMETERS if found.get(name, "") not in ("", "null")}
    return {name: _scalar(value) for name, value in parameters.items()}


def _scalar(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text.strip("'\"")


def read_metrics(output: Path) -> dict[str, int | float | str]:
    """Return the last value of each metric in the newest log, and the last step as `steps`.

    Names are TorchTune's (`loss`, `lr`, `tokens_per_second_per_gpu`). NaN and infinity are returned as text, because
    JSON has no such numbers. The result is empty if the run wrote no log file.
    """
    logs = sorted((output / "logs").glob("*.txt"), key=lambda path: (path.stat().st_mtime, path.name))
    if not logs:
        return {}
    metrics: dict[str, int | float | str] = {}
    with logs[-1].open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if step := _STEP.match(line.strip()):
                metrics["steps"] = int(step[1])
                metrics.update(_values(step[2]))
    return metrics


def _values(text: str) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for pair in text.split():
        name, _, value = pair.rpartition(":")
        try:
            number = float(value)
        except ValueError:
            continue
        found[name] = number if math.isfinite(number) else str(number)
    return found
