"""A merge that fails leaves a complete run with its adapter; the trained model has the base model's cache setting."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.export_runs import make_model, make_trl_run
from tests.support.training_fixtures import ROOT
from trainjob.errors import ExportError
from trainjob.programs.export import Export, export_model

pytestmark = [pytest.mark.trl, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("finished_runs.py")
# Error of the merge, and the reason in the record.
FAILED_MERGES = {
    "MergeError": "the logits differ",
    "MemoryError": "MemoryError: ",
    "RuntimeError": "RuntimeError: CUDA out of memory",
}
# `use_cache` of base model and trained model, and of the trained model after the record; None for no value.
CACHE_SETTINGS = {"true": (True, False, True), "no value": (None, False, None), "false": (False, False, False)}


def end_run(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "core" / "src")))}
    command = [ROOT / ".venv" / "trl" / "bin" / "python", PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("error", FAILED_MERGES)
def test_a_run_whose_merge_fails_is_complete_and_its_adapter_can_be_exported(tmp_path, error):
    model, output = make_model(tmp_path / "model"), tmp_path / "output"
    make_trl_run(output, adapter=True, complete=False)
    reason = FAILED_MERGES[error]
    refusal = json.loads(end_run("merge", model, output, error)[-1])
    assert refusal["message"] == f"the adapter is trained and saved, but not merged: {reason}"
    assert 'export it with adapter="keep", or run this step again' in refusal["hint"]
    record = json.loads((output / "trainjob_run.json").read_text())
    assert (record["complete"], record["adapter"], record["unmerged"]) == (True, True, reason)

    paths = (output, model, str(tmp_path / "export"))
    with pytest.raises(ExportError) as raised:
        export_model(Export(*paths))
    assert raised.value.message == f"the adapter in {output} is trained, but not merged: {reason}"
    assert export_model(Export(*paths, adapter="keep")).kind == "adapter"


@pytest.mark.parametrize("case", CACHE_SETTINGS)
def test_the_trained_model_has_the_cache_setting_of_its_base_model(tmp_path, case):
    """Gradient checkpointing has set it to false."""
    *given, expected = CACHE_SETTINGS[case]
    folders = make_model(tmp_path / "model"), make_trl_run(tmp_path / "output", complete=False)
    for folder, value in zip(folders, given, strict=True):
        path = folder / "config.json"
        cache = {} if value is None else {"use_cache": value}
        path.write_text(json.dumps({**json.loads(path.read_text()), **cache}))
    end_run("record", *folders)
    config = json.loads((tmp_path / "output" / "config.json").read_text())
    assert (config["model_type"], config.get("use_cache")) == ("llama", expected)
