"""What a step's own program hands back: one line of JSON in its log, behind words that nothing else begins with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# The last lines of `python -m trainjob.programs.export` and `trainjob.programs.fetch`, before a JSON object.
_RECEIPTS = ("export: done ", "fetch: done ")
_RESULT = "trainjob result: "  # before what a function returned, as JSON (trainjob.manifest.function)


def handed_back(line: str) -> dict[str, Any] | None:
    """What a line hands back: an export's or a fetch's receipt, or `{"result": ...}` of a training's function.

    None for every other line, also for one that only begins like one of these.
    """
    try:
        if line.startswith(_RESULT):
            return {"result": json.loads(line.removeprefix(_RESULT), parse_constant=_refuse)}
        if line.startswith(_RECEIPTS):
            receipt = json.loads(line.partition(" done ")[2], parse_constant=_refuse)
            return receipt if isinstance(receipt, dict) else None
    except (ValueError, RecursionError):
        pass
    return None


def export_facts(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """What an export's receipt tells of the model: its digest, kind, size, metrics, where it is registered."""
    if "manifest_sha256" not in receipt:
        return {}
    told = ("kind", "epoch", "files", "bytes", "revision", "metrics", "registered")
    facts = {name: receipt[name] for name in told if receipt.get(name) not in (None, "", {})}
    return {"digest": f"sha256:{receipt['manifest_sha256']}", **facts}


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
