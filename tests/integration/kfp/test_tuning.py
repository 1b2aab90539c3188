"""Tests of arguments of the component `fine_tune`: resume, model path and preference tuning."""

from __future__ import annotations

from trainjob import PreferenceTuning, TorchTunePreferenceDataset
from trainjob_kfp import steps

FINE_TUNE = {"model": "llama3.2-1b", "framework": "torchtune", "workspace": "tickets"}


def test_a_retry_resumes_unless_resume_is_false():
    assert steps.fine_tune(FINE_TUNE, None).resume
    assert steps.fine_tune({**FINE_TUNE, "resume": True}, None) == steps.fine_tune(FINE_TUNE, None)
    assert not steps.fine_tune({**FINE_TUNE, "resume": False}, None).resume


def test_preference_tuning_of_an_earlier_trainings_model():
    """Whole numbers in `config` may be floats, because `kfp.local` converts them."""
    config = {"preference_tuning": {"beta": 0.5}, "dataset_preprocess_config": {"kind": "preference"}, "epochs": 2.0}
    step = steps.fine_tune({**FINE_TUNE, "model_path": "answers", "lora_rank": 8, "config": config}, None)
    assert (step.model_path, step.config.epochs, step.config.peft_config.lora_rank) == ("answers", 2, 8)
    assert step.config.preference_tuning == PreferenceTuning(beta=0.5)
    assert step.config.dataset_preprocess_config == TorchTunePreferenceDataset()
