"""Generator of docs/evidence/gpu.md from page.md and the results of a run.

Usage: page.py [RESULTS FILE]. Without arguments, it writes docs/evidence/gpu.md from results.json beside this module. A
results file that does not exist means that the cases were never run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.markdown import table
from tools.evidence.measurement import describe_commit

_HERE = Path(__file__).resolve().parent
PAGE = _HERE.parents[1] / "docs" / "evidence" / "gpu.md"
RESULTS = _HERE / "results.json"
"""The results of the last run on a GPU."""
CASES: Mapping[str, tuple[str, str]] = {
    "fetch": ("fetch of model and dataset", "each file has the bytes of the hub's"),
    "sft": ("SFT of all weights", "the loss falls to less than 0.8 of its first value; the saved weights are BF16"),
    "bare": ("TRL's own script", "the program reaches at least {ratio:g} of its tokens per second"),
    "export": ("export of SFT's model", "the exported weights are the trained ones"),
    "lora": ("LoRA", "the loss falls as that of SFT; the adapter is merged"),
    "merge": ("merged model of LoRA", "its logits differ by at most 0.1 from base model and adapter"),
    "qlora": ("QLoRA", "the same as of LoRA"),
    "export-lora": ("export of LoRA's model", "the exported weights are the merged ones"),
    "generate": ("load and generate", "the exported model generates the same text as the merged one"),
    "dpo": ("DPO", "the loss falls below that of equal answers, 0.693"),
    "grpo": ("GRPO", "the rewards are those of the function and differ within a group; the weights change"),
    "sigkill": ("resume after SIGKILL", "the next attempt begins after the last complete checkpoint; its model loads"),
    "sigterm": ("resume after SIGTERM", "the first attempt saves its last step, and the next one continues; it loads"),
}
"""Name of each case: its title and what is checked, in the order of the run."""
NEVER_RUN = """**These cases were never run on a GPU.** A test runs them with a tiny model on a CPU
([test](../../tests/integration/trl/test_gpu_program.py))."""
_ENVIRONMENT = (
    *("card", "driver", "memory of the card", "Python", "torch", "transformers", "TRL", "peft", "bitsandbytes"),
    *("model", "command", "duration"),
)


def render_page(template: str, results: Mapping[str, Any]) -> str:
    """Return the text of the page.

    Args:
        template: text of page.md, with the places `{{summary}}` and `{{cases}}`.
        results: `environment`, which has texts by name; `ratio`; and `rows`, which have `case`, `measured`, `result`,
            `seconds` and `memory` in MiB. Empty if the cases were never run.
    """
    rows = {str(row["case"]): row for row in results.get("rows", ())}
    lines = [_render_row(name, rows.get(name, {}), results.get("ratio", 0.9)) for name in CASES]
    cases = table(["Case", "Check", "Result", "Measured", "Time", "Memory of the GPU"], lines)
    return template.replace("{{summary}}", _render_summary(results)).replace("{{cases}}", cases)


def count_failures(results: Mapping[str, Any]) -> int:
    """Return the number of cases that failed or that a run left out without a reason."""
    rows = {str(row["case"]): str(row["result"]) for row in results.get("rows", ())}
    return sum(not rows.get(name, "").startswith(("passed", "not run: ")) for name in CASES)


def _render_summary(results: Mapping[str, Any]) -> str:
    if not results.get("rows"):
        return NEVER_RUN
    failures, shown = count_failures(results), results["environment"]
    verdict = f"**{failures} of {len(CASES)} cases failed.**" if failures else "All cases that were run passed."
    lines = [[name, shown[name]] for name in _ENVIRONMENT if name in shown]
    measured = f"{describe_commit(shown['commit'])}, {shown['date']}"
    return f"{verdict} Measured: {measured}.\n\n{table(['Environment', 'Value'], lines)}"


def _render_row(name: str, row: Mapping[str, Any], ratio: float) -> Sequence[str]:
    title, check = CASES[name]
    seconds, memory = row.get("seconds"), row.get("memory")
    return (
        title,
        check.format(ratio=ratio),
        str(row.get("result", "not run")),
        str(row.get("measured") or "-"),
        f"{seconds:.0f} s" if seconds is not None else "-",
        f"{memory:,} MiB" if memory else "-",
    )


def read_results(file: Path) -> dict[str, Any]:
    """Return the results in a file; empty if it does not exist."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def write_page(results: Mapping[str, Any], page: Path) -> None:
    """Write the page of these results."""
    template = (_HERE / "page.md").read_text(encoding="utf-8")
    page.write_text(render_page(template, results), encoding="utf-8")


if __name__ == "__main__":
    _results, _page = map(Path, sys.argv[1:] or (RESULTS, PAGE))
    write_page(read_results(_results), _page)
