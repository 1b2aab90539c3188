"""Fuzz tests of the parsers of logs: progress, step results and the files of TorchTune."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

from hypothesis import strategies as st

from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases, fuzz
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.frameworks.torchtune.finished_run.run_files import read_configuration, read_metrics
from trainjob.status import get_model_facts, parse_step_result
from trainjob.status.progress import Progress

PIECES = [
    "1|2|Loss: 0.5: 12%|###  | 5/42 [00:01<00:02]",
    "Step 6 | loss:2.42 lr:0.003",
    "epochs: 3",
    "{'loss': '0.5', 'learning_rate': '0.1', 'epoch': '0.5'}",
    "{'loss': '0.4', 'learning_rate': '0.1', 'epoch': '1', 'step': 9, 'max_steps': 18}",
    "{'eval_runtime': '0.5', 'epoch': '1'}",
    " 50%|###   | 9/18 [00:01<00:02]",
    "{'",
    "': '",
    "', '",
    "'}",
    "|",
    "Loss: ",
    "loss:",
    "nan",
    "inf",
    "-",
    "e",
    "9" * 5000,
    "²",
    "\r",
    "\n",
    "\0",
    " ",
    "%|",
    "/",
    "[",
]
LINES = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=8).map("".join)


@fuzz("log lines: JobLogParser", 500, lines=st.lists(LINES, max_size=5))
def test_progress_in_any_lines_is_valid(lines):
    reader, last, any_found = JobLogParser(), 0, False
    for line in lines:
        if found := reader.feed(line):
            assert found.step >= last
            assert found.loss is None or math.isfinite(found.loss)
            assert all(map(math.isfinite, found.metrics.values()))
            assert str(found)
            json.dumps(found.to_dict(), allow_nan=False)
            last, any_found = found.step, True
    return "progress" if any_found else "nothing"


def test_progress_in_normal_lines_is_found():
    assert JobLogParser().feed(PIECES[0]) == Progress(2, None, 1, None, 0.5)
    assert JobLogParser().feed(PIECES[1]) == Progress(6, None, None, None, 2.42, metrics={"lr": 0.003})
    assert JobLogParser().feed(PIECES[4]) == Progress(9, 18, 1, None, 0.4, metrics={"learning_rate": 0.1})


RECEIPT = {"manifest_sha256": "0" * 64, "kind": "model", "epoch": 1, "files": 3, "bytes": 5, "metrics": {"loss": 0.5}}


@fuzz(
    "results in log lines: parse_step_result, get_model_facts",
    400,
    prefix=st.sampled_from(["export: done ", "trainjob result: ", "x"]),
    content=(damaged_json(RECEIPT) | JSON | edge_cases).map(json.dumps) | st.text() | st.just("[" * 9000),
)
def test_a_step_result_is_an_object_or_none(prefix, content):
    found = parse_step_result(prefix + content)
    assert found is None or isinstance(found, dict)
    if prefix == "export: done " and found is not None:
        assert isinstance(get_model_facts(found), dict)
    return "nothing" if found is None else "a receipt or result"


@fuzz("TorchTune's own files: run record, metrics", 200, text=LINES, config=st.lists(LINES, max_size=4).map("\n".join))
def test_any_files_of_a_run_are_read(text, config):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        (folder / "torchtune_config.yaml").write_text(config, errors="surrogatepass")
        (folder / "logs" / "log_1.txt").write_text(text, errors="surrogatepass")
        record = read_configuration(folder)
        json.dumps(read_metrics(folder), allow_nan=False)
    return "no epochs" if record.epochs is None else "epochs"
