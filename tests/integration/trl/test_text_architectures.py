"""Every text architecture of transformers trains with LoRA's defaults, and its adapters are merged right."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.training_fixtures import ROOT

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]

PROGRAM = Path(__file__).with_name("text_architectures.py")
PARTS = 4
REFUSED = {"electra", "llama4_text", "rembert"}
# Their configurations do not fit the sizes of the program, or they need images or sound.
NOT_BUILT = """
    bailing_hybrid blt cohere_compass_text dbrx dots3_note dots3_note_text emu3 fuyu gemma3 gemma3n gemma4
    gemma4_assistant gemma4_unified gemma4_unified_assistant git got_ocr2 kimi_linear llama4 mllama
    moss_transcribe_diarize musicgen musicgen_melody phi4_multimodal qwen3_5 qwen3_5_moe qwen4_exp
    qwen4_exp_text reformer trocr whisper xlstm xmod zamba zamba2
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_every_type_of_text_model_trains_and_is_merged(hub, tmp_path, evidence, part):
    tokenizer, rows = hub / "models" / "demo" / "tiny-llama", tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"ticket {n}", "completion": " billing"}) + "\n" for n in range(8)))
    arguments = (tokenizer, rows, tmp_path / "model", f"{part}/{PARTS}")
    command = [ROOT / ".venv" / "trl" / "bin" / "python", PROGRAM, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "core" / "src")))}
    printed = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {row.pop("type"): row for line in printed.splitlines() if (row := json.loads(line))}
    for kind, row in found.items():
        results = {"not_built": "not built", "untrainable": "refused", "error": "failed"}
        evidence("architectures", type=kind, result=next((results[key] for key in results if key in row), "ok"))
    assert {kind: row["error"] for kind, row in found.items() if "error" in row} == {}
    merged = {kind: row for kind, row in found.items() if "difference" in row}
    # The logits are about 1, of cpmant about 30. A merge of wrong layers differs by 0.03 or more.
    wrong = {kind: row for kind, row in merged.items() if row["difference"] > 1e-3 * max(1, row["effect"])}
    assert wrong == {}
    assert {kind for kind, row in merged.items() if row["effect"] < 1e-3} == set()
    assert {kind for kind, row in found.items() if "untrainable" in row} == found.keys() & REFUSED
    assert {kind for kind, row in found.items() if "not_built" in row} == found.keys() & set(NOT_BUILT.split())
