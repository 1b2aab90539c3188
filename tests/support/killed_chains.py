"""The chain of SFT and DPO with LoRA in LLaMA-Factory, whose trainings are killed once, in a workspace of the node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

STEPS = 12
"""Steps of each training; each fourth step saves a checkpoint."""
RESUMED_STEPS = {"sft": 4, "dpo": 8}
"""Step from which the next attempt of a killed training resumes, by its method."""
_KILLS = {"sft": "checkpoint-8/adapter_config.json", "dpo": "checkpoint-12/adapter_config.json"}


def kill_variables(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the variables of the pods that kill each training once, by its method.

    Args:
        environment: the fixture `killing_environment`.
    """
    return {
        method: {**environment, "KILLED": f"{environment['KILLED']}-{method}", "KILL_AT": kill_at}
        for method, kill_at in _KILLS.items()
    }


def check_resumed_trainings(log: str) -> None:
    """Check in the log of a run that each killed training has resumed, once."""
    for step in RESUMED_STEPS.values():
        assert log.count(f"[node-0] continues from step {step} of attempt ") == 1, log[-6000:]


def check_exports(workspace: Path) -> None:
    """Check the manifests of both exported models."""
    sft, dpo = (json.loads((workspace / name / "manifest.json").read_text()) for name in ("merged", "export"))
    for method, manifest in {"sft": sft, "dpo": dpo}.items():
        assert (manifest["framework"], manifest["method"]) == ("llamafactory", method)
        assert (manifest["checkpoint"]["step"], manifest["parameters"]["lora_rank"]) == (STEPS, 4)
    assert sft["metrics"]["loss"] < 4.0  # a model without training has log(576), the number of tokens
    assert dpo["metrics"]["loss"] < 0.65  # it starts at log(2), without a preference
    assert dpo["files"]["model.safetensors"] != sft["files"]["model.safetensors"]
