"""Estimate of a training's space, compared with the free space of its workspace."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from trainjob.errors import StorageFull
from trainjob.frameworks.fine_tuning.space import check_space
from trainjob.frameworks.trl.pod.run_arguments import parse_run_arguments

Usage = namedtuple("Usage", "total used free")
MODEL_BYTES = 10_000


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Return a function that checks a training of a model with 10 kB; it returns the log."""
    (tmp_path / "model").mkdir()
    for number in range(2):
        (tmp_path / "model" / f"model-{number}.safetensors").write_bytes(b"0" * (MODEL_BYTES // 2))

    def check_with(free, *words):
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free, 0, free))
        paths = {"--model": "model", "--dataset": "rows", "--output": "output"}
        given = [str(word) for name, path in paths.items() for word in (name, tmp_path / path)]
        options = [word for word in words if word == "--merge"]
        rest = [word for word in words if word != "--merge"]
        check_space(parse_run_arguments([*given, "--trl-version", "1.16.0", *options, "sft", *rest]), "trl")
        return capsys.readouterr().out

    return check_with


LORA = ("--merge", "--use_peft=true")


@pytest.mark.parametrize(
    ("words", "least", "usual"),
    [
        ((), 4, 10),  # the model, and three checkpoints of three times its size
        (("--save_total_limit=4",), 4, 16),
        (("--optim=adafactor",), 2, 4),
        (("--optim=adamw_bnb_8bit",), 2, 4),
        (("--optim=adamw_torch_fused",), 4, 10),
        (("--save_strategy=no",), 1, 1),
        (LORA, 1, 1),
        (("--use_peft=true",), 0, 0),
    ],
)
def test_a_training_that_cannot_fit_is_refused_and_a_tight_one_reported(check, words, least, usual):
    if least:
        with pytest.raises(StorageFull, match="the workspace has too little space: the training needs at least "):
            check(least * MODEL_BYTES - 1, *words)
    assert bool(check(least * MODEL_BYTES, *words)) == (usual > least)
    assert check(usual * MODEL_BYTES, *words) == ""


def test_a_model_without_safetensors_is_not_refused(check, tmp_path):
    for path in (tmp_path / "model").iterdir():
        path.unlink()
    assert check(0) == ""
