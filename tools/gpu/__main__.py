"""Run the cases of docs/evidence/gpu.md on this machine, and write the page; see `make gpu`.

Usage: python -m tools.gpu [--device cuda|cpu] [--tiny] [--out FOLDER] [--keep FOLDER] [--commit TEXT] [--minutes N]

The interpreter has torch and the other packages of TRL's lock. Exit codes: 0 all cases passed that can run here, 1 a
case failed, 2 the machine or the arguments do not fit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from tools.evidence.measurement import find_commit
from tools.gpu.cases import SMALL, TINY, Session, run_case
from tools.gpu.page import CASES, PAGE, RESULTS, count_failures, write_page
from tools.gpu.pods import MemoryLog
from trainjob_local.demo.hub import HubServer

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_PACKAGES = {name: name for name in ("torch", "transformers", "peft", "bitsandbytes")} | {"TRL": "trl"}
_REQUIRED = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "pyarrow", "safetensors", "regex")


def main() -> int:
    """Run the cases, and return the exit code."""
    given = _parse_arguments()
    if missing := [name for name in _REQUIRED if not _get_version(name)]:
        return _refuse(f"this Python lacks {', '.join(missing)}: see `make gpu-wheels`")
    if given.device == "cuda" and not (card := _query_card()):
        return _refuse("nvidia-smi shows no GPU: `--device cpu --tiny --out FOLDER` runs the cases on a CPU")
    environment = {**_describe_card(card if given.device == "cuda" else ()), **_describe_software(given)}
    folder = Path(given.keep or tempfile.mkdtemp(prefix="gpu-"))
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"environment": environment, "ratio": 0.9 if given.device == "cuda" else 0.1, "rows": []}
    begin = time.monotonic()
    os.environ |= {"CUDA_VISIBLE_DEVICES": ""} if given.device == "cpu" else {}
    environment["model"] = _write_hub(folder / "hub", "tiny" if given.tiny else "small")
    memory = MemoryLog(folder / "memory.log") if given.device == "cuda" else None
    with HubServer(folder / "hub") as hub:
        deadline = begin + given.minutes * 60
        sizes = TINY if given.tiny else SMALL
        session = Session(folder, hub.url, folder / "hub", given.device, sizes, results["ratio"], deadline, memory)
        session.workspace.mkdir(exist_ok=True)
        try:
            for name in CASES:
                row = run_case(session, name)
                print(f"{name}: {row['result']} ({row.get('seconds', 0)} s) {row['measured']}", flush=True)
                results["rows"].append(row)
                environment["duration"] = f"{time.monotonic() - begin:.0f} s"
                _write(results, given.out)  # after each case, because the machine may be taken away
        finally:
            session.close()
            if memory:
                memory.stop()
    failures = count_failures(results)
    print(f"{failures} of {len(CASES)} cases failed; logs: {folder}", flush=True)
    return 1 if failures else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu", description="Run the cases of docs/evidence/gpu.md.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where to compute")
    parser.add_argument("--tiny", action="store_true", help="use the demo's tiny model and few steps")
    parser.add_argument("--out", type=Path, help="folder for gpu.md and results.json; by default the repository's own")
    parser.add_argument("--keep", help="folder for models and logs, which stay there; by default a temporary one")
    parser.add_argument("--commit", default="", help="commit of this checkout, if it has no .git")
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all cases; later ones fail")
    given = parser.parse_args()
    if not given.out and (given.device == "cpu" or given.tiny):
        parser.error("--device cpu and --tiny need --out: the repository's page has results of a GPU only")
    return given


def _write(results: dict[str, Any], out: Path | None) -> None:
    page, file = (out / "gpu.md", out / "results.json") if out else (PAGE, RESULTS)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    write_page(results, page)


def _write_hub(root: Path, size: str) -> str:
    """Write model and dataset, and return a description of the model."""
    tickets = _ROOT / "examples" / "tickets"
    lines = ""
    for program in (tickets / "make_data.py", tickets / "make_model.py", _HERE / "model.py"):
        words = [size] if program.parent == _HERE else []
        done = subprocess.run([sys.executable, program, root, *words], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{program.name} failed:\n{done.stderr[-2000:]}")
        lines = done.stdout
    return f"Llama, {lines.strip().rpartition(': ')[2]}"


def _query_card() -> list[str]:
    query = ["nvidia-smi", "--id=0", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True)
    except FileNotFoundError:
        return []
    return done.stdout.strip().split(", ") if not done.returncode else []


def _describe_card(card: Any) -> dict[str, str]:
    return dict(zip(("card", "driver", "memory of the card"), card, strict=True)) if card else {"card": "none, a CPU"}


def _describe_software(given: argparse.Namespace) -> dict[str, str]:
    versions = {title: _get_version(name) or "not installed" for title, name in _PACKAGES.items()}
    today = date.today().isoformat()  # noqa: DTZ011 - readers expect the local date
    options = [f"--device {given.device}", *(["--tiny"] if given.tiny else [])]
    command = (
        "`make gpu`" if given.device == "cuda" and not given.tiny else f"`python -m tools.gpu {' '.join(options)}`"
    )
    described = {"commit": given.commit or find_commit(), "date": today, "command": command}
    return {"Python": platform.python_version(), **versions, **described}


def _get_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _refuse(reason: str) -> int:
    print(f"gpu: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
