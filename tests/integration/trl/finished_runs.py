"""Ends of trainings without their merge or their settings, run with the libraries of the environment `trl`.

python finished_runs.py merge MODEL OUTPUT ERROR    end the run, with an error instead of its merge; print the refusal
python finished_runs.py record MODEL OUTPUT         record the run
"""

from __future__ import annotations

import json
import sys
from unittest import mock

from trainjob.errors import MergeError
from trainjob.frameworks.fine_tuning import finishing, merging
from trainjob.frameworks.fine_tuning.start import Start
from trainjob.frameworks.trl.pod.run_arguments import RunArguments, parse_run_arguments

ERRORS: dict[str, Exception] = {
    "MergeError": MergeError("the logits differ", hint="the hint of the merge"),
    "MemoryError": MemoryError(),
    "RuntimeError": RuntimeError("CUDA out of memory"),
}
START = Start("owner", "", "nonce")
SUMMARY = {"step": 44, "epoch": 4.0, "metrics": {"loss": 0.56}}


def parse_run(model: str, output: str) -> RunArguments:
    paths = ("--model", model, "--dataset", "-", "--output", output, "--trl-version", "1.16.0")
    return parse_run_arguments([*paths, "--merge", "sft", "--use_peft=true"])


def main(action: str, model: str, output: str, error: str = "") -> None:
    run = parse_run(model, output)
    finishing.record_training(run, START, "trl", SUMMARY)
    if action == "record":
        return
    with mock.patch.object(merging, "merge_adapter", side_effect=ERRORS[error]):
        try:
            finishing.finish(run, START, "trl")
        except MergeError as refusal:
            print(json.dumps({"message": refusal.message, "hint": refusal.hint}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
