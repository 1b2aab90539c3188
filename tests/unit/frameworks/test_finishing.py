"""The end of a training, in an image without peft and, as here, without torch."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.frameworks.fine_tuning.finishing import record_training
from trainjob.frameworks.fine_tuning.start import Start
from trainjob.frameworks.fine_tuning.training_run import TrainingRun


@dataclass(frozen=True)
class _Run(TrainingRun):
    uses_lora = False
    trusts_remote_code = False

    def get_argument(self, name: str) -> Any:
        return None


def test_a_run_without_lora_is_recorded_without_peft(tmp_path: Path) -> None:
    """A framework of another package may have no LoRA, so its image needs no library for it."""
    assert importlib.util.find_spec("peft") is None
    names = ("run", "model_name", "model", "dataset", "eval_dataset", "output", "columns", "merge", "keep_checkpoints")
    values = dict(zip(names, ("", "m", tmp_path, tmp_path, None, tmp_path, {}, False, False), strict=True))
    (tmp_path / "1_Pooling").mkdir()
    run = _Run(**values, method="embedding", checkpoint_uri="", copier=[])
    record_training(run, Start("owner", "", "nonce"), "other", {"step": 3, "folders": ["1_Pooling"]})
    record = json.loads((tmp_path / "trainjob_run.json").read_text())
    assert record == {"complete": True, "adapter": False, "step": 3, "folders": ["1_Pooling"]}
